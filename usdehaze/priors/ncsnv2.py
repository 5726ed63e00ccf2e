"""NCSNv2: the score network of the paper's experiments, a RefineNet without knowledge of the noise level.

Song and Ermon, "Improved techniques for training score-based generative models" (2020), appendix A: residual blocks
whose first half lowers the resolution once and then widens its view by dilation, RefineNet blocks (Lin et al. 2017)
that bring the features of all stages back to full resolution, ELU, InstanceNorm++ (Song and Ermon 2019).

Other than in their public code, chained pooling takes the mean, not the maximum; widths of 48 and 100 give the paper's
number of parameters; the last layer starts at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class InstanceNormPlus(nn.Module):
    """InstanceNorm++: each channel to mean 0 and variance 1, then how its mean lies among the channels' put back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))  # share of the means that comes back
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor) -> Tensor:
        mean = h.mean((2, 3))
        spread = mean.var(1, keepdim=True, unbiased=False)
        relative = (mean - mean.mean(1, keepdim=True)) * (spread + 1e-5).rsqrt()
        shift = torch.addcmul(self.beta, relative, self.gamma * self.alpha)
        return F.instance_norm(h, weight=self.gamma) + shift[:, :, None, None]


def _conv(inputs: int, outputs: int, dilation: int = 1, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation, bias=bias)


def _half(h: Tensor) -> Tensor:
    """Mean of 2 x 2 pixels; an odd last row or column stands alone."""
    return F.avg_pool2d(h, 2, ceil_mode=True)


class ResidualBlock(nn.Module):
    """Norm, ELU, convolution, twice, and a shortcut.

    Args:
        inputs, outputs: channels.
        dilation: of both convolutions.
        halve: whether the block ends at half the resolution.
        project: whether the shortcut is a convolution; it must be where the shape changes.
    """

    def __init__(self, inputs: int, outputs: int, dilation: int = 1, halve: bool = False, project: bool = False):
        super().__init__()
        self.norm1, self.conv1 = InstanceNormPlus(inputs), _conv(inputs, inputs, dilation)
        self.norm2, self.conv2 = InstanceNormPlus(inputs), _conv(inputs, outputs, dilation)
        self.shortcut: nn.Module | None = None
        if project:
            self.shortcut = nn.Conv2d(inputs, outputs, 1) if halve else _conv(inputs, outputs, dilation)
        self.halve = halve

    def forward(self, h: Tensor) -> Tensor:
        r = self.conv1(F.elu(self.norm1(h)))
        r = self.conv2(F.elu(self.norm2(r)))
        if self.halve:
            r, h = _half(r), _half(h)  # a 1 x 1 shortcut and the mean of pixels may change places
        return r + (h if self.shortcut is None else self.shortcut(h))


class ConvUnits(nn.Module):
    """Residual convolution units: ELU and convolution, twice, added to what came in."""

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_conv(channels, channels, bias=False) for _ in range(2 * units))

    def forward(self, h: Tensor) -> Tensor:
        for first, second in zip(self.convs[::2], self.convs[1::2], strict=True):
            h = h + second(F.elu(first(F.elu(h))))
        return h


class RefineBlock(nn.Module):
    """Adapts features of several stages, adds them up at the highest resolution and pools context into the sum.

    Args:
        inputs: channels of each stage that comes in, highest resolution last.
        outputs: channels.
        units: residual convolution units at the end.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, units: int = 1) -> None:
        super().__init__()
        self.adapt = nn.ModuleList(ConvUnits(c, 2) for c in inputs)
        fused = inputs if len(inputs) > 1 else ()  # nothing to fuse
        self.fuse = nn.ModuleList(_conv(c, outputs) for c in fused)
        self.pool = nn.ModuleList(_conv(outputs, outputs, bias=False) for _ in range(2))
        self.out = ConvUnits(outputs, units)

    def forward(self, *stages: Tensor) -> Tensor:
        h = [adapt(s) for adapt, s in zip(self.adapt, stages, strict=True)]
        if len(h) > 1:
            h = [fuse(s) for fuse, s in zip(self.fuse, h, strict=True)]
        total = h[-1]
        for s in h[:-1]:
            same = s.shape[2:] == total.shape[2:]
            total = total + (s if same else F.interpolate(s, total.shape[2:], mode="bilinear"))
        path = total = F.elu(total)
        for conv in self.pool:  # chained residual pooling
            path = conv(F.avg_pool2d(path, 5, stride=1, padding=2, count_include_pad=False))
            total = total + path
        return self.out(total)


class NCSNv2(nn.Module):
    """The network for frames of about 64 x 64: one halving, then dilations 2 and 4.

    It is told nothing of the noise level: the prior divides its output by it (parametrisation "score").

    Args:
        channels: width at full and at half resolution; as given, there are as many parameters as in the paper.
        inputs, outputs: channels of the frames that go in and come out.

    Attributes:
        multiple: 1, frames may have any size.
    """

    def __init__(self, channels: Sequence[int] = (48, 100), inputs: int = 1, outputs: int = 1) -> None:
        super().__init__()
        self.config: dict[str, Any] = {"channels": list(channels)}
        self.config |= {} if (inputs, outputs) == (1, 1) else {"inputs": inputs, "outputs": outputs}
        self.multiple = 1
        a, b = channels
        self.begin = _conv(inputs, a)
        self.stage1 = nn.Sequential(ResidualBlock(a, a), ResidualBlock(a, a))
        self.stage2 = nn.Sequential(ResidualBlock(a, b, halve=True, project=True), ResidualBlock(b, b))
        self.stage3 = nn.Sequential(ResidualBlock(b, b, dilation=2, project=True), ResidualBlock(b, b, dilation=2))
        self.stage4 = nn.Sequential(ResidualBlock(b, b, dilation=4, project=True), ResidualBlock(b, b, dilation=4))
        self.refine4 = RefineBlock([b], b)
        self.refine3 = RefineBlock([b, b], b)
        self.refine2 = RefineBlock([b, b], a)
        self.refine1 = RefineBlock([a, a], a, units=3)
        self.norm = InstanceNormPlus(a)
        self.end = _conv(a, outputs)
        nn.init.zeros_(self.end.weight)
        nn.init.zeros_(cast(Tensor, self.end.bias))

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        """Args: x ``(B, inputs, depth, angle)`` of any size; c_noise goes unused. Returns ``(B, outputs, ...)``."""
        h1 = self.stage1(self.begin(x))
        h2 = self.stage2(h1)
        h3 = self.stage3(h2)
        h = self.refine4(self.stage4(h3))
        h = self.refine3(h, h3)
        h = self.refine2(h, h2)
        h = self.refine1(h, h1)
        return self.end(F.elu(self.norm(h)))
