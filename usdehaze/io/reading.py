"""Reading: which frames of a scan to read, and what its file leaves unsaid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypedDict

from usdehaze.choices import UNITS, Units, check_flags
from usdehaze.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ReadingOptions(TypedDict, total=False):
    """The fields of `Reading` as keywords."""

    dataset: str | None
    axes: str | None
    units: Units | None
    dynamic_range_db: float | None
    frames: slice | None
    levels: tuple[float, float] | None
    rectangle: bool
    strict: bool
    force: bool


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which frames of a scan to read, and what its file leaves unsaid; None leaves it to the file, or to a guess.

    Attributes:
        dataset: path of the dataset inside an HDF5 file; needed only where several could be the frames.
        axes: of that dataset, one letter for each of its dimensions longer than one, in stored order: T, H, W, and C
            for colour channels; needed only where the guess of `usdehaze.io.hdf5.layouts.axes` is wrong.
        units: what the stored values are, one of `usdehaze.choices.UNITS`; needed only where the guess of
            `usdehaze.io.units` is wrong.
        dynamic_range_db: dB between full scale and the floor, > 0; by default what the file says, else 60.
        frames: which frames, as a slice without a step; all by default.
        force: go on with a screen that shows no grey-scale B-mode.
        levels: stored values at the floor and at full scale (0 dB), in that order; needed only where the guess of
            `usdehaze.io.levels` is wrong. Of grey levels the first may be the larger: echoes are dark on white. Of
            decibels they also give the dynamic range.
        rectangle: no fan, and no other image, is sought in frames whose file does not say where the image is.
        strict: refuse a scan of which anything has to be guessed (`usdehaze.notes.Guess`).

    Raises:
        TypeError: a dataset or axes that are no text, frames that are no slice of whole numbers, levels that are no two
            numbers, and what is neither True nor False where that is asked for.
        ValueError: units or a dynamic range that there are not, frames with a step. Axes are checked once the dataset
            is known.
    """

    dataset: str | None = None
    axes: str | None = None
    units: Units | None = None
    dynamic_range_db: float | None = None
    frames: slice | None = None
    levels: tuple[float, float] | None = None
    rectangle: bool = False
    strict: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        if self.units is not None and self.units not in UNITS:
            raise ValueError(f"units {self.units!r}; expected one of {', '.join(UNITS)}")
        span = self.dynamic_range_db
        if span is not None and not (math.isfinite(span) and span > 0):
            raise ValueError(f"dynamic range of {span:g} dB; expected a positive number of dB")
        if self.levels is not None and not (all(map(math.isfinite, self.levels)) and self.levels[0] != self.levels[1]):
            raise ValueError("levels {:g}:{:g}; expected two different numbers".format(*self.levels))
        if self.frames is not None and self.frames.step not in (None, 1):
            raise ValueError(f"frames with a step of {self.frames.step}; expected consecutive frames")

    def _check_types(self) -> None:
        for name in ("dataset", "axes"):
            if not isinstance(value := getattr(self, name), str | None):
                raise TypeError(f"{name} must be text, found {type(value).__name__}")
        check_flags(rectangle=self.rectangle, strict=self.strict, force=self.force)
        if not isinstance(self.dynamic_range_db, Real | None):
            raise TypeError(f"dynamic_range_db must be a number, found {self.dynamic_range_db!r}")
        ends = (self.frames.start, self.frames.stop) if isinstance(self.frames, slice) else ()
        if self.frames is not None and not (ends and all(isinstance(end, Integral | None) for end in ends)):
            raise TypeError(f"frames must be a slice of whole numbers such as slice(0, 30), found {self.frames!r}")
        pair = self.levels if isinstance(self.levels, tuple | list) else ()
        if self.levels is not None and (len(pair) != 2 or not all(isinstance(n, Real) for n in pair)):
            raise TypeError(f"levels must be black and white such as (0, 255), found {self.levels!r}")

    @property
    def said(self) -> str:
        """The options that decide what values a frame has, as on the command line; "" for none."""
        levels = None if self.levels is None else "{:g}:{:g}".format(*self.levels)
        span = None if self.dynamic_range_db is None else f"{self.dynamic_range_db:g}"
        options = {
            "dataset": self.dataset,
            "axes": self.axes,
            "units": self.units,
            "dynamic-range": span,
            "levels": levels,
        }
        words = [f"--{name} {value}" for name, value in options.items() if value is not None]
        return " ".join([*words, "--rectangle"] if self.rectangle else words)

    def frame_range(self, n_frames: int, path: object) -> tuple[int, int]:
        """First of the frames to read, and one past the last, of ``n_frames`` in the file.

        Raises:
            InputError: there is none.
        """
        frames = slice(None) if self.frames is None else self.frames
        first, stop, _ = frames.indices(n_frames)
        if first >= stop:
            asked = f"{'' if frames.start is None else frames.start}:{'' if frames.stop is None else frames.stop}"
            raise InputError(path, f"no frame in {asked}", f"frames within 0:{n_frames}")
        return first, stop


def with_options(reading: Reading | None, path: object, **options: Unpack[ReadingOptions]) -> Reading:
    """``reading`` (all defaults where there is none) with some of its fields replaced.

    Args:
        reading, options: see `Reading`.
        path: of the scan, for messages.

    Raises:
        InputError: options that cannot be.
    """
    try:
        return replace(reading or Reading(), **options)
    except ValueError as error:
        raise InputError(path, str(error)) from None
