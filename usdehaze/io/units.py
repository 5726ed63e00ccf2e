"""What stored values mean, and how they become dB.

The rules, for files that do not say what they hold. Every guess is kept as a `usdehaze.notes.Guess` in the cine's
source; ``units=`` and ``levels=`` of `usdehaze.open_cine` decide instead.

===================================  ==================================================================================
stored values                        taken as
===================================  ==================================================================================
complex                              I/Q; its envelope, 0 dB at the largest value of the dataset
uint8                                "8-bit" log-compressed grey levels over the dynamic range, 255 = 0 dB
all <= 0 (to 0.2 %), over 15 or more dB, over more than 120 by their speckle alone; ``-inf`` is the floor
-inf beside 20 or more               dB
>= 0, multiplicative speckle         envelope, 0 dB at the largest value of the dataset
20 to 120 from background to top     dB above a floor, unless its speckle fits grey levels over 60 dB better
anything else with a background      "grey" levels from black to full scale, see `usdehaze.io.levels`
both signs, or waves, about a value  refused: RF lines; complex without an imaginary part, too
===================================  ==================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from usdehaze import decibels
from usdehaze.errors import InputError
from usdehaze.io.levels import ABOVE_0_DB, DEFAULT_DYNAMIC_RANGE_DB, Levels, decibel_levels, grey_levels
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.survey import SPECKLE_DB, Survey, look_over, off_full_speckle
from usdehaze.notes import Guess
from usdehaze.plain_text import called

LARGEST_GREY = 65535
ENVELOPE_VARIATION = 0.4  # between log-compressed images (0.06 to 0.31 in real ones) and envelopes (about 0.5)
ENVELOPE_GROWTH = 0.8  # between log-compressed images (0.05 to 0.75 in real ones) and envelopes (0.8 to 1.4)
ENVELOPE_SPAN = 1.0
ADDITIVE_GROWTH = 0.4
ENVELOPE_MIDDLE = 0.15  # between envelopes (0.003 to 0.12) and most log-compressed images (0.17 to 0.63)
MIN_DB, MAX_DB = 20.0, 120.0  # dynamic ranges that there are
SILENCE_DB = -100.0  # decibels of nothing, where a file does not clip them
_NO_VALUE = "NaN where there is no value"


@dataclass(frozen=True)
class DecibelScale:
    """How stored values become dB.

    Attributes:
        units: one of `usdehaze.choices.UNITS`.
        dynamic_range_db: dB between full scale and the floor.
        full_scale: stored value at 0 dB.
        black: stored value at the floor; of grey levels.
        unsigned: stored bytes have no sign, although their type has.
        missing: stored value that stands for none and becomes the floor, or None.
        assumptions: what was assumed to get here, one sentence each.
    """

    units: str
    dynamic_range_db: float
    full_scale: float
    black: float = 0.0
    unsigned: bool = False
    missing: float | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def inverted(self) -> DecibelScale:
        """The scale of grey levels whose black and white have been exchanged."""
        return replace(self, black=self.full_scale, full_scale=self.black)

    @property
    def dark_on_white(self) -> bool:
        """Whether the largest grey levels are no echo."""
        return self.units in ("8-bit", "grey") and self.black > self.full_scale

    @property
    def floor(self) -> float:
        """A stored value that becomes the floor."""
        return -math.inf if self.units == "dB" else self.black

    def to_db(self, stored: np.ndarray) -> np.ndarray:
        """``(H, W)`` stored values to float32 dB in ``[-dynamic_range_db, 0]``."""
        if self.missing is not None:
            stored = np.where(stored == self.missing, self.floor, stored)
        if self.unsigned:
            stored = stored.astype(np.uint8)
        if self.units == "dB":
            return np.clip(stored - self.full_scale, -self.dynamic_range_db, 0).astype(np.float32)
        if self.units in ("8-bit", "grey"):
            levels = stored if self.black == 0 else stored.astype(np.float64) - self.black
            return decibels.grey_to_db(levels, self.dynamic_range_db, self.full_scale - self.black)
        amplitude = decibels.envelope(stored) if self.units == "I/Q" else stored
        return decibels.log_compress(amplitude, self.dynamic_range_db, self.full_scale)


def find_decibel_scale(stored: StoredCine, reading: Reading, path: object) -> DecibelScale:
    """Decides what the stored values are.

    Args:
        stored: the frames; unless the file says what they are, all of them are looked at, so that the answer (the
            envelope's full scale above all) does not depend on which frames are read afterwards.
        reading: the units, levels and dynamic range that the user asks for, if any.
        path: for messages.

    Raises:
        InputError: values that fit no rule, or units that do not fit the values.
    """
    notes = list(stored.assumptions)
    asked, units = reading.units, reading.units or stored.units
    range_db = reading.dynamic_range_db or stored.dynamic_range_db
    known = stored.full_scale if asked is None else None
    levels, survey = Levels(0.0, 0.0 if units == "dB" else known or 255.0), None
    if stored.dtype.kind == "c":
        if units not in (None, "I/Q"):
            raise InputError(path, f"units {units!r}, but the values are complex", "I/Q")
        units = "I/Q"
    elif units == "I/Q":
        raise InputError(path, f"units I/Q, but the values are {stored.dtype}", "complex numbers")
    elif units is None and stored.dtype == np.uint8:
        units = "8-bit"
    if known is None and (units not in ("8-bit", "dB") or (units == "dB" and (range_db is None or asked))):
        survey = look_over(stored, path)
    missing = None if survey is None else survey.apart
    if missing is not None and reading.levels and min(reading.levels) <= missing <= max(reading.levels):
        missing = None  # somebody says that it is a level
    if missing is not None:
        notes.append(Guess(f"Values of {missing:g}, far from all others, taken as missing: the floor.", _NO_VALUE))
        survey = look_over(_without(stored, missing), path)
    if units == "dB" and asked is None and survey is not None and _are_no_decibels(stored.dtype, survey):
        found = f"The file calls values from {survey.low:g} to {survey.high:g} decibels"
        notes.append(f"{found}, as no image has: not believed.")
        units, levels = ("8-bit" if stored.dtype == np.uint8 else None), Levels(0.0, 255.0)
        survey = None if units else survey
    unsigned = units != "dB" and survey is not None and _has_lost_its_sign(stored.dtype, survey)
    if unsigned:
        units, survey = "8-bit", None
        notes.append(Guess("Signed bytes taken as grey levels from 0 to 255.", "a file of unsigned bytes"))
    if units is None and survey is not None:
        units, note = _guess(stored, survey, path)
        notes.append(Guess(note, "--units"))
    if survey is not None and units == "dB":
        levels = decibel_levels(survey, range_db)
    if survey is not None and units == "grey":
        levels = grey_levels(stored.dtype, survey, said=asked is not None)
    if survey is not None and units in ("envelope", "I/Q"):
        levels = _amplitude(survey, path)
    if reading.levels is not None:
        levels = _asked(reading.levels, str(units), path)
        range_db = range_db or (levels.white - levels.black if units == "dB" else None)
    notes += levels.notes
    if range_db is None:
        range_db, note = _dynamic_range(units, survey, levels)
        notes.append(Guess(note, "--dynamic-range"))
    return DecibelScale(str(units), float(range_db), levels.white, levels.black, unsigned, missing, tuple(notes))


def _are_no_decibels(dtype: np.dtype, survey: Survey) -> bool:
    """Whether values cannot be decibels, whatever they are called: grey levels to 1 or 255, say, or hundredths."""
    if survey.low >= 0:
        return not MIN_DB - 5 <= survey.high <= MAX_DB
    return dtype.kind in "iu" and survey.high - survey.low > 2 * MAX_DB  # floats may have any floor


def _without(stored: StoredCine, missing: float) -> StoredCine:
    """Frames in double precision, NaN where a value is missing."""

    def read(index: int) -> np.ndarray:
        values = stored.read(index)
        return np.where(values == missing, np.nan, values.astype(np.float64))

    return replace(stored, read=read)


def _guess(stored: StoredCine, survey: Survey, path: object) -> tuple[str, str]:
    """Units, and the sentence that says so."""
    low, high = survey.low, survey.high
    if high <= ABOVE_0_DB * (high - low) and high - low >= MIN_DB - 5:
        if high - low <= MAX_DB:
            return "dB", "Values <= 0 taken as dB."
        if survey.speckle.deviation < SPECKLE_DB * 1.5:
            return "dB", "Values <= 0 taken as dB, by their speckle."
        raise InputError(
            path,
            f"{called(stored.dataset)} holds values from {low:g} to {high:g}, whose speckle is not in dB",
            f"decibels over at most {MAX_DB:g} dB",
            "say --units dB, or --units grey with --levels BLACK:WHITE",
        )
    if survey.silent:
        if high - low >= MIN_DB and survey.speckle.deviation < SPECKLE_DB * 1.5:
            return "dB", f"Values from {low:g} to {high:g} beside -inf taken as dB."
        raise InputError(
            path,
            f"{called(stored.dataset)} holds -inf beside values from {low:g} to {high:g}, which are no decibels",
            f"decibels over at least {MIN_DB:g} dB",
            "store 20 log10 of the envelope, or NaN where there is no value",
        )
    if survey.oscillates or (low < 0 < high and _is_rf(survey)):
        of_rf = "values of both signs" if low < 0 else "values that swing as RF does"
        raise InputError(
            path,
            f"{called(stored.dataset)} holds {of_rf}, {low:g} to {high:g}",
            "log-compressed frames (dB <= 0), an envelope, or complex I/Q",
            "store I/Q as complex numbers; RF and channel data must be beamformed first; images without their mean "
            "need --units grey, such decibels --units dB",
        )
    where = "Values in [0, 1]" if low >= 0 and high <= 1 else "Values >= 0" if low >= 0 else "Values"
    if not (survey.whole and high <= 255) and (low >= 0 or survey.undershoots):
        speckle = survey.speckle
        judged = high <= 1 or math.isfinite(speckle.deviation)  # by more than a few blocks
        additive = speckle.growth < ADDITIVE_GROWTH and speckle.span >= 0.5
        if survey.variation >= ENVELOPE_VARIATION and judged and not additive:
            return "envelope", f"{where} taken as an envelope before log compression, by their speckle."
        if speckle.growth >= ENVELOPE_GROWTH and speckle.span >= ENVELOPE_SPAN and speckle.middle <= ENVELOPE_MIDDLE:
            return "envelope", f"{where} taken as an envelope before log compression, by their distribution."
    if stored.dtype.kind in "ui" and high > LARGEST_GREY:
        raise InputError(
            path, f"integers up to {high:g}", "grey levels of at most 16 bits", "say what they are with --units"
        )
    if _is_above_a_floor(stored.dtype, survey):
        return "dB", f"Values from {low:g} to {high:g} taken as dB above a floor."
    if survey.whole:
        kind = "Integers" if stored.dtype.kind in "ui" else "Whole numbers"
        return "grey", f"{kind} taken as log-compressed grey levels."
    return "grey", f"{where} taken as log-compressed grey levels, by their speckle."


def _has_lost_its_sign(dtype: np.dtype, survey: Survey) -> bool:
    """Whether levels above 127 were stored as negative bytes: the background is 0, and values reach both ends."""
    return dtype == np.int8 and survey.background == 0 and min(-survey.low, survey.high) > 64 and survey.wraps


def _is_rf(survey: Survey) -> bool:
    """Whether values of both signs are no image: they lie about zero, or nothing shows what they are."""
    if survey.background is not None or survey.whole or survey.undershoots:
        return False
    symmetric = max(abs(survey.low + 1), abs(survey.high - 1)) < 0.05  # [-1, 1], as networks take images
    return not (symmetric or off_full_speckle(survey.speckle.deviation) < 0.15)


def _is_above_a_floor(dtype: np.dtype, survey: Survey) -> bool:
    """Whether levels are decibels from a floor up, told by their range and the deviation of their speckle."""
    span, deviation = survey.high - survey.low, survey.speckle.deviation
    if survey.low < SILENCE_DB and not survey.whole:
        return span <= 1000 and deviation < SPECKLE_DB * 1.5
    if not MIN_DB <= span <= MAX_DB or (abs(survey.low) < 1 and 95 <= span <= 105):  # per cent
        return False
    levels = grey_levels(dtype, survey)
    as_db = off_full_speckle(deviation)
    as_grey = off_full_speckle(deviation * DEFAULT_DYNAMIC_RANGE_DB / (levels.white - levels.black))
    if (survey.whole and levels.white != survey.high) or survey.background is None or survey.undershoots:
        return as_db < 0.1 < as_grey
    return not as_grey < min(0.1, as_db)


def _amplitude(survey: Survey, path: object) -> Levels:
    if survey.one_part:
        found, expected = "I/Q without an imaginary part, and of both signs: RF", "complex I/Q"
        raise InputError(path, found, expected, "store the analytic signal of beamformed lines; beamform channel data")
    if survey.low < 0 and not survey.undershoots:
        raise InputError(path, f"an envelope with negative values (down to {survey.low:g})", "values >= 0")
    if not survey.high > 0:
        raise InputError(path, "every value is 0", "frames with an image in them")
    told = f"0 dB is the largest amplitude in the dataset, {survey.high:g}; --levels 0:WHITE sets another."
    return Levels(0.0, survey.high, (told,))


def _asked(levels: tuple[float, float], units: str, path: object) -> Levels:
    black, white = levels
    if units in ("envelope", "I/Q") and not 0 == black < white:
        raise InputError(path, f"levels {black:g}:{white:g} of an envelope", f"0:{max(levels):g}, 0 being no echo")
    if units == "dB" and black > white:
        raise InputError(path, f"levels {black:g}:{white:g} of decibels", "the floor below 0 dB")
    return Levels(black, white)


def _dynamic_range(units: str | None, survey: Survey | None, levels: Levels) -> tuple[float, str]:
    """Dynamic range in dB, and the sentence that says where it came from."""
    if units == "dB" and survey is not None:
        depth = levels.white - survey.low
        if survey.floor_share >= 0.001 and MIN_DB <= depth <= MAX_DB:
            return depth, f"Dynamic range taken as {depth:g} dB, the floor that the values are clipped at."
    return DEFAULT_DYNAMIC_RANGE_DB, f"Dynamic range assumed to be {DEFAULT_DYNAMIC_RANGE_DB:g} dB."
