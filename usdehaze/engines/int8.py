"""int8: the posterior's graph with most of its convolutions in whole numbers, calibrated on simulated frames.

The last level on the way up and the head stay in float32: with them in int8, gCNR of 24 simulated hearts fell by 0.003
to 0.005; as it is, it moved by -0.001 to +0.003, by the frames it is calibrated on, and on eight others by -0.003.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.engines.graph import feed, onnx_of, undisturbed
from usdehaze.engines.onnxruntime import OnnxRuntimeEngine, session_of
from usdehaze.errors import UsdehazeError
from usdehaze.optional import needed
from usdehaze.priors.posterior import LearnedPosterior

SIGMA = 100.0  # the noise level of the presets, the only one that it is calibrated at
IN_FLOAT = ("up.0", "merge.0", "head")  # parts of `FastUNet`
FRAMES, SEED = 12, 11
MOST_OFF = 0.005  # of gains to float32's, mean absolute difference, of frames in [0, 1]: 0.3 dB of 60
Feed = dict[str, np.ndarray]


def int8_engine(posterior: LearnedPosterior) -> OnnxRuntimeEngine:
    """ONNX Runtime with the posterior's forward pass in int8.

    Weights have a scale a channel, activations are unsigned and span what they did on simulated frames.

    Raises:
        UsdehazeError: onnxruntime or onnx is not installed, or the model strays from float32, as it may on a CPU whose
            instructions saturate.
    """
    needed("onnxruntime", "onnx")
    onnx = needed("onnx", "onnx")
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Frames(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
        def __init__(self, given: list[Feed]) -> None:
            self.left = iter(given)

        def get_next(self) -> Feed | None:
            return next(self.left, None)

    exact, frames = onnx_of(posterior), _frames(posterior)
    with tempfile.TemporaryDirectory() as folder:
        prepared, made = Path(folder) / "prepared.onnx", Path(folder) / "int8.onnx"
        quant_pre_process(onnx.load_from_string(exact), prepared, skip_symbolic_shape=True)
        nodes = [node.name for node in onnx.load(prepared).graph.node if node.op_type == "Conv"]
        quantize_static(
            prepared, made, Frames(frames), op_types_to_quantize=["Conv"], per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            nodes_to_exclude=[name for name in nodes if name.split("/")[2] in IN_FLOAT],
        )  # fmt: skip
        engine = OnnxRuntimeEngine(posterior, made.read_bytes())
    _check(session_of(exact), engine.session, frames[:2])
    return engine


def _frames(posterior: LearnedPosterior) -> list[Feed]:
    """What a pass takes of simulated frames, the same wherever it is asked for."""
    from usdehaze.simulate import training_pairs  # nothing else here needs the simulator

    generator = torch.Generator().manual_seed(SEED)
    with undisturbed():  # bits depend on how many cores there are
        pairs = training_pairs(FRAMES, generator, *posterior.card["grid"])
        u = pairs[:, :2] + SIGMA * torch.randn(pairs[:, :2].shape, generator=generator)
    return [feed(u[i : i + 1], SIGMA, pairs[i : i + 1, 2:]) for i in range(FRAMES)]


def _check(exact: Any, session: Any, frames: list[Feed]) -> None:
    gains = [np.stack([each.run(None, frame)[1] for frame in frames]) for each in (exact, session)]
    off = float(np.abs(gains[0] - gains[1]).mean())
    if not off <= MOST_OFF:
        raise UsdehazeError(f"int8 strays from fp32 by {60 * off:.2f} dB of 60 on average on this CPU; use fp32")
