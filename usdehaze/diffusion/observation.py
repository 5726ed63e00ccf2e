"""Observation models: how tissue ``x`` and haze ``n`` make the frame ``y``.

In model units: for log-compressed frames 0 = floor, 1 = full scale (0 dB). The guidance rules need four things of a
model: what it predicts, the adjoint of its derivatives, and, with the priors' estimates known up to Gaussian errors,
what ``y`` tells of them, as posterior means (`explain`) and as the gradient of the log-likelihood (`pull`).

A new model is a subclass with ``predict``, ``derivatives`` and ``variance``; docs/method.md writes one. Models of
echoes whose powers add, `LogPower` the first of them, are in `usdehaze.diffusion.echo`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from usdehaze.errors import UsdehazeError

# Variance of an estimate's error: one for all pixels; one a pixel, a tensor of 1 or 3 dimensions that broadcasts to a
# frame; or a (d, d) covariance.
Spread = float | Tensor


def is_full(spread: Spread) -> bool:
    """Whether a spread is a covariance."""
    return isinstance(spread, Tensor) and spread.ndim == 2


def apply(spread: Spread, v: Tensor) -> Tensor:
    """A spread, as an operator, on each frame of ``v``."""
    return (v.flatten(1) @ spread.T).view_as(v) if isinstance(spread, Tensor) and spread.ndim == 2 else spread * v


class Observation(ABC):
    """A pointwise model ``y = h(x, n) + noise``; tissue, haze and frame have one shape.

    Whatever ``h`` is, it is taken as linear between the estimates and the truth: PiGDM's formula with ``A`` replaced by
    the derivatives, ``S = hx^2 r2 + hn^2 q2 + variance``. `LogPower` does better.

    Attributes:
        needs_haze: the model means nothing without a haze prior.
    """

    needs_haze = False

    @abstractmethod
    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        """``h(x, n)``."""

    @abstractmethod
    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        """``dh/dx`` and ``dh/dn`` in each pixel."""

    @abstractmethod
    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        """Variance of ``y`` about ``h(x, n)``."""

    def adjoint(self, x: Tensor, n: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Transposed derivatives of ``h`` at ``(x, n)``, applied to ``e``."""
        hx, hn = self.derivatives(x, n)
        return hx * e, hn * e

    def pull(self, y: Tensor, x: Tensor, r2: Spread, n: Tensor, q2: Spread) -> tuple[Tensor, Tensor]:
        """Gradient of ``log p(y)`` with respect to the estimates ``x``, ``n``, whose errors have variances r2, q2.

        Raises:
            UsdehazeError: a full covariance, which only linear models take.
        """
        if is_full(r2) or is_full(q2):
            raise UsdehazeError(f"{type(self).__name__} takes variances of pixels, found a full covariance")
        hx, hn = self.derivatives(x, n)
        s = hx * hx * r2 + hn * hn * q2 + self.variance(x, n)
        e = (y - self.predict(x, n)) / s
        return hx * e, hn * e

    def explain(self, y: Tensor, x: Tensor, r2: Spread, n: Tensor, q2: Spread) -> tuple[Tensor, Tensor]:
        """Posterior means of tissue and haze given ``y`` and beforehand ``N(x, r2)``, ``N(n, q2)``."""
        a, b = self.pull(y, x, r2, n, q2)
        return x + apply(r2, a), n + apply(q2, b)


class Linear(Observation):
    """``y = a x + b n + N(0, std^2)`` in every pixel; everything about it is exact.

    Attributes:
        a, b: factors on tissue and haze.
        std: deviation of the noise, model units.
    """

    a: float = 1.0
    b: float = 1.0
    std: float

    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        return self.a * x + self.b * n

    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full_like(x, self.a), torch.full_like(n, self.b)

    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        return torch.full_like(x, self.std**2)

    def pull(self, y: Tensor, x: Tensor, r2: Spread, n: Tensor, q2: Spread) -> tuple[Tensor, Tensor]:
        e = y - self.predict(x, n)
        if is_full(r2) or is_full(q2):
            unit = torch.eye(e[0].numel(), dtype=e.dtype, device=e.device)
            s = self.a**2 * apply(r2, unit) + self.b**2 * apply(q2, unit) + self.std**2 * unit
            e = (e.flatten(1) @ torch.linalg.inv(s)).reshape(e.shape)
        else:
            e = e / (self.a**2 * r2 + self.b**2 * q2 + self.std**2)
        return self.a * e, self.b * e


@dataclass(frozen=True)
class Additive(Linear):
    """``y = x + n + noise``, the paper's model for dehazing (METHOD, ``A`` = identity)."""

    std: float = 0.01


@dataclass(frozen=True)
class GaussianNoise(Linear):
    """``y = x + noise``: all that is not tissue is Gaussian noise. For runs without a haze prior.

    Args:
        std: the paper's ``sigma_y``, model units.
    """

    std: float = 0.15
    b: float = 0.0


class Blend(Linear):
    """``y = (1 - share) x + share n + noise``: two images mixed (the paper's faces and digits have share 0.5)."""

    def __init__(self, share: float = 0.5, std: float = 0.01) -> None:
        self.a, self.b, self.std = 1 - share, share, std


class LinearOperator(Observation):
    """``y = A x + n + noise`` with any linear ``A``: compressed sensing, blur, missing data.

    ``S^-1 = (r2 A A^T + c)^-1`` comes from the eigenvectors of ``A A^T``, found once for every noise level, or,
    without a matrix, from conjugate gradients. Where ``c`` differs between measurements, S is solved as it is.

    Args:
        forward: ``A``, as an ``(m, d)`` matrix, of each channel where d is the pixels of one; or a function of
            ``(B, *tissue shape)`` frames.
        adjoint: ``A^T`` as a function of ``(B, *frame shape)``, where ``A`` is one.
        std: deviation of the noise, model units.
        tolerance: of conjugate gradients, as a share of the right-hand side's norm.
    """

    def __init__(
        self,
        forward: Tensor | Callable[[Tensor], Tensor],
        adjoint: Callable[[Tensor], Tensor] | None = None,
        std: float = 0.01,
        tolerance: float = 1e-6,
    ) -> None:
        if not isinstance(forward, Tensor) and adjoint is None:
            raise UsdehazeError("LinearOperator: a function for A needs a function for its adjoint A^T")
        self.matrix = forward if isinstance(forward, Tensor) else None
        self._forward, self._adjoint, self.std, self.tolerance = forward, adjoint, std, tolerance
        self._eigen: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``A x``; for a matrix ``(B, channels * m)``."""
        if self.matrix is None:
            return self._forward(x)  # type: ignore[operator]
        return (x.reshape(len(x), -1, self.matrix.shape[1]) @ self.matrix.T).flatten(1)

    def transpose(self, v: Tensor, like: Tensor) -> Tensor:
        """``A^T v``, of the shape of the tissue frames ``like``."""
        if self.matrix is None:
            return self._adjoint(v).reshape(like.shape)  # type: ignore[misc]
        return (v.reshape(len(v), -1, self.matrix.shape[0]) @ self.matrix).reshape(like.shape)

    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        return self.forward(x).reshape(n.shape) + n

    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        raise UsdehazeError("LinearOperator is not pointwise: it has an adjoint, no derivatives in each pixel")

    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        return torch.full_like(n, self.std**2)

    def adjoint(self, x: Tensor, n: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return self.transpose(e, x), e

    def pull(self, y: Tensor, x: Tensor, r2: Spread, n: Tensor, q2: Spread) -> tuple[Tensor, Tensor]:
        e = self._solve(y - self.predict(x, n), x, r2, q2)
        return self.transpose(e, x), e

    def _solve(self, e: Tensor, x: Tensor, r2: Spread, q2: Spread) -> Tensor:
        """``S^-1 e`` with ``S = A R A^T + Q + std^2``."""
        full = is_full(r2) or is_full(q2)
        if self.matrix is None:
            if full:
                raise UsdehazeError("LinearOperator takes a full covariance only together with a matrix")
            return conjugate_gradients(
                lambda v: self.forward(r2 * self.transpose(v, x)).reshape(v.shape) + (q2 + self.std**2) * v,
                e,
                self.tolerance,
            )
        if full:
            flat = e.flatten(1)
            unit = torch.eye(flat.shape[1], dtype=e.dtype, device=e.device)
            s = self.matrix @ apply(r2, self.matrix).T + apply(q2, unit) + self.std**2 * unit
            return (flat @ torch.linalg.inv(s)).reshape(e.shape)
        rows = e.reshape(len(e), -1, len(self.matrix))  # (B, channels, m)
        if isinstance(r2, Tensor):
            raise UsdehazeError("LinearOperator with a matrix takes one variance of tissue for all pixels")
        if isinstance(q2, Tensor):
            s = r2 * self.gram + torch.diag_embed((q2 + self.std**2).reshape(-1, len(self.matrix)))
            return torch.linalg.solve(s, rows.permute(1, 2, 0)).permute(2, 0, 1).reshape(e.shape)
        if self._eigen is None:
            self._eigen = torch.linalg.eigh(self.gram)
        values, vectors = self._eigen
        return ((rows @ vectors) / (r2 * values.clamp(min=0) + q2 + self.std**2) @ vectors.T).reshape(e.shape)

    @cached_property
    def gram(self) -> Tensor:
        """``A A^T`` of a matrix."""
        assert self.matrix is not None
        return self.matrix @ self.matrix.T


def conjugate_gradients(operator: Callable[[Tensor], Tensor], b: Tensor, tolerance: float, most: int = 500) -> Tensor:
    """Solves ``operator(v) = b`` for a symmetric positive operator (Hestenes and Stiefel 1952).

    Each frame stops at its own time, so that its solution does not depend on the others in the batch.

    Raises:
        UsdehazeError: not there after ``most`` iterations.
    """
    column = (-1, *[1] * (b.ndim - 1))

    def dot(p: Tensor, q: Tensor) -> Tensor:
        return (p * q).flatten(1).sum(1).reshape(column)

    v, r = torch.zeros_like(b), b
    p, rr = r, dot(r, r)
    goal = tolerance**2 * rr
    for _ in range(most):
        going = rr > goal
        if not bool(going.any()):
            return v
        ap = operator(p)
        length = torch.where(going, rr / dot(p, ap), 0.0)
        v, r = v + length * p, r - length * ap
        before, rr = rr, torch.where(going, dot(r, r), rr)
        p = torch.where(going, r + rr / before * p, p)
    raise UsdehazeError(f"conjugate gradients did not settle in {most} iterations; give the noise a larger std")
