"""What stored values mean, and how they become dB.

The rules, for files that do not say what they hold. Every guess is kept as an assumption in the cine's source, and
``units=`` of `usdehaze.open_cine` overrides it.

==========================  ===========================================================================
stored values               taken as
==========================  ===========================================================================
complex                     I/Q; its envelope, 0 dB at the largest value of the dataset
uint8                       "8-bit" log-compressed grey levels over the dynamic range, 255 = 0 dB
other integers >= 0         "grey": the same, full scale the smallest of 255, 4095, 65535 that holds them
all <= 0                    dB; ``-inf`` is the floor
floats in [0, 1]            "grey" (1 = 0 dB) or envelope, told apart by their speckle, see `speckle_variation`
whole floats in [0, 255]    "grey", 255 = 0 dB
other floats >= 0           envelope, 0 dB at the largest value of the dataset
both signs                  refused: RF lines or dB without a full scale
==========================  ===========================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from usdehaze import decibels
from usdehaze.errors import InputError
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine
from usdehaze.notes import Guess

DEFAULT_DYNAMIC_RANGE_DB = 60.0
FULL_SCALES = (255.0, 4095.0, 65535.0)
ENVELOPE_VARIATION = 0.4  # between log-compressed images (0.06 to 0.31 in real ones) and envelopes (about 0.5)


@dataclass(frozen=True)
class DecibelScale:
    """How stored values become dB.

    Attributes:
        units: one of `usdehaze.choices.UNITS`.
        dynamic_range_db: dB between full scale and the floor.
        full_scale: stored value at 0 dB.
        assumptions: what was assumed to get here, one sentence each.
    """

    units: str
    dynamic_range_db: float
    full_scale: float
    assumptions: tuple[str, ...] = ()

    def to_db(self, stored: np.ndarray) -> np.ndarray:
        """``(H, W)`` stored values to float32 dB in ``[-dynamic_range_db, 0]``."""
        if self.units == "dB":
            return np.clip(stored - self.full_scale, -self.dynamic_range_db, 0).astype(np.float32)
        if self.units in ("8-bit", "grey"):
            return decibels.grey_to_db(stored, self.dynamic_range_db, self.full_scale)
        amplitude = decibels.envelope(stored) if self.units == "I/Q" else stored
        return decibels.log_compress(amplitude, self.dynamic_range_db, self.full_scale)


@dataclass(frozen=True)
class Survey:
    """What a pass over all frames of a dataset found, non-finite values left out.

    Attributes:
        low, high: smallest and largest value (magnitudes for complex data).
        whole: every value is a whole number.
        floor_share: share of values that equal ``low``.
        variation: see `speckle_variation`; of the middle frame.
    """

    low: float
    high: float
    whole: bool
    floor_share: float
    variation: float


def find_decibel_scale(stored: StoredCine, reading: Reading, path: object) -> DecibelScale:
    """Decides what the stored values are.

    Args:
        stored: the frames; unless the file says what they are, all of them are looked at, so that the answer (the
            envelope's full scale above all) does not depend on which frames are read afterwards.
        reading: the units and the dynamic range that the user asks for, if any.
        path: for messages.

    Raises:
        InputError: values that fit no rule, or units that do not fit the values.
    """
    notes = list(stored.assumptions)
    asked, units = reading.units, reading.units or stored.units
    range_db = reading.dynamic_range_db or stored.dynamic_range_db
    known = stored.full_scale if asked is None else None
    full_scale, survey = (0.0 if units == "dB" else known or 255.0), None
    if stored.dtype.kind == "c":
        units = _agree("I/Q", units, path)
    elif units == "I/Q":
        raise InputError(path, f"units I/Q, but the values are {stored.dtype}", "complex numbers")
    elif units is None and stored.dtype == np.uint8:
        units = "8-bit"
    if known is None and (units not in ("8-bit", "dB") or (units == "dB" and (range_db is None or asked))):
        survey = look_over(stored, path)
    if units is None and survey is not None:
        units, note = _guess(stored, survey, path)
        notes.append(Guess(note, "--units"))
    if units == "dB":
        full_scale = 0.0
        if survey is not None and survey.high > 0:
            full_scale = survey.high
            notes.append(f"0 dB is the largest value in the dataset, {full_scale:g} dB.")
    if survey is not None and units == "grey":
        full_scale = _full_scale(stored.dtype, survey)
        if asked is None:
            notes.append(Guess(f"Full scale (0 dB) taken as {full_scale:g}.", "--full-scale"))
    if survey is not None and units in ("envelope", "I/Q"):
        if survey.low < 0:
            raise InputError(path, f"an envelope with negative values (down to {survey.low:g})", "values >= 0")
        if not survey.high > 0:
            raise InputError(path, "every value is 0", "frames with an image in them")
        full_scale = survey.high
        notes.append("0 dB is the largest amplitude in the dataset.")
    if range_db is None:
        range_db, note = _dynamic_range(units, survey)
        notes.append(Guess(note, "--dynamic-range"))
    return DecibelScale(str(units), float(range_db), full_scale, tuple(notes))


def look_over(stored: StoredCine, path: object) -> Survey:
    """One pass over the dataset, a frame at a time."""
    low, high, whole, at_floor, count = math.inf, -math.inf, True, 0, 0
    variation = math.nan
    for index in range(stored.shape[0]):
        frame = stored.read(index)
        frame = np.abs(frame) if stored.dtype.kind == "c" else frame
        values = frame[np.isfinite(frame)]
        if values.size == 0:
            continue
        lowest = float(values.min())
        if lowest < low:
            low, at_floor = lowest, 0
        at_floor += int(np.count_nonzero(values == low))
        count += values.size
        high = max(high, float(values.max()))
        whole = whole and bool(np.all(values == np.rint(values)))
        if index == stored.shape[0] // 2 and stored.dtype.kind == "f":
            variation = speckle_variation(frame)
    if count == 0:
        raise InputError(path, f"dataset {stored.dataset!r} holds no finite value")
    return Survey(low, high, whole, at_floor / count, variation)


def speckle_variation(frame: np.ndarray) -> float:
    """Standard deviation over mean of speckle, in the brighter half of the ``8 x 8`` blocks that hold no zeros.

    An envelope's speckle is multiplicative, 0.52 for Rayleigh statistics however bright the tissue. Log compression
    makes it additive, 5.6 dB everywhere: 0.1 to 0.3 of a bright block's grey level at the usual dynamic ranges.

    Args:
        frame: ``(H, W)`` float, >= 0.

    Returns:
        The median over those blocks; NaN where there is none.
    """
    height, width = (8 * (side // 8) for side in frame.shape)
    tiles = frame[:height, :width].astype(np.float64).reshape(height // 8, 8, width // 8, 8)
    blocks = tiles.transpose(0, 2, 1, 3).reshape(-1, 64)
    blocks = blocks[np.all(np.isfinite(blocks) & (blocks > 0), axis=1)]
    if len(blocks) == 0:
        return math.nan
    mean, deviation = blocks.mean(axis=1), blocks.std(axis=1)
    bright = mean >= np.median(mean)
    return float(np.median(deviation[bright] / mean[bright]))


def _guess(stored: StoredCine, survey: Survey, path: object) -> tuple[str, str]:
    """Units, and the sentence that says so."""
    low, high = survey.low, survey.high
    if low < 0 < high:
        raise InputError(
            path,
            f"dataset {stored.dataset!r} holds values of both signs, {low:g} to {high:g}",
            "log-compressed frames (dB <= 0), an envelope, or complex I/Q",
            "RF and channel data must be beamformed first; in Python, units='dB' takes the largest value as full scale",
        )
    if high <= 0 and low < 0:
        return "dB", "Values <= 0 taken as dB."
    if stored.dtype.kind in "ui":
        if high > FULL_SCALES[-1]:
            raise InputError(path, f"integers up to {high:g}", "grey levels of at most 16 bits")
        return "grey", "Integers taken as log-compressed grey levels."
    if survey.whole and 1 < high <= 255:
        return "grey", "Whole numbers up to 255 taken as log-compressed grey levels."
    if high <= 1 and not survey.variation >= ENVELOPE_VARIATION:  # NaN, no speckle to judge by, counts as an image
        return "grey", "Values in [0, 1] taken as log-compressed grey levels, by their speckle."
    if high <= 1:
        return "envelope", "Values in [0, 1] taken as an envelope before log compression, by their speckle."
    return "envelope", "Values >= 0 taken as an envelope before log compression."


def _agree(is_units: str, asked: str | None, path: object) -> str:
    if asked not in (None, is_units):
        raise InputError(path, f"units {asked!r}, but the values are complex", "I/Q")
    return is_units


def _full_scale(dtype: np.dtype, survey: Survey) -> float:
    if dtype.kind == "f" and survey.high <= 1:
        return 1.0
    return next((scale for scale in FULL_SCALES if survey.high <= scale), survey.high)


def _dynamic_range(units: str | None, survey: Survey | None) -> tuple[float, str]:
    """Dynamic range in dB, and the sentence that says where it came from."""
    if units == "dB" and survey is not None:
        depth = max(survey.high, 0.0) - survey.low
        if survey.floor_share >= 0.001 and 20 <= depth <= 120:
            return depth, f"Dynamic range taken as {depth:g} dB, the floor that the values are clipped at."
    return DEFAULT_DYNAMIC_RANGE_DB, f"Dynamic range assumed to be {DEFAULT_DYNAMIC_RANGE_DB:g} dB."
