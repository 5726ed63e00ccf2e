"""Closed choices of the public options: the type of each, and its values in the order in which messages name them.

Nothing is imported but `typing`, so that the command line lists them in an instant. What can be added to (guidance
rules, observation models, samplers) has no type here: see `usdehaze.dehazing.registry`.
"""

from __future__ import annotations

from typing import Literal, get_args

Units = Literal["dB", "8-bit", "grey", "envelope", "I/Q"]  # what stored values are
Precision = Literal["fp32", "bf16", "int8"]  # of the networks when dehazing
EngineName = Literal["torch", "onnxruntime", "openvino"]  # what runs the learned posterior
TransferSyntax = Literal["explicit", "rle", "jpeg-ls", "j2k"]  # of DICOM results
PreviewKind = Literal["mp4", "gif", "png"]
PriorKind = Literal["tissue", "haze"]
NetworkKind = Literal[PriorKind, "posterior"]
Scenes = Literal["wide", "hearts", "quiet-hearts"]  # that simulated pairs to train on are drawn from
Layout = Literal["THW", "1THW"]  # axes of frames in MONAI: frames as channels, or one channel whose first axis is time

UNITS: tuple[Units, ...] = get_args(Units)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
TRANSFER_SYNTAXES: tuple[TransferSyntax, ...] = get_args(TransferSyntax)
PREVIEW_KINDS: tuple[PreviewKind, ...] = get_args(PreviewKind)
PRIOR_KINDS: tuple[PriorKind, ...] = get_args(PriorKind)
NETWORK_KINDS: tuple[NetworkKind, ...] = get_args(NetworkKind)
SCENES: tuple[Scenes, ...] = get_args(Scenes)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


def check_flags(**flags: object) -> None:
    """Refuses what is neither True nor False: a text such as "no" would count as true.

    Raises:
        TypeError: names the first one.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, found {value!r}")
