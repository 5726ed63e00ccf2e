"""FastUNet: the small denoiser network behind the shipped priors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Residual block: norm, modulation by the noise level, two 3 x 3 convolutions."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(8, channels, affine=False)
        self.modulation = nn.Linear(embedding, 2 * channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.modulation(embedding)[:, :, None, None].chunk(2, dim=1)
        r = self.conv1(F.silu(self.norm1(h)))
        r = self.conv2(F.silu(torch.addcmul(shift, self.norm2(r), scale + 1)))
        return h + r


class Level(nn.ModuleList):
    """The blocks of one resolution, one after the other."""

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        for block in self:
            h = block(h, embedding)
        return h


class FastUNet(nn.Module):
    """U-Net that works on 2 x 2 patches of a polar frame, so that its finest convolutions run at half resolution.

    Depth and angle enter as two extra input channels in [-1, 1], since what tissue and haze look like depends on
    where they are. The noise level enters through an embedding of ``log(sigma) / 4`` (the EDM convention).

    Args:
        channels: width of each level, finest first; each level halves depth and angle.
        blocks: residual blocks on each level, on the way down and again on the way up; one number, or one a level.
        patch: side of a patch.
        inputs, outputs: channels of the frames that go in and come out.

    Attributes:
        multiple: what depth and angle of a frame must be multiples of, ``patch * 2 ** (levels - 1)``.
    """

    frequencies: Tensor

    def __init__(
        self,
        channels: Sequence[int] = (24, 48, 96, 192),
        blocks: int | Sequence[int] = 1,
        patch: int = 2,
        inputs: int = 1,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        blocks = blocks if isinstance(blocks, int) else list(blocks)  # as a card has it
        self.config: dict[str, Any] = {"channels": list(channels), "blocks": blocks, "patch": patch}
        self.config |= {} if (inputs, outputs) == (1, 1) else {"inputs": inputs, "outputs": outputs}
        each = [blocks] * len(channels) if isinstance(blocks, int) else blocks
        self.patch = patch
        self.multiple = patch * 2 ** (len(channels) - 1)
        embedding = 4 * channels[0]
        self.register_buffer(
            "frequencies",
            torch.exp(torch.linspace(0.0, math.log(30.0), 16, dtype=torch.float32, device="cpu")),
            persistent=False,
        )
        self.embed = nn.Sequential(nn.Linear(32, embedding), nn.SiLU(), nn.Linear(embedding, embedding), nn.SiLU())
        self.stem = nn.Conv2d((inputs + 2) * patch**2, channels[0], 3, padding=1)
        pairs = list(itertools.pairwise(channels))
        sizes = list(zip(channels, each, strict=True))
        self.down = nn.ModuleList(Level(Block(c, embedding) for _ in range(k)) for c, k in sizes)
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(Level(Block(c, embedding) for _ in range(k)) for c, k in sizes)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(nn.Conv2d(2 * a, a, 1) for a, _ in pairs)
        last = nn.Conv2d(channels[0], outputs * patch**2, 3, padding=1)
        self.head = nn.Sequential(nn.GroupNorm(8, channels[0]), nn.SiLU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(cast(Tensor, last.bias))

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        """Args: x ``(B, inputs, depth, angle)``; c_noise ``(B,)``. Returns ``(B, outputs, depth, angle)``."""
        b, _, n_depth, n_angle = x.shape
        phase = c_noise[:, None].to(self.frequencies.dtype) * self.frequencies
        embedding = self.embed(torch.cat([phase.sin(), phase.cos()], dim=1).to(x.dtype))
        depth = torch.linspace(-1, 1, n_depth, device=x.device, dtype=x.dtype)[:, None].expand(b, 1, n_depth, n_angle)
        angle = torch.linspace(-1, 1, n_angle, device=x.device, dtype=x.dtype).expand(b, 1, n_depth, n_angle)
        h = self.stem(F.pixel_unshuffle(torch.cat([x, depth, angle], dim=1), self.patch))
        skips = []
        for level, blocks in enumerate(self.down):
            h = blocks(h, embedding)
            if level < len(self.shrink):
                skips.append(h)
                h = self.shrink[level](h)
        for level in reversed(range(len(self.up))):
            if level < len(self.grow):
                h = self.merge[level](torch.cat([self.grow[level](h), skips.pop()], dim=1))
            h = self.up[level](h, embedding)
        return F.pixel_shuffle(self.head(h), self.patch)
