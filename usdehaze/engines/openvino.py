"""OpenVINO: the posterior's graph, each pass on one core, compiled for its number of rows."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from usdehaze.choices import EngineName, Precision
from usdehaze.engines.graph import feed, onnx_of
from usdehaze.optional import needed
from usdehaze.priors.posterior import LearnedPosterior

HINTS = {"fp32": "f32", "bf16": "bf16"}


class OpenVinoEngine:
    """See `usdehaze.engines.registry.Engine`; float32, or bfloat16 where the processor has it.

    Args:
        posterior: whose pass it is.
        precision: "fp32" or "bf16".

    Raises:
        UsdehazeError: openvino or onnx is not installed.
    """

    name: EngineName = "openvino"

    def __init__(self, posterior: LearnedPosterior, precision: Precision = "fp32") -> None:
        self.posterior, self.precision = posterior, precision
        self._core = needed("openvino", "openvino").Core()
        self._graph = onnx_of(posterior)
        self._threads = torch.get_num_threads()
        self._lock = Lock()
        self._compiled: dict[tuple[int, ...], _Requests] = {}

    def __call__(self, u: Tensor, sigma: float, y: Tensor, /) -> tuple[Tensor, Tensor]:
        given = feed(u, sigma, y)
        shapes = {name: list(array.shape) for name, array in given.items()}
        key = os.getpid(), *u.shape  # a process that was forked has none of the threads that its parent's model needs
        with self._lock:
            requests = self._compiled.get(key)
            if requests is None:  # shapes that are fixed run in half the time of free ones
                requests = self._compiled[key] = _Requests(self._compile(shapes))
        return requests.run(given)

    def _compile(self, shapes: dict[str, list[int]]) -> Any:
        model = self._core.read_model(io.BytesIO(self._graph))
        model.reshape(shapes)
        options = {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "INFERENCE_NUM_THREADS": self._threads,
            "NUM_STREAMS": self._threads,  # one core each
            "ENABLE_CPU_PINNING": False,
        }
        return self._core.compile_model(model, "CPU", options)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:  # what is compiled cannot be pickled
        return type(self), (self.posterior, self.precision)


class _Requests:
    """Requests of a compiled model, each used by one thread at a time."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._free: SimpleQueue[Any] = SimpleQueue()

    def run(self, given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        try:
            request = self._free.get_nowait()
        except Empty:
            request = self._compiled.create_infer_request()
        found = request.infer(given, share_inputs=True)
        clean, gains = (torch.from_numpy(found[i].copy()) for i in range(2))
        self._free.put(request)
        return clean, gains
