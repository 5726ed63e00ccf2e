"""StoredCine: frames in a file, in the values that they are stored in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from usdehaze.cine import Geometry, Polar
from usdehaze.io.limits import DEEPEST_M, SPACINGS_M
from usdehaze.io.picture import Picture
from usdehaze.notes import Guess

TIMES_UNUSED = "The frame times in the file fall, or are not one a frame: they were not used."
TIMES_WITHOUT_UNIT = "The frame times in the file do not say in which unit they are: they were not used."


@dataclass(frozen=True)
class StoredCine:
    """Frames in a file, none of them read yet, and what the file says about them.

    Attributes:
        layout: name shown by ``info``.
        dataset: path of the dataset inside the file, or what stands for one; "" where there is none.
        shape: ``(T, H, W)``.
        dtype: of the frames that ``read`` returns; complex for I/Q.
        read: frame index -> ``(H, W)`` array of stored values.
        units: "dB", "8-bit", "grey", "envelope", "I/Q", or None where the layout does not say.
        full_scale: stored value at 0 dB, where the file says; of "grey" levels alone.
        dynamic_range_db: from the file, or None.
        geometry: from the file; None where a sector has to be looked for in the image.
        spacing_m, origin_m: ``(row, column)`` pitch and ``(z, x)`` of pixel (0, 0) in m, where the file gives the pixel
            grid but does not say whether there is a fan in it.
        aspect: row pitch over column pitch, where the file tells no more of the grid.
        frame_times_s: ``(T,)`` s from the file, or None.
        assumptions: what had to be assumed to find them, one sentence each.
        guessed_axes: axes as they were taken where they had to be guessed, "THW" for instance, in the order in which
            they are stored: the frames may lie on their side. "" where they are known.
        axes_because: why they were taken so, to go on with after their names.
        picture: of frames that may hold colours, frame index -> what ``read`` gives, and red, green and blue in the
            same unit (bytes of grey levels that are no bytes); None for grey ones.
    """

    layout: str
    dataset: str
    shape: tuple[int, int, int]
    dtype: np.dtype
    read: Callable[[int], np.ndarray]
    units: str | None = None
    full_scale: float | None = None
    dynamic_range_db: float | None = None
    geometry: Geometry | None = None
    spacing_m: tuple[float, float] | None = None
    origin_m: tuple[float, float] = (0.0, 0.0)
    aspect: float = 1.0
    frame_times_s: np.ndarray | None = None
    assumptions: tuple[str, ...] = ()
    guessed_axes: str = ""
    axes_because: str = ""
    picture: Callable[[int], Picture] | None = None

    def picture_of(self, index: int) -> Picture:
        """Frame ``index`` in stored values, with its colours where it may have some."""
        return Picture(self.read(index)) if self.picture is None else self.picture(index)


class ImageFile(Protocol):
    """An opened image file of any format: what `usdehaze.io.formats.FileFormat.open_image` gives."""

    def stored(self) -> StoredCine:
        """Its frames."""

    def close(self) -> None:
        """Closes it."""


def rising(times_s: np.ndarray) -> np.ndarray | None:
    """Times of several frames that follow each other; None where they do not, and so tell nothing."""
    return times_s if len(times_s) > 1 and np.all(np.diff(times_s) > 0) else None


def moved(stored: StoredCine, move: Callable[[np.ndarray], np.ndarray]) -> StoredCine:
    """Frames whose pixels a function moves, of ``(H, W)`` and of ``(H, W, 3)``; their shape is left to the caller."""
    read, picture = stored.read, stored.picture
    if picture is None:
        return replace(stored, read=lambda index: move(read(index)))

    def moved_picture(index: int) -> Picture:
        found = picture(index)
        return Picture(move(found.levels), None if found.rgb is None else move(found.rgb))

    return replace(stored, read=lambda index: move(read(index)), picture=moved_picture)


def turned(stored: StoredCine) -> StoredCine:
    """Frames with rows and columns the other way round."""
    n_frames, height, width = stored.shape
    return replace(
        moved(stored, lambda values: values.swapaxes(0, 1)),
        shape=(n_frames, width, height),
        spacing_m=stored.spacing_m and stored.spacing_m[::-1],
        origin_m=stored.origin_m[::-1],
        aspect=1 / stored.aspect,
    )


def in_metres(stored: StoredCine) -> StoredCine:
    """Frames whose grid is given in mm where m are meant, or m for mm, told by pixels as no probe has them."""
    polar = stored.geometry if isinstance(stored.geometry, Polar) else None
    pitches = stored.spacing_m if polar is None else (float(np.diff(polar.depths_m).mean()),)
    if pitches is None:
        return stored
    largest = max(side * pitch for side, pitch in zip(stored.shape[1:], pitches, strict=False))
    factor = 1e-3 if largest > DEEPEST_M else 1e3 if min(pitches) < SPACINGS_M[0] else 1
    if factor == 1 or not all(SPACINGS_M[0] <= factor * pitch <= SPACINGS_M[1] for pitch in pitches):
        return stored
    before, after = (" x ".join(f"{1e3 * by * pitch:.4g}" for pitch in pitches) for by in (1, factor))
    what, advice = ("Depths" if polar else "Pixels"), "a grid in the unit that it says"
    notes = (*stored.assumptions, Guess(f"{what} {before} mm apart in the file taken as {after} mm.", advice))
    if polar is not None:
        return replace(stored, geometry=Polar(factor * polar.depths_m, polar.angles_rad), assumptions=notes)
    scaled = (tuple(factor * length for length in lengths) for lengths in (pitches, stored.origin_m))
    (row_m, column_m), (z_m, x_m) = scaled
    return replace(stored, spacing_m=(row_m, column_m), origin_m=(z_m, x_m), assumptions=notes)


def from_rf(stored: StoredCine) -> StoredCine:
    """Beamformed RF lines as I/Q: the analytic signal along the depth (rows)."""
    from scipy.signal import hilbert

    dtype = np.result_type(stored.dtype, np.complex64)
    note = "Beamformed RF: the envelope is that of the analytic signal along the depth."
    return replace(
        stored,
        dtype=dtype,
        read=lambda index: hilbert(stored.read(index), axis=0).astype(dtype),
        units="I/Q",
        assumptions=(*stored.assumptions, note),
    )
