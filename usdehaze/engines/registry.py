"""What runs the forward pass of a learned posterior: the table of engines, and the rule that chooses among them."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from usdehaze.choices import ENGINES, EngineName, Precision
from usdehaze.engines.int8 import SIGMA, int8_engine
from usdehaze.engines.onnxruntime import OnnxRuntimeEngine
from usdehaze.engines.openvino import OpenVinoEngine
from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LearnedPosterior


class Engine(Protocol):
    """The forward pass of one learned posterior.

    A result is decided by its arguments and the number of rows: never by how many threads call it at once.

    Attributes:
        name: one of `usdehaze.choices.ENGINES`.
    """

    name: EngineName

    def __call__(self, u: Tensor, sigma: float, y: Tensor, /) -> tuple[Tensor, Tensor]:
        """See `LearnedPosterior.forward`; on a CPU on the calling thread's core alone."""


class TorchEngine:
    """PyTorch itself."""

    name: EngineName = "torch"

    def __init__(self, posterior: LearnedPosterior) -> None:
        self.posterior = posterior

    def __call__(self, u: Tensor, sigma: float, y: Tensor, /) -> tuple[Tensor, Tensor]:
        clean, gains = self.posterior(u, sigma, y)
        return clean, gains


def check_engine(name: str) -> None:
    """Raises a `UsdehazeError` for what is neither "auto" nor the name of an engine, installed or not."""
    if name not in ("auto", *ENGINES):
        raise UsdehazeError(f"no engine {name!r}; there are auto, {', '.join(ENGINES)}")


def check_fits(
    name: EngineName | Literal["auto"],
    by_rule: bool,
    device: torch.device,
    precision: Precision,
    levels: tuple[int, float],
) -> None:
    """Raises a `UsdehazeError` where an engine cannot do what is asked of it.

    Args:
        name: of the engine.
        by_rule: a rule guides two priors; some need gradients of the networks, which PyTorch alone has.
        device: where the frames are.
        precision: of the network.
        levels: how many noise levels a sample goes down, and the first.
    """
    if precision == "int8" and name != "onnxruntime":
        raise UsdehazeError(f"precision int8 is of the engine onnxruntime, found {name}; use --engine onnxruntime")
    if name in ("auto", "torch"):
        return
    if by_rule:
        raise UsdehazeError(f"engine {name} runs the learned posterior alone; use --engine torch for a rule")
    if device.type != "cpu":
        raise UsdehazeError(f"engine {name} computes on the CPU, found device {device}; use --engine torch there")
    if precision == "int8" and levels != (1, SIGMA):
        raise UsdehazeError(
            f"precision int8 is calibrated for one step at noise level {SIGMA:g}, found {levels[0]} from {levels[1]:g}"
            "; use --precision fp32"
        )
    if name == "onnxruntime" and precision == "bf16":
        raise UsdehazeError("engine onnxruntime computes in fp32 or int8, found bf16; use --engine openvino or torch")


def make_engine(name: EngineName | Literal["auto"], posterior: LearnedPosterior, precision: Precision) -> Engine:
    """The engine of a name for a posterior; "auto" is torch.

    Raises:
        UsdehazeError: the package that it needs is not installed, or see `int8_engine`.
    """
    if name == "onnxruntime":
        return int8_engine(posterior) if precision == "int8" else OnnxRuntimeEngine(posterior)
    if name == "openvino":
        return OpenVinoEngine(posterior, precision)
    return TorchEngine(posterior)
