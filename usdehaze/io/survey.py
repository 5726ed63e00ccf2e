"""What the stored values of a dataset look like: their range, levels, background and speckle."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import ndimage

from usdehaze.errors import InputError
from usdehaze.io.stored_cine import StoredCine
from usdehaze.plain_text import called

BLOCK = 8  # px, side of the blocks that speckle is judged in
FRAMES = 4  # spread over the dataset, whose speckle and levels are looked at
SAMPLE_PIXELS = 2**22  # of a frame at most
LEVELS = 1024  # of the histogram that the background is sought in
MIN_BACKGROUND = 0.05  # share of the pixels
MIN_BLOCKS = 16
RINGING = 0.25  # of the largest value: how far resampling may shoot below 0
DARK = 0.02  # of the range: too dark to judge speckle by
WAVE_PIXELS = 512  # sides of what waves are sought in
MOST_LAG = 32  # pixels of half a wave
HALF_WAVE = 0.3  # correlation of what is half a wave apart, below 0; 0.7 in RF of half a bandwidth, none in speckle
MIN_OUTSIDE = 0.005  # NaN, of a frame: fewer at its border are no background
SPECKLE_DB = 5.57  # deviation of fully developed speckle after log compression, 100 pi / (sqrt(6) ln(10) 10)


@dataclass(frozen=True)
class Speckle:
    """Statistics of the ``8 x 8`` blocks that hold neither the lowest nor the highest value; NaN where there are few.

    Attributes:
        deviation: standard deviation that two in five of the blocks stay below, in stored units: that of speckle,
            which edges of tissue have not raised. 5.6 dB after log compression, less where speckle was smoothed.
        growth: exponent with which the deviation of blocks grows with their mean: 0 where speckle is additive, as
            after log compression, 1 where it is multiplicative, as in an envelope, compounded or not.
        span: of the natural logarithm of the means, that the growth was found over.
        middle: median value over the largest ones, above the lowest; log compression lifts it.
    """

    deviation: float = math.nan
    growth: float = math.nan
    span: float = math.nan
    middle: float = math.nan


@dataclass(frozen=True)
class Survey:
    """What a pass over all frames of a dataset found, non-finite values left out.

    Attributes:
        low, high: smallest and largest value (magnitudes for complex data).
        whole: every value is a whole number.
        step: between levels, of which all values are multiples away from ``low``; 0 where there is none.
        floor_share: share of values that equal ``low``.
        undershoots: values below 0 are what resampling leaves of an image that had none.
        background: the value that at least a twentieth of all pixels have, or None.
        variation: see `speckle_variation`; of the middle frame, NaN of complex data.
        speckle: see `Speckle`.
        wraps: bytes are smoother without their sign.
        oscillates: it looks like beamformed RF: about zero everywhere, however bright, or about another value from
            wave to wave.
        apart: the lowest or highest value, where it stands for none: background, as far from all other values as these
            are from each other, or further.
        silent: there is -inf, the logarithm of no echo.
        one_part: complex values have no imaginary part, and real ones of both signs.
    """

    low: float
    high: float
    whole: bool
    step: float
    floor_share: float
    undershoots: bool
    background: float | None
    variation: float
    speckle: Speckle = field(default_factory=Speckle)
    oscillates: bool = False
    wraps: bool = False
    apart: float | None = None
    silent: bool = False
    one_part: bool = False


def off_full_speckle(deviation_db: float) -> float:
    """How far a deviation is from that of fully developed speckle in dB, as the logarithm of their ratio."""
    return abs(math.log(deviation_db / SPECKLE_DB)) if deviation_db > 0 else math.inf


@np.errstate(over="ignore", invalid="ignore")  # numbers near the largest that there are
def look_over(stored: StoredCine, path: object) -> Survey:
    """One pass over the dataset, a frame at a time.

    Raises:
        InputError: no finite value.
    """
    low, high, whole, at_floor, at_top, count, step = math.inf, -math.inf, True, 0, 0, 0, 0
    variation, samples, silent, imaginary, negative = math.nan, [], False, 0.0, 0.0
    n_frames, origin = stored.shape[0], 0.0
    chosen = {*np.linspace(0, n_frames - 1, min(n_frames, FRAMES)).astype(int).tolist(), n_frames // 2}
    for index in range(n_frames):
        frame = stored.read(index)
        if stored.dtype.kind == "c":
            parts = frame[np.isfinite(frame)]
            imaginary = max(imaginary, float(np.abs(parts.imag).max(initial=0)))
            negative = max(negative, float(-parts.real.min(initial=0)))
            frame = np.abs(frame)
        values = frame[np.isfinite(frame)]
        silent = silent or (values.size < frame.size and bool(np.isneginf(frame).any()))
        if values.size == 0:
            continue
        lowest, highest = float(values.min()), float(values.max())
        if lowest < low:
            low, at_floor = lowest, 0
        if highest > high:
            high, at_top = highest, 0
        at_floor += int(np.count_nonzero(values == low))
        at_top += int(np.count_nonzero(values == high))
        origin = origin if count else lowest
        count += values.size
        whole = whole and max(abs(low), abs(high)) < 2**53 and bool(np.all(values == np.rint(values)))
        if whole and step != 1:
            step = math.gcd(step, int(np.gcd.reduce((values.astype(np.float64) - origin).astype(np.int64))))
        if index == n_frames // 2 and stored.dtype.kind != "c":
            variation = speckle_variation(frame)
        if index in chosen and stored.dtype.kind != "c":
            samples.append(_cut(frame).astype(np.float64))
    if count == 0:
        raise InputError(path, f"{called(stored.dataset)} holds no finite value")
    floor_share = at_floor / count
    if not samples or low == high:
        one_part, least = imaginary == 0 < negative, float(step) if whole else 0.0
        return Survey(low, high, whole, least, floor_share, False, None, variation, one_part=one_part)
    background = _background(samples, low, high)
    undershoots = _undershoots(samples, low, high, background)
    return Survey(
        low,
        high,
        whole,
        float(step) if whole else _step(samples, low, high),
        floor_share,
        undershoots,
        background,
        math.nan if undershoots else variation,
        _speckle(samples, 0.0 if undershoots else low, high),
        (low < 0 and _oscillates(samples)) or _waves(samples),
        stored.dtype == np.int8 and _wraps(samples),
        _apart(samples, {low: floor_share, high: at_top / count}),
        silent,
    )


def _cut(frame: np.ndarray) -> np.ndarray:
    """The middle rows of a frame that is very large."""
    height, width = frame.shape
    most = max(8 * BLOCK, SAMPLE_PIXELS // width)
    first = max(0, (height - most) // 2)
    return frame[first : first + most]


def speckle_variation(frame: np.ndarray) -> float:
    """Standard deviation over mean of speckle, in the brighter half of the ``8 x 8`` blocks that hold no zeros.

    An envelope's speckle is multiplicative, 0.52 for Rayleigh statistics however bright the tissue. Log compression
    makes it additive, 5.6 dB everywhere: 0.1 to 0.3 of a bright block's grey level at the usual dynamic ranges.

    Args:
        frame: ``(H, W)`` float, >= 0.

    Returns:
        The median over those blocks; NaN where there is none.
    """
    blocks = _blocks(frame, BLOCK)
    blocks = blocks[np.all(np.isfinite(blocks) & (blocks > 0), axis=1)]
    if len(blocks) == 0:
        return math.nan
    mean, deviation = blocks.mean(axis=1), blocks.std(axis=1)
    bright = mean >= np.median(mean)
    return float(np.median(deviation[bright] / mean[bright]))


def _blocks(frame: np.ndarray, side: int) -> np.ndarray:
    """``(N, side * side)`` float64: the frame in square blocks."""
    height, width = (side * (length // side) for length in frame.shape)
    tiles = frame[:height, :width].astype(np.float64).reshape(height // side, side, width // side, side)
    return tiles.transpose(0, 2, 1, 3).reshape(-1, side * side)


def _speckle(samples: list[np.ndarray], low: float, high: float) -> Speckle:
    blocks = np.concatenate([_blocks(frame, BLOCK) for frame in samples])
    blocks = blocks[np.all(np.isfinite(blocks) & (blocks > low) & (blocks < high), axis=1)]
    deviation = blocks.std(axis=1)
    mean, deviation = blocks.mean(axis=1)[deviation > 0] - min(low, 0.0), deviation[deviation > 0]
    if len(mean) < MIN_BLOCKS:
        return Speckle()
    values = np.concatenate([frame[np.isfinite(frame) & (frame > low)] for frame in samples])
    middle = float((np.median(values) - low) / (np.quantile(values, 0.9995) - low))
    usual = float(np.quantile(deviation, 0.4))
    seen = mean > DARK * (high - min(low, 0.0))
    return Speckle(usual, *_growth(np.log(mean[seen]), np.log(deviation[seen])), middle)


def _growth(mean: np.ndarray, deviation: np.ndarray) -> tuple[float, float]:
    """Exponent and span, see `Speckle`, of blocks by the logarithms of their mean and deviation."""
    if len(mean) < MIN_BLOCKS:
        return math.nan, math.nan
    # in tenths of the blocks by their mean: the lower deviations, which no edge of tissue has raised
    parts = np.array_split(np.argsort(mean), 10 if len(mean) >= 40 else 4)
    at, lower = (np.array([np.quantile(v[p], q) for p in parts]) for v, q in ((mean, 0.5), (deviation, 0.3)))
    span = float(np.ptp(at))
    return float(np.polyfit(at, lower, 1)[0]) if span > 1e-6 else math.nan, span


def _numbers(samples: list[np.ndarray]) -> np.ndarray:
    """``(N,)`` all values that are numbers."""
    return np.concatenate([frame[np.isfinite(frame)] for frame in samples])


def _background(samples: list[np.ndarray], low: float, high: float) -> float | None:
    values = _numbers(samples)
    counts, edges = np.histogram(values, LEVELS, (low, high))
    most = int(np.argmax(counts))
    if counts[most] < MIN_BACKGROUND * values.size:
        return None
    inside = values[(values >= edges[most]) & (values <= edges[most + 1])]
    return float(np.median(inside))


def _apart(samples: list[np.ndarray], shares: dict[float, float]) -> float | None:
    """See `Survey.apart`; ``shares`` of all values that are the lowest and the highest, by these."""
    values = _numbers(samples)
    if max(shares) <= 0:  # decibels of nothing may lie as low as they like
        return None
    for (value, share), least in zip(shares.items(), (MIN_OUTSIDE, MIN_BACKGROUND), strict=True):
        others = values[values != value]  # few high ones may be text
        if value != 0 and share >= least and others.size and np.abs(others - value).min() >= np.ptp(others) > 0:
            return value
    return None


def _undershoots(samples: list[np.ndarray], low: float, high: float, background: float | None) -> bool:
    if not 0 < -low <= RINGING * high:
        return False
    if background is not None:
        return abs(background) <= high / 500
    return float(np.mean([(frame < 0).mean() for frame in samples])) < 0.1


def _step(samples: list[np.ndarray], low: float, high: float) -> float:
    """Step of the levels of an 8-bit image that was scaled; 0 where the values lie on no such levels."""
    levels = np.unique(samples[0][np.isfinite(samples[0])])
    for frame in samples[1:]:
        if len(levels) > 256:
            return 0.0
        levels = np.union1d(levels, frame[np.isfinite(frame)])
    if not BLOCK <= len(levels) <= 256:
        return 0.0
    gaps = np.diff(levels)
    rounding = 4e-7 * max(abs(low), abs(high))  # of single precision
    gap = float(gaps[gaps > rounding].min(initial=math.inf))
    n_steps = np.rint((high - low) / gap) if math.isfinite(gap) else math.inf
    if not 1 <= n_steps <= 255:
        return 0.0
    step = (high - low) / float(n_steps)
    places = (levels - low) / step
    return step if np.abs(places - np.rint(places)).max() < 0.02 + rounding / step else 0.0


def _wraps(samples: list[np.ndarray]) -> bool:
    """Whether signed bytes change less from row to row, and across, when they are taken without their sign."""
    signed, unsigned = (
        sum(float(np.abs(np.diff(frame, axis=axis)).sum()) for frame in frames for axis in (0, 1))
        for frames in (samples, [frame % 256 for frame in samples])
    )
    return unsigned < signed


def _oscillates(samples: list[np.ndarray]) -> bool:
    """Whether the means of blocks lie close to zero beside the deviations in them."""
    blocks = np.concatenate([_blocks(frame, 2 * BLOCK) for frame in samples])
    blocks = blocks[np.isfinite(blocks).all(axis=1)]
    deviation = blocks.std(axis=1)
    blocks, deviation = blocks[deviation > 0], deviation[deviation > 0]
    if len(blocks) == 0:
        return False
    return float(np.quantile(np.abs(blocks.mean(axis=1)) / deviation, 0.8)) < 0.5


def _waves(samples: list[np.ndarray]) -> bool:
    """Whether values lie about their median everywhere, and on its other side half a wave on, as speckle does not."""
    middle = float(np.median(_numbers(samples)))
    samples = [frame - middle for frame in samples]
    if not _oscillates(samples):
        return False
    frame = np.nan_to_num(samples[0][:WAVE_PIXELS, :WAVE_PIXELS])
    return any(
        float((frame[lag:] * frame[:-lag]).mean()) < -HALF_WAVE * float((frame**2).mean())
        for frame in (frame, frame.T)
        for lag in range(1, min(MOST_LAG, len(frame) - 1))
    )


def gaps_outside(values: np.ndarray) -> np.ndarray:
    """``(H, W)`` bool: NaN or inf that lie outside the image, in areas that reach the border of the frame."""
    missing = ~np.isfinite(values) & (values != -np.inf)
    border = np.ones_like(missing)
    border[1:-1, 1:-1] = False
    outside: np.ndarray = ndimage.binary_propagation(missing & border, mask=missing)
    return outside if outside.mean() >= MIN_OUTSIDE else np.zeros_like(missing)


def note_on_gaps(frames: list[np.ndarray]) -> tuple[str, ...]:
    """What to tell about NaN or inf outside the image in some ``(H, W)`` frames; nothing where there are none."""
    if all(np.isfinite(frame).all() for frame in frames):
        return ()
    share = float(np.mean([gaps_outside(frame).mean() for frame in frames]))
    note = f"NaN or inf outside the image taken as the floor: {100 * share:.2g} % of the pixels."
    return (note,) if share > 0 else ()
