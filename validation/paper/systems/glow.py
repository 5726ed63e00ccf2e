"""Glow (Kingma and Dhariwal 2018): density of images by a chain of invertible steps, put together from `normflows`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from usdehaze.errors import UsdehazeError

DEPTH, LEVELS = 18, 4  # the paper's
WIDTH = 64  # of the coupling's networks: not printed; Glow's own 512 would take a GPU


class Glow(nn.Module):
    """Density ``p(x)`` of images, with its latent space: ``x = G(z)``, ``z`` standard normal.

    Each level folds 2 x 2 pixels into channels and takes ``depth`` steps of activation norm, 1 x 1 convolution and
    affine coupling; after each but the last, half of the channels goes to the latents as it is.

    Args:
        shape: ``(C, H, W)``; ``(C, 1, m)`` is folded into an image whose sides are as equal as powers of two make them.
        depth, levels: K and L.
        width: channels inside the couplings.

    Raises:
        UsdehazeError: sides that are no multiples of ``2**levels``; `normflows` is missing.
    """

    def __init__(
        self, shape: tuple[int, int, int], depth: int = DEPTH, levels: int = LEVELS, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.shape = shape
        self.folded = folded(shape)
        c, h, w = self.folded
        if h % 2**levels or w % 2**levels:
            raise UsdehazeError(
                f"a flow of {levels} levels needs sides that are multiples of {2**levels}, found {h} x {w}"
            )
        self.flow = _multiscale(self.folded, depth, levels, width)
        self.flow.to(memory_format=torch.channels_last)  # a fifth faster on a CPU
        self.latent_shapes = [(c * 2 ** (levels + 1), h >> levels, w >> levels)]
        self.latent_shapes += [(c * 2**i, h >> i, w >> i) for i in range(levels - 1, 0, -1)]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Latents ``(N, C H W)`` of images ``(N, C, H, W)`` and ``log |det dz/dx|``, ``(N,)``."""
        z, log_det = self.flow.inverse_and_log_det(x.reshape(len(x), *self.folded))
        return torch.cat([part.flatten(1) for part in z], 1), log_det

    def generate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Images of latents, the inverse of `encode`, and ``log |det dx/dz|``."""
        sizes = [math.prod(shape) for shape in self.latent_shapes]
        parts = [p.reshape(len(z), *s) for p, s in zip(z.split(sizes, 1), self.latent_shapes, strict=True)]
        x, log_det = self.flow.forward_and_log_det(parts)
        return x.reshape(len(z), *self.shape), log_det

    def log_prob(self, x: Tensor) -> Tensor:
        """``log p(x)`` in nats, ``(N,)``."""
        z, log_det = self.encode(x)
        return normal_log_prob(z) + log_det


def normal_log_prob(z: Tensor) -> Tensor:
    """Log-density of the standard normal distribution at ``(N, d)``."""
    return -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)


def folded(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape in which a flow sees signals of ``shape``."""
    c, h, w = shape
    if h > 1:
        return shape
    side = 1
    while side * side < w:
        side *= 2
    if w % side:
        raise UsdehazeError(f"a flow of sequences needs a length that {side} divides, found {w}")
    return c, w // side, side


def _multiscale(shape: tuple[int, int, int], depth: int, levels: int, width: int) -> Any:
    """The chain, deepest level first, from latents to image."""
    try:
        import normflows as nf
    except ImportError:
        raise UsdehazeError("normflows is not installed: pip install 'usdehaze[paper]'") from None
    c = shape[0]
    flows, merges = [], []
    for level in range(levels, 0, -1):
        channels = c * 2 ** (level + 1)
        flows.append([*(nf.flows.GlowBlock(channels, width) for _ in range(depth)), nf.flows.Squeeze()])
        if level < levels:
            merges.append(nf.flows.Merge())
    base = [nf.distributions.DiagGaussian(1, trainable=False) for _ in range(levels)]  # not asked for its density
    return nf.MultiscaleFlow(base, flows, merges, class_cond=False)
