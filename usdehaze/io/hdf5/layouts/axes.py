"""Which axis of a dataset is which: frames T, rows H, columns W, colour channels C.

Axes of length 1 are passed over. Where nobody says (``--axes``), the rules are, for datasets as HDF5 stores them:

- C is 3 or 4 long and its slices are one image: a pixel's first channel tells the others; for integers, the last axis,
  also where fine detail is the same;
- T is another axis shorter than `MIN_SIDE`, else the first, unless slices along another resemble each other far more;
- H is before W, unless the fan then lies on its side (`usdehaze.io.stored_scan`);
- lengths of arrays beside them that are named as axes (`usdehaze.io.axes_beside`) go before the places of H and W, and
  of T where slices along it do not resemble each other far more than those along any other axis.

MATLAB and Octave store their arrays with the axes the other way round, so that the same rules hold from the back:
``W H``, and ``T W H`` for what they show as ``H x W x T``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.axes_beside import BY_LENGTHS, by_lengths
from usdehaze.io.hdf5.layouts.blocks import BlockReader, is_numeric, plain, value_type
from usdehaze.io.hdf5.layouts.packing import unpacked
from usdehaze.io.hdf5.layouts.resemblance import (
    COLOUR_LIKENESS,
    COLOUR_SHARE,
    FAR_MORE,
    SLICES_LIKENESS,
    SLICES_SHARE,
    changes,
    lie_elsewhere,
    likeness,
    shared_levels,
)
from usdehaze.io.limits import MIN_SIDE
from usdehaze.io.picture import Picture, luma
from usdehaze.io.stored_cine import StoredCine
from usdehaze.notes import Guess
from usdehaze.plain_text import called

UNUSUAL = ", the usual order, although slices along another axis are more alike"
MOST_PIXELS = 2048  # along either side of what colours are judged by
MOST_SLENDER = 100  # ratio of the sides of an image: more where each frame has been flattened into a row


def frames_of(
    dataset: h5py.Dataset,
    path: object,
    layout: str,
    axes: str | None = None,
    beside: Mapping[str, tuple[int, ...]] | None = None,
) -> StoredCine:
    """A numeric dataset of frames as `StoredCine`.

    Args:
        dataset: 2 to 4 axes longer than one.
        path: for messages.
        layout: name for ``info``.
        axes: one letter of "THWC" for each axis longer than one, in the dataset's own order; None to guess.
        beside: shapes of what may be axes of the frames, by name or path.

    Raises:
        InputError: values that are not numbers, a shape that no rule fits, or axes that do not fit the dataset.
    """
    name = str(dataset.name).lstrip("/")
    if not is_numeric(dataset.dtype):
        raise InputError(path, f"{called(name)} holds {dataset.dtype}", "numbers")
    dataset, notes = unpacked(dataset, path)
    order, because = (_asked(axes, dataset, path), "") if axes else find_axes(dataset, beside)
    sides = {letter: dataset.shape[axis] for letter, axis in order.items()}
    if not {"H", "W"} <= set(sides) or min(sides["H"], sides["W"]) < MIN_SIDE:
        found, advice = f"{called(name)} has shape {dataset.shape}", on_iq(dataset.shape) or "say with --axes"
        raise InputError(path, found, "frames (T, H, W) or (H, W)", advice)
    if not axes and "T" not in sides and max(sides["H"], sides["W"]) > MOST_SLENDER * min(sides["H"], sides["W"]):
        found = f"{called(name)} has shape {dataset.shape}, which makes images of {sides['H']} x {sides['W']}"
        raise InputError(path, found, "frames (T, H, W) or (H, W)", "give flattened ones their shape, or say --axes")
    reader = BlockReader(dataset, order.get("T"))
    read = reader.__call__
    kept = sorted("HWC", key=lambda letter: order.get(letter, -1))
    turn = [kept.index(letter) for letter in "HWC"]
    channels = sides.get("C", 1)

    def read_channels(index: int) -> np.ndarray:
        values = read(index)
        shape = [1 if letter not in sides else sides[letter] for letter in kept]
        return values.reshape(shape).transpose(turn)

    def read_frame(index: int) -> np.ndarray:
        frame = read_channels(index)
        return frame[:, :, 0] if channels == 1 else luma(frame)

    def picture(index: int) -> Picture:
        frame = read_channels(index)
        return Picture(luma(frame), frame[:, :, :3])

    return StoredCine(
        layout,
        name,
        (sides.get("T", 1), sides["H"], sides["W"]),
        value_type(dataset.dtype),
        read_frame,
        assumptions=notes + (("Colour channels taken together as their luma.",) if channels > 1 else ()),
        guessed_axes="" if axes else "".join(sorted(order, key=lambda letter: order[letter])),
        axes_because=because,
        picture=picture if channels > 1 else None,
    )


def turned_by(dataset: h5py.Dataset) -> str:
    """Who wrote the dataset with its axes the other way round: MATLAB (a v7.3 MAT-file) or Octave; "" for others."""
    if "MATLAB_class" in dataset.attrs:
        return "MATLAB"
    return "Octave" if octave_group(dataset) is not None else ""


def octave_group(dataset: h5py.Dataset) -> h5py.Group | None:
    """The group that Octave keeps the dataset and the ``type`` of its variable in; None for another's dataset."""
    group = getattr(dataset, "parent", None) if dataset.name else None
    return group if group is not None and "OCTAVE_NEW_FORMAT" in group.attrs else None


@np.errstate(over="ignore", invalid="ignore")
def find_axes(dataset: h5py.Dataset, beside: Mapping[str, tuple[int, ...]] | None = None) -> tuple[dict[str, int], str]:
    """Axis of each letter, empty where no rule fits, and why, to go on with after their names."""
    writer = turned_by(dataset)
    order, certain, because = _find_axes(dataset, bool(writer))
    told = by_lengths(order, dataset.shape, beside or {}, "T" * certain)
    if told != order:
        return told, BY_LENGTHS
    return order, because or (f", as {writer} stores them" if writer else "")


def _find_axes(dataset: h5py.Dataset, from_back: bool) -> tuple[dict[str, int], bool, str]:
    """The same, and whether the axis of the frames is certain, without a look at what lies beside them."""
    long = [axis for axis, side in enumerate(dataset.shape) if side > 1]
    if from_back:
        long.reverse()
    sides = [dataset.shape[axis] for axis in long]
    if len(long) == 2:
        return {"H": long[0], "W": long[1]}, True, ""
    if len(long) == 3:
        small = [axis for axis, side in zip(long, sides, strict=True) if side < MIN_SIDE]
        if len(small) > 1:
            return {}, True, ""
        if small:
            return _order({_meaning(dataset, small[0], small[0] == long[2]): small[0]}, long), True, ""
        time, certain, because = _time(dataset, long, from_back)
        return _order({"T": time}, long), certain, because
    if len(long) == 4 and (colours := _may_be_colours(dataset, long)):
        colours.sort(key=lambda axis: (3, 1, 2, 0).index(long.index(axis)))  # the usual place first
        if len(colours) > 1:
            colours.sort(key=lambda axis: -round(shared_levels(_channels(dataset, axis)), 1))
        colour, channels = colours[0], _channels(dataset, colours[0])
        if shared_levels(channels) < SLICES_SHARE and likeness(channels) < SLICES_LIKENESS:
            return {}, True, ""  # slices of a volume, or several views
        rest = [axis for axis in long if axis != colour]
        time, certain, because = _time(dataset, rest, from_back, {colour: 0})
        return _order({"C": colour, "T": time}, long), certain, because
    return {}, True, ""


def _may_be_colours(dataset: h5py.Dataset, axes: list[int]) -> list[int]:
    """Those of some axes that are as long as colours are many; none of I/Q."""
    return [axis for axis in axes if dataset.shape[axis] in (3, 4) and value_type(dataset.dtype).kind != "c"]


def third_axis(stored: StoredCine, path: object, settle: str) -> Guess:
    """What to tell of frames that lie along the third axis by the custom of their format alone.

    Args:
        stored: the frames.
        path: for messages.
        settle: how the file or the user says so.

    Raises:
        InputError: slices along another axis resemble each other far more: these are the frames.
    """
    if lie_elsewhere(stored.read, stored.shape[0]):
        found = "its frames seem to lie along another axis than the third"
        raise InputError(path, found, "columns x rows x frames", f"store them so, or say which they are with {settle}")
    return Guess("The third axis taken as frames.", settle)


def frame_shaped(shape: tuple[int, ...]) -> bool:
    """Whether some rule could make frames of an array of this shape; arrays of no size count by their axes alone."""
    if 0 in shape:
        return sum(side != 1 for side in shape) in (2, 3)
    sides = sorted(side for side in shape if side != 1)
    if len(sides) == 4:
        return any(sides.count(colour) for colour in (3, 4)) and sides[-2] >= MIN_SIDE
    return len(sides) in (2, 3) and sides[-2] >= MIN_SIDE


def on_iq(shape: tuple[int, ...]) -> str:
    """What to do about an array whose last axis may be one of I and Q; "" for others."""
    return "store I/Q as complex numbers" if len(shape) > 3 and shape[-1] == 2 else ""


def _order(special: dict[str, int], long: list[int]) -> dict[str, int]:
    """The axes that are known, and rows and columns in the order of the others."""
    return {**special, **dict(zip("HW", (axis for axis in long if axis not in special.values()), strict=True))}


def _time(
    dataset: h5py.Dataset, axes: list[int], from_back: bool, fixed: dict[int, int] | None = None
) -> tuple[int, bool, str]:
    """Which of three axes frames lie along: the usual one, unless slices along another resemble each other far more;
    whether that is certain, and what is odd about it."""
    small = [axis for axis in axes if dataset.shape[axis] < MIN_SIDE]
    if small:
        return small[0], True, ""
    usual = axes[2] if from_back else axes[0]
    found = dict(zip(axes, changes(dataset, axes, fixed), strict=True))
    best, second, _ = sorted(axes, key=lambda axis: found[axis])
    if found[best] < found[usual] / FAR_MORE:
        return best, found[best] < found[second] / FAR_MORE, ""
    return usual, best == usual and found[best] < found[second] / FAR_MORE, "" if best == usual else UNUSUAL


def _meaning(dataset: h5py.Dataset, axis: int, last: bool) -> str:
    """C or T of an axis shorter than frames are high: colours where it is 3 or 4 long and its slices are one image."""
    if not _may_be_colours(dataset, [axis]):
        return "T"
    channels = _channels(dataset, axis)
    if channels.min() < 0 >= channels.max():  # decibels
        return "T"
    varied = np.ptp(channels, axis=(1, 2)) > 0
    if varied.any() and varied[:3].sum() < 2:  # frames that were never written; no image has one colour alone
        return "T"
    if shared_levels(channels) >= COLOUR_SHARE:
        return "C"
    return "C" if last and dataset.dtype.kind in "ui" and likeness(channels) >= COLOUR_LIKENESS else "T"


def _channels(dataset: h5py.Dataset, axis: int) -> np.ndarray:
    """``(C, H, W)`` what lies along an axis, at the middle of all but the two longest others, of these no more than
    `MOST_PIXELS` each; NaN and -inf as 0."""
    others = sorted((a for a in range(dataset.ndim) if a != axis), key=lambda a: -dataset.shape[a])
    where: list[Any] = [slice(None)] * dataset.ndim
    for other in others[2:]:
        where[other] = dataset.shape[other] // 2
    for other in others[:2]:
        first = max(0, (dataset.shape[other] - MOST_PIXELS) // 2)
        where[other] = slice(first, first + MOST_PIXELS)
    values = np.moveaxis(plain(dataset[tuple(where)]), sum(a not in others[2:] for a in range(axis)), 0)
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _asked(axes: str, dataset: h5py.Dataset, path: object) -> dict[str, int]:
    letters = axes.upper()
    if len(set(letters)) != len(letters) or not {"H", "W"} <= set(letters) <= set("THWC"):
        raise InputError(path, f"axes {axes!r}", "each of H and W once, T and C at most once, such as THW or HWT")
    long = [axis for axis, side in enumerate(dataset.shape) if side > 1]
    chosen = list(range(dataset.ndim)) if len(letters) == dataset.ndim else long
    if len(letters) != len(chosen):
        found = f"axes {axes!r} for {called(str(dataset.name).lstrip('/'))} of shape {dataset.shape}"
        raise InputError(path, found, "a letter for each axis")
    order = dict(zip(letters, chosen, strict=True))
    if "C" in order and dataset.shape[order["C"]] != 1 and not _may_be_colours(dataset, [order["C"]]):
        of = " of I/Q" if value_type(dataset.dtype).kind == "c" else ""
        found = f"axes {axes!r} make {dataset.shape[order['C']]} colour channels{of}"
        raise InputError(path, found, "T for the axis of the frames" if of else "1, 3 or 4")
    return order
