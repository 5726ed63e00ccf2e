"""LASSO in a wavelet basis (Tibshirani 1996), for compressed sensing: few coefficients explain the measurement."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usdehaze.errors import UsdehazeError
from validation.paper.systems.base import Budget, Problem

WEIGHT = 0.01  # not printed: the public code's
WAVELET = "db1"  # Haar, as there
TOLERANCE, MOST = 1e-2, 1000  # of the optimality conditions, as a share of the weight; steps


class Lasso:
    """Minimises ``||y - A W^T w - c||**2 + weight ||w||_1`` in each channel over coefficients and a constant ``c``.

    ``W`` is orthonormal (periodic at the edges), as deep as the image allows. The constant takes up the mean of the
    noise, as in the public code.
    """

    name = "lasso"

    def __init__(self, weight: float = WEIGHT) -> None:
        self.weight = weight

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """Nothing to train; see `System`."""
        if find_spec("pywt") is None:
            raise UsdehazeError("PyWavelets is not installed: pip install 'usdehaze[paper]'")
        self.most = MOST if budget.solve_steps is None else budget.solve_steps
        return ""

    def key(self) -> dict[str, Any]:
        """What decides the estimates beside the measurement, for records."""
        return {"weight": self.weight, "wavelet": WAVELET, "tolerance": TOLERANCE, "most": self.most}

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """See `System`.

        Raises:
            UsdehazeError: not compressed sensing.
        """
        matrix = getattr(problem.observation, "matrix", None)
        if matrix is None:
            raise UsdehazeError("LASSO is for compressed sensing: it needs a measurement matrix")
        wavelets = Wavelets(problem.shape[1], problem.shape[2])
        y = centred(problem.y.flatten(0, 1).flatten(1))
        basis = centred(wavelets.forward(matrix.reshape(-1, *problem.shape[1:])).flatten(1).T).T  # A W^T
        w = fista(basis, y, self.weight, self.most)
        x = wavelets.backward(w.reshape(-1, *problem.shape[1:]))
        return x.reshape(len(problem.y), *problem.shape).clamp(0, 1), None


class Wavelets:
    """An orthonormal wavelet transform of images ``(..., H, W)``, its coefficients laid out as an image."""

    def __init__(self, height: int, width: int, wavelet: str = WAVELET) -> None:
        import pywt

        self._pywt: Any = pywt
        deep = math.gcd(height, width)
        level = (deep & -deep).bit_length() - 1  # halved without a rest
        self._options = {"wavelet": wavelet, "mode": "periodization", "axes": (-2, -1)}
        self._level = level
        self._slices = self._lay_out(torch.zeros(height, width))[1]

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self._lay_out(x)[0]).to(x.dtype)

    def backward(self, w: Tensor) -> Tensor:
        leading = [slice(None)] * (w.ndim - 2)
        slices = [
            (*leading, *s) if isinstance(s, tuple) else {k: (*leading, *v) for k, v in s.items()} for s in self._slices
        ]
        parts = self._pywt.array_to_coeffs(w.numpy(), slices, "wavedecn")
        return torch.from_numpy(self._pywt.waverecn(parts, **self._options)).to(w.dtype)

    def _lay_out(self, x: Tensor) -> Any:
        parts = self._pywt.wavedecn(x.numpy(), level=self._level, **self._options)
        return self._pywt.coeffs_to_array(parts, axes=(-2, -1))


def centred(y: Tensor) -> Tensor:
    """Each row less its mean."""
    return y - y.mean(1, keepdim=True)


def fista(basis: Tensor, y: Tensor, weight: float, most: int = MOST, tolerance: float = TOLERANCE) -> Tensor:
    """Minimises ``||y - B w||**2 + weight ||w||_1`` for each row of ``y`` (Beck and Teboulle 2009).

    The momentum of a row starts anew where it points uphill (O'Donoghue and Candès 2015). A row is done where it obeys
    the optimality conditions within ``tolerance * weight``, or after ``most`` steps.

    Args:
        basis: ``(m, d)``.
        y: ``(N, m)``.

    Returns:
        ``(N, d)``.
    """
    found = w = v = y.new_zeros(len(y), basis.shape[1])
    bound = 2 * float(torch.linalg.eigvalsh(basis @ basis.T if len(basis) < basis.shape[1] else basis.T @ basis)[-1])
    if bound == 0:
        return found
    rows, t = torch.arange(len(y)), y.new_ones(len(y), 1)
    for step in range(1, most + 1):
        fresh = v - 2 * (v @ basis.T - y[rows]) @ basis / bound
        fresh = fresh.sign() * (fresh.abs() - weight / bound).clamp(min=0)
        uphill = ((v - fresh) * (fresh - w)).sum(1, keepdim=True) > 0
        t_next = torch.where(uphill, 1.0, (1 + (1 + 4 * t * t).sqrt()) / 2)
        v = torch.where(uphill, fresh, fresh + (t - 1) / t_next * (fresh - w))
        w, t = fresh, t_next
        if step % 20 == 0 or step == most:
            found = found.index_copy(0, rows, w)
            going = optimality(basis, y[rows], w, weight) > tolerance * weight
            rows, w, v, t = rows[going], w[going], v[going], t[going]
            if not len(rows):
                break
    return found


def optimality(basis: Tensor, y: Tensor, w: Tensor, weight: float) -> Tensor:
    """``(N,)``: what a row misses the conditions by at worst.

    The gradient of the misfit is ``-weight sign(w)``, and where ``w`` is 0 no larger than ``weight``.
    """
    gradient = 2 * (w @ basis.T - y) @ basis
    missed = torch.where(w != 0, (gradient + weight * w.sign()).abs(), (gradient.abs() - weight).clamp(min=0))
    return missed.amax(1)
