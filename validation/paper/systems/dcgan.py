"""DCGAN (Radford et al. 2016) for images of 8, 16, 32 or 64 pixels a side."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from usdehaze.errors import UsdehazeError

LATENT = 100
CHANNELS = (512, 256, 128, 64)  # of the generator, from 4 x 4 pixels on; the discriminator has them the other way round


class Generator(nn.Module):
    """Latents ``(N, latent)`` to images ``(N, C, H, H)`` in [0, 1]: 4 x 4 transposed convolutions, each of stride 2.

    Args:
        shape: ``(C, H, W)`` with H = W = ``4 * 2**len(channels)``.
        channels: after each layer but the last.
        latent: length of the latents.
    """

    def __init__(self, shape: tuple[int, int, int], channels: tuple[int, ...] = CHANNELS, latent: int = LATENT) -> None:
        super().__init__()
        _check(shape, channels)
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(zip((latent, *channels), channels, strict=False)):
            stride, padding = (1, 0) if i == 0 else (2, 1)
            layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.ConvTranspose2d(channels[-1], shape[0], 4, 2, 1, bias=False), nn.Tanh())
        self.latent = latent
        self.apply(_begin)

    def forward(self, z: Tensor) -> Tensor:
        return (self.net(z[:, :, None, None]) + 1) / 2


class Discriminator(nn.Module):
    """Images ``(N, C, H, H)`` in [0, 1] to ``(N,)`` logits of being real."""

    def __init__(self, shape: tuple[int, int, int], channels: tuple[int, ...] = CHANNELS) -> None:
        super().__init__()
        _check(shape, channels)
        layers: list[nn.Module] = []
        widths = (shape[0], *reversed(channels))
        for i, (a, b) in enumerate(pairwise(widths)):
            norm = [nn.BatchNorm2d(b)] if i else []
            layers += [nn.Conv2d(a, b, 4, 2, 1, bias=False), *norm, nn.LeakyReLU(0.2)]
        self.net = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, bias=False))
        self.apply(_begin)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(2 * x - 1)[:, 0, 0, 0]


def _check(shape: tuple[int, int, int], channels: tuple[int, ...]) -> None:
    side = 4 * 2 ** len(channels)
    if shape[1:] != (side, side):
        raise UsdehazeError(
            f"a DCGAN of {len(channels)} stages makes images of {side} x {side}, not {shape[1]} x {shape[2]}"
        )


def _begin(layer: nn.Module) -> None:
    """Weights as the DCGAN paper draws them: deviation 0.02."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(layer.weight, 0.0, 0.02)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0, 0.02)
        nn.init.zeros_(cast(torch.Tensor, layer.bias))
