"""Which stored values are black (the floor) and white (0 dB), whatever the image was scaled by and shifted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usdehaze.io.survey import RINGING, Survey, off_full_speckle
from usdehaze.notes import Guess

DEFAULT_DYNAMIC_RANGE_DB = 60.0
BY_LEVELS = "--levels BLACK:WHITE"
FULL_SCALES = (255.0, 4095.0, 65535.0)  # of whole numbers
USUAL = ((0.0, 1.0), (0.0, 100.0), *((0.0, scale) for scale in FULL_SCALES), (-1.0, 1.0), (-0.5, 0.5), (-128.0, 127.0))
UNDER, OVER = 0.08, 0.05  # of the range: how far the largest value may miss a usual full scale
ABOVE_0_DB = 0.002  # of the range: as far as a small number beside the envelope lifts the largest value, in decibels
MIN_USED = 0.25  # share of a full scale of whole numbers that an image reaches


@dataclass(frozen=True)
class Levels:
    """Stored values at the floor and at 0 dB.

    Attributes:
        black, white: the values; of an envelope ``black`` is 0.
        notes: what was assumed, one sentence each.
    """

    black: float
    white: float
    notes: tuple[str, ...] = ()


def grey_levels(dtype: np.dtype, survey: Survey, said: bool = False) -> Levels:
    """Black and white of grey levels.

    Black is the background, or 0 where the levels begin there. White is the last of the 256 levels of an image that
    has as many, else a usual full scale that the largest value (nearly) reaches, a little overshoot of resampling
    included, else the largest value.

    Args:
        dtype: of the stored values.
        survey: of them.
        said: the user has said that they are grey levels: their usual full scales are then no guess.
    """
    if dtype == np.uint8:
        return Levels(0.0, 255.0)
    black = _black(survey)
    white, usual = _white(dtype, survey, black)
    if not white > black:  # of nothing but the background
        return Levels(black, black + 1)
    notes: tuple[str, ...] = ()
    if not (said and usual):
        largest = "" if usual or white != survey.high else ", the largest value"
        notes = (Guess(f"Full scale (0 dB) taken as {white:g}{largest}.", BY_LEVELS),)
        if black != 0:
            notes += (Guess(f"Black (the floor) taken as {black:g}.", BY_LEVELS),)
    return Levels(black, white, notes)


def decibel_levels(survey: Survey, range_db: float | None) -> Levels:
    """The floor and 0 dB of decibels: 0 where they say so, else the largest value, or a round range above the floor.

    Args:
        survey: of the values.
        range_db: dynamic range, where it is known.
    """
    low, high = survey.low, survey.high
    if -15 <= high <= ABOVE_0_DB * (high - low):
        return Levels(low, 0.0)
    white = high
    if survey.floor_share >= 0.001:  # clipped
        span = range_db or 5 * np.ceil((high - low) / 5)
        if 0 <= span - (high - low) <= 2.5:
            white = low + float(span)
    return Levels(low, white, (Guess(_at(white, high), BY_LEVELS),))


def _at(white: float, high: float) -> str:
    if white == high:
        return f"0 dB is the largest value in the dataset, {white:g} dB."
    return f"0 dB taken as {white:g} dB, a round range above the floor; the largest value is {high:g} dB."


def _black(survey: Survey) -> float:
    low, background = survey.low, survey.background
    if low >= 0:
        from_zero = survey.step > 0 and survey.high <= 255 * survey.step and _is_whole(low / survey.step)
        at_low = background is not None and background - low <= 0.002 * (survey.high - low)
        return low if at_low and not from_zero and low > 0.03 * survey.high else 0.0
    return 0.0 if survey.undershoots else low


def _white(dtype: np.dtype, survey: Survey, black: float) -> tuple[float, bool]:
    """The value, and whether it is a usual full scale."""
    high, used = survey.high, survey.high - black
    if survey.whole and survey.step > 0:
        full = next((scale for scale in FULL_SCALES if used <= scale * survey.step), used / survey.step)
        if dtype == np.int8 and black == 0:
            return 127.0, True
        if dtype == np.int16 and black == 0:
            full = min(full, 32767 // survey.step)
        if used == 100:  # per cent
            return high, True
        if used < MIN_USED * full * survey.step or _off(survey, used) < 0.1 < _off(survey, full * survey.step):
            return high, False
        return black + full * survey.step, True
    if survey.step > 0:
        return black + 255 * survey.step, _is_whole(255 * survey.step)
    over = RINGING if survey.low < black else OVER
    for low, scale in USUAL:
        span = scale - low
        if abs(black - low) <= 0.02 * span and -UNDER * span <= high - scale <= over * span:
            return scale, True
    return high, False


def _off(survey: Survey, span: float) -> float:
    """How far the deviation of speckle is from that of fully developed speckle, were the span the usual 60 dB."""
    return off_full_speckle(survey.speckle.deviation * DEFAULT_DYNAMIC_RANGE_DB / span)


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) < 1e-3 * max(1.0, abs(number))
