"""What Pillow does not look at in a TIFF: signs, white as zero in deep images, images without a directory, and what
ImageJ and OME say of these.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from math import inf, isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from usdehaze.errors import InputError
from usdehaze.io.times_beside import seconds_in

_WIDTH, _LENGTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _DESCRIPTION, _FORMAT = 256, 257, 258, 259, 262, 270, 339  # tags
_SUBFILE, _REDUCED, _MASK = 254, 1, 4  # a tag and two of its bits
_ORIENTATION, _ACROSS, _DOWN = 274, 282, 283  # the last two in pixels per unit
_METRES = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "micron": 1e-6, "microns": 1e-6}  # not inches: of a screen
_MICRO = re.compile(r"\\u00[bB]5|\xc2?\xb5|\u03bc")  # as ImageJ, OME and Pillow have it
_UNSIGNED, _SIGNED = 1, 2  # SampleFormat
_TYPES = {(8, _SIGNED): np.int8, (32, _UNSIGNED): np.uint32}  # which Pillow takes for uint8 and int32
_BYTES = 2**20  # of a description that is looked at
_MOST_CHANNELS = 4  # of one image; more are frames that were called so
_ADVICE = "save it with 8 or 16 bits, black as zero"


def as_declared(values: np.ndarray, tags: ImageFileDirectory_v2, path: object) -> np.ndarray:
    """Values of an image without colour as its tags mean them; Pillow gives most of them as they are stored.

    Raises:
        InputError: white is zero, but they have no other end.
    """
    bits, sample = tags.get(_BITS, (1,))[0], tags.get(_FORMAT, (_UNSIGNED,))[0]
    values = values.view(_TYPES.get((bits, sample), values.dtype))
    if tags.get(_PHOTOMETRIC) != 0 or bits <= 8:  # of up to 8 bits, Pillow turns it round
        return values
    if values.dtype.kind != "u":
        raise InputError(path, f"a TIFF of {values.dtype} with white as zero", "black as zero", _ADVICE)
    return np.iinfo(values.dtype).max - values


def images_declared(tags: ImageFileDirectory_v2, path: Path) -> int:
    """Images that the first one's description says there are, if the file is long enough for them; else 1.

    Beyond 4 GB ImageJ writes a directory for the first alone, and so does tifffile where it is asked to.
    """
    said, pixels = str(tags.get(_DESCRIPTION, ""))[:_BYTES], tags[_WIDTH] * tags[_LENGTH]
    samples, declared = tags.get(_BITS, (1,)), 1
    if said.startswith("ImageJ=") and (found := re.search(r"^images=(\d{1,9})\s*$", said, re.MULTILINE)) is not None:
        declared = int(found[1])
    elif said.startswith('{"shape"'):
        with suppress(ValueError, TypeError, KeyError):
            declared = prod(json.loads(said)["shape"]) // (pixels * len(samples))
    is_long = path.stat().st_size >= declared * pixels * sum(samples) // 8
    return declared if tags.get(_COMPRESSION, 1) == 1 and is_long else 1


def is_of_another(tags: ImageFileDirectory_v2, as_large: bool) -> bool:
    """Whether an image is the mask of another, or a smaller version, a thumbnail say, not ``as_large`` as the first."""
    kind = tags.get(_SUBFILE, 0)
    return isinstance(kind, int) and bool(kind & (_MASK if as_large else _MASK | _REDUCED))


def other_axes(tags: ImageFileDirectory_v2) -> str:
    """Channels, slices and times of the images, as the first one's description tells: "" where these are one axis of
    frames, and no few channels of one image.
    """
    said, samples, counts = str(tags.get(_DESCRIPTION, ""))[:_BYTES], len(tags.get(_BITS, (1,))), dict[str, int]()
    if said.startswith("ImageJ="):
        found = re.findall(r"^(channels|slices|frames)=(\d{1,9})\s*$", said, re.MULTILINE)
        counts = {axis: int(count) for axis, count in found}
    elif (pixels := re.search(r"<(?:\w+:)?Pixels\s[^>]*>", said)) is not None:  # OME
        sizes = {axis: int(n) for axis, n in re.findall(r'\bSize([CZT])="(\d{1,9})"', pixels[0])}
        counts = {"channels": sizes.get("C", 1) // samples, "slices": sizes.get("Z", 1), "frames": sizes.get("T", 1)}
    elif said.startswith('{"shape"'):  # tifffile: slowest axis first
        with suppress(ValueError, TypeError, KeyError):
            long = [int(side) for side in json.loads(said)["shape"] if side != 1]
            counts = {f"along axis {axis}": side for axis, side in enumerate(long[: -2 - (samples > 1)])}
    several = [f"{count} {axis}" for axis, count in counts.items() if count > 1]
    return " x ".join(several) if len(several) > 1 or 1 < counts.get("channels", 1) <= _MOST_CHANNELS else ""


def calibration(tags: ImageFileDirectory_v2) -> tuple[tuple[float, float] | None, float | None]:
    """Row and column pitch in m, and time between images in s, of which the first one's description tells the units;
    None where it does not, as ImageJ and OME do.
    """
    said, fields = str(tags.get(_DESCRIPTION, ""))[:_BYTES], dict[str, str]()
    if said.startswith("ImageJ="):
        fields = dict(re.findall(r"^(\w+)=(.*?)\s*$", said, re.MULTILINE))
        across, down = (1 / (_positive(tags.get(tag)) or inf) for tag in (_ACROSS, _DOWN))
        units, step, unit_of_time = [fields.get("unit", "")] * 2, fields.get("finterval"), fields.get("tunit", "s")
    elif (pixels := re.search(r"<(?:\w+:)?Pixels\s[^>]*>", said)) is not None:
        fields = dict(re.findall(r'\b(\w+)="([^"]*)"', pixels[0]))
        across, down = (_positive(fields.get(f"PhysicalSize{axis}")) for axis in "XY")
        units = [fields.get(f"PhysicalSize{axis}Unit", "um") for axis in "YX"]
        step, unit_of_time = fields.get("TimeIncrement"), fields.get("TimeIncrementUnit", "s")
    else:
        return None, None
    row_m, column_m = (
        _positive(p) * _METRES.get(_MICRO.sub("u", u), 0) for p, u in zip((down, across), units, strict=True)
    )
    if tags.get(_ORIENTATION) in range(5, 9):  # on its side
        row_m, column_m = column_m, row_m
    step_s = _positive(step) * (seconds_in(unit_of_time) or 0)
    return (row_m, column_m) if row_m > 0 and column_m > 0 else None, step_s if step_s > 0 else None


def _positive(number: Any) -> float:
    """A finite number above 0; 0 for anything else."""
    with suppress(TypeError, ValueError):
        value = float(number or 0)
        return value if isfinite(value) and value > 0 else 0.0
    return 0.0


def refuse_unknown(path: Path) -> None:
    """Says how a TIFF that Pillow does not read stores its pixels; does nothing where it is no TIFF.

    Raises:
        InputError: it is one. Whatever a damaged one makes Pillow raise is left as it is.
    """
    with open(path, "rb") as file:
        head = file.read(8)
        if head[:2] not in (b"II", b"MM"):
            return
        tags = ImageFileDirectory_v2(head + (file.read(8) if head[2] == 43 else b""))
        file.seek(tags.next)
        tags.load(file)
    bits, photometric, sample = tags.get(_BITS), tags.get(_PHOTOMETRIC), tags.get(_FORMAT)
    found = f"a TIFF with BitsPerSample {bits}, PhotometricInterpretation {photometric}, SampleFormat {sample}"
    raise InputError(path, f"{found}, which Pillow does not read", advice=f"{_ADVICE}; or it may be damaged")
