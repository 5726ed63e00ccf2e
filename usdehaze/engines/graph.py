"""A learned posterior as an ONNX graph: what every engine but PyTorch runs, and what ``usdehaze export`` writes."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from usdehaze.optional import needed
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.quiet import quiet

INPUTS, OUTPUTS = ("u", "sigma", "y"), ("clean", "gains")
OPSET = 18
_ALONE = threading.Lock()


class _Forward(nn.Module):
    """`LearnedPosterior.forward` of a noise level a row; sorts by comparisons, as engines are slow at sorting."""

    def __init__(self, posterior: LearnedPosterior) -> None:
        super().__init__()
        self.posterior = posterior

    def forward(self, u: Tensor, sigma: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        clean, gains = self.posterior.denoise(u, sigma.reshape(-1, 1, 1, 1), y)
        rows = list(gains.split(1, dim=1))
        for low, high in comparisons(len(rows)):
            rows[low], rows[high] = torch.minimum(rows[low], rows[high]), torch.maximum(rows[low], rows[high])
        return clean, torch.cat(rows, dim=1).clamp(-1, 0)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, torch computes on one core, without what its host has set (default type and device, autocast), for one
    thread at a time: its exporter, default type and number of cores are of the whole process."""
    with _ALONE, torch.autocast("cpu", enabled=False), torch.device("cpu"):
        threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
        try:
            torch.set_num_threads(1)
            torch.set_default_dtype(torch.float32)
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)


def feed(u: Tensor, sigma: float, y: Tensor) -> dict[str, np.ndarray]:
    """Arguments of a posterior on the CPU as the graph takes them."""
    level = np.full(len(u), sigma, np.float32)
    return dict(zip(INPUTS, (u.contiguous().numpy(), level, y.contiguous().numpy()), strict=True))


def comparisons(count: int) -> Iterator[tuple[int, int]]:
    """Pairs whose comparison, one after the other, sorts ``count`` values: merge exchange (Knuth, TAOCP 5.2.2, M)."""
    step = top = 1 << max(count - 1, 1).bit_length() - 1
    while step:
        q, r, d = top, 0, step
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & step == r)
            if q == step:
                break
            d, q, r = q - step, q // 2, step
        step //= 2


def onnx_of(posterior: LearnedPosterior) -> bytes:
    """The posterior's forward pass as a serialised ONNX model.

    Inputs ``u (B, 2 C, depth, angle)``, ``sigma (B,)`` and ``y (B, C, depth, angle)``, outputs ``clean`` and ``gains``,
    all float32 and as in `LearnedPosterior.forward`; B, depth and angle are free.

    Raises:
        UsdehazeError: the package onnx is not installed.
    """
    needed("onnx", "onnx")
    depth, angle = posterior.card["grid"]
    device = next(posterior.parameters()).device
    free = {0: "batch", 2: "depth", 3: "angle"}
    buffer = io.BytesIO()
    # this exporter is the older one, and says so: the newer takes the sizes for fixed
    with undisturbed(), quiet(), torch.no_grad():
        u = torch.zeros(2, 2 * posterior.channels, depth, angle, device=device)
        arguments = (u, torch.ones(2, device=device), u[:, : posterior.channels])
        torch.onnx.export(
            _Forward(posterior),
            arguments,
            buffer,  # type: ignore[arg-type]  # this exporter takes a file, too
            dynamo=False,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_axes={"u": free, "sigma": {0: "batch"}, "y": free, "clean": free, "gains": free},
            opset_version=OPSET,
        )
    return buffer.getvalue()
