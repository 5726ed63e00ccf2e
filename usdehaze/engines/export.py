"""A learned posterior as an ONNX file with a card, once it has been seen to give what PyTorch gives."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

import usdehaze
from usdehaze.engines.graph import INPUTS, OPSET, OUTPUTS, feed, onnx_of
from usdehaze.engines.onnxruntime import session_of
from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LEVELS, LearnedPosterior

TOLERANCE = 1e-4  # largest difference to PyTorch's float32, of frames in [0, 1]: 0.006 dB of 60
SIGMAS = (0.1, 1.0, 100.0)


def exported(posterior: LearnedPosterior) -> tuple[bytes, dict[str, Any]]:
    """The ONNX model, and the card that says what it is, what goes in and comes out, and how far it is from PyTorch.

    The check runs ONNX Runtime on random frames of two sizes, in batches of one and three, at three noise levels.

    Raises:
        UsdehazeError: onnx or onnxruntime is not installed, or the model does not give what PyTorch gives.
    """
    model = onnx_of(posterior)
    differences = check(posterior, model)
    c, keep = posterior.channels, ("name", "grid", "exposure", "training_data", "tissue_data", "haze_data", "not_for")
    frames, twice = ["batch", c, "depth", "angle"], ["batch", 2 * c, "depth", "angle"]
    shapes = {"u": twice, "sigma": ["batch"], "y": frames, "clean": twice}
    gains = 0 if c > 1 else len(LEVELS)
    card = {
        "format": "usdehaze-onnx",
        **{key: posterior.card[key] for key in keep if key in posterior.card},
        "posterior": posterior.name,
        "usdehaze_version": usdehaze.__version__,
        "sha256": hashlib.sha256(model).hexdigest(),
        "opset": OPSET,
        "inputs": {name: shapes[name] for name in INPUTS},
        "outputs": {name: shapes.get(name, ["batch", gains, "depth", "angle"]) for name in OUTPUTS},
        "multiple": posterior.network.multiple,
        "values": "u: tissue and haze in [0, 1] (0 = floor, 1 = 0 dB) plus noise of deviation sigma; y: the frame in "
        "[0, 1], its brightest fiftieth not below exposure; clean: expected tissue and haze; gains: rising quantiles "
        "of min(0, tissue - y)",
        "levels": list(LEVELS)[:gains],
        "difference_to_torch": differences,
        "tolerance": TOLERANCE,
    }
    return model, card


def check(posterior: LearnedPosterior, model: bytes) -> dict[str, float]:
    """Largest differences of an ONNX model's outputs to PyTorch's, by name of the output.

    Raises:
        UsdehazeError: onnxruntime is not installed, or one is above `TOLERANCE` or not a number.
    """
    session = session_of(model)
    generator = torch.Generator().manual_seed(0)
    c, step = posterior.channels, int(posterior.network.multiple)  # type: ignore[arg-type]
    depth, angle = posterior.card["grid"]
    worst = dict.fromkeys(OUTPUTS, 0.0)
    for rows, height, width in ((1, depth, angle), (3, depth + step, max(step, angle - step))):
        y = torch.rand(rows, c, height, width, generator=generator)
        for sigma in SIGMAS:
            u = torch.rand(rows, 2 * c, height, width, generator=generator)
            u = u + sigma * torch.randn(u.shape, generator=generator)
            with torch.no_grad():
                expected = posterior(u, sigma, y)
            for name, got, want in zip(OUTPUTS, session.run(None, feed(u, sigma, y)), expected, strict=True):
                off = float((torch.from_numpy(got) - want).abs().max()) if want.numel() else 0.0
                if not off <= TOLERANCE:  # also for NaN
                    raise UsdehazeError(
                        f"the exported model's {name} is {off:.2g} off PyTorch's at noise level {sigma:g} and "
                        f"{height} x {width}; expected at most {TOLERANCE:g}; use the posterior in PyTorch"
                    )
                worst[name] = max(worst[name], off)
    return worst
