"""ONNX Runtime: the posterior's graph, each pass on one core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from usdehaze.choices import EngineName
from usdehaze.engines.graph import feed, onnx_of
from usdehaze.optional import needed
from usdehaze.priors.posterior import LearnedPosterior


class OnnxRuntimeEngine:
    """See `usdehaze.engines.registry.Engine`; on the CPU.

    Args:
        posterior: in float32.
        model: its graph in another precision, see `usdehaze.engines.int8`.

    Raises:
        UsdehazeError: onnxruntime or onnx is not installed.
    """

    name: EngineName = "onnxruntime"

    def __init__(self, posterior: LearnedPosterior, model: bytes | None = None) -> None:
        self.posterior, self.model = posterior, model
        self.session = session_of(model or onnx_of(posterior))

    def __call__(self, u: Tensor, sigma: float, y: Tensor, /) -> tuple[Tensor, Tensor]:
        clean, gains = self.session.run(None, feed(u, sigma, y))
        return torch.from_numpy(clean), torch.from_numpy(gains)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:  # a session cannot be pickled
        return type(self), (self.posterior, self.model)


def session_of(model: bytes) -> Any:
    """An ``InferenceSession`` of a serialised ONNX model that computes where it is called, on one core.

    Raises:
        UsdehazeError: onnxruntime is not installed.
    """
    ort = needed("onnxruntime", "onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
