"""Which axis of a dataset is which: frames T, rows H, columns W, colour channels C.

Axes of length 1 are passed over. Where nobody says (``--axes``), the rules are, for datasets as HDF5 stores them:

- two axes: ``H W``;
- three: ``T H W``; ``H W C`` where the last is 3 or 4 long and the values are integers; ``H W T`` where the last is
  shorter than `MIN_SIDE`, or where slices along it resemble each other far more than slices along the first;
- four: ``T H W C`` or ``T C H W``, where C is 3 or 4 long.

MATLAB stores its arrays with the axes the other way round, so that the same rules hold from the back: ``W H``, and
``T W H`` for what MATLAB shows as ``H x W x T``.
"""

from __future__ import annotations

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.layouts.blocks import BlockReader, is_numeric, value_type
from usdehaze.io.limits import MIN_SIDE
from usdehaze.io.luma import luma
from usdehaze.io.stored_cine import StoredCine


def frames_of(dataset: h5py.Dataset, path: object, layout: str, axes: str | None = None) -> StoredCine:
    """A numeric dataset of frames as `StoredCine`.

    Args:
        dataset: 2 to 4 axes longer than one.
        path: for messages.
        layout: name for ``info``.
        axes: one letter of "THWC" for each axis longer than one, in the dataset's own order; None to guess.

    Raises:
        InputError: values that are not numbers, a shape that no rule fits, or axes that do not fit the dataset.
    """
    name = str(dataset.name).lstrip("/")
    if not is_numeric(dataset.dtype):
        raise InputError(path, f"dataset {name!r} holds {dataset.dtype}", "numbers")
    order, note = _asked(axes, dataset, path) if axes else find_axes(dataset)
    sides = {letter: dataset.shape[axis] for letter, axis in order.items()}
    if not {"H", "W"} <= set(sides) or min(sides["H"], sides["W"]) < MIN_SIDE:
        raise InputError(
            path, f"dataset {name!r} has shape {dataset.shape}", "frames (T, H, W) or (H, W)", "say with --axes"
        )
    reader = BlockReader(dataset, order.get("T"))
    read, notes = reader.__call__, [note] if note else []
    kept = sorted("HWC", key=lambda letter: order.get(letter, -1))
    turn = [kept.index(letter) for letter in "HWC"]
    channels = sides.get("C", 1)

    def read_frame(index: int) -> np.ndarray:
        values = read(index)
        shape = [1 if letter not in sides else sides[letter] for letter in kept]
        frame = values.reshape(shape).transpose(turn)
        return frame[:, :, 0] if channels == 1 else luma(frame)

    if channels > 1:
        notes.append("Colour channels taken together as their luma.")
    shape = (sides.get("T", 1), sides["H"], sides["W"])
    return StoredCine(layout, name, shape, value_type(dataset.dtype), read_frame, assumptions=tuple(notes))


def is_matlab(dataset: h5py.Dataset) -> bool:
    """Whether MATLAB wrote the dataset (a v7.3 MAT-file), axes the other way round."""
    return "MATLAB_class" in dataset.attrs


def find_axes(dataset: h5py.Dataset) -> tuple[dict[str, int], str]:
    """Axis of each letter, and the sentence that says what was assumed; empty where no rule fits."""
    matlab = is_matlab(dataset)
    long = [axis for axis, side in enumerate(dataset.shape) if side > 1]
    if matlab:
        long.reverse()
    sides = [dataset.shape[axis] for axis in long]
    letters = ""
    if len(long) == 2:
        letters = "HW"
    elif len(long) == 3:
        letters = _three(dataset, long, sides, matlab)
    elif len(long) == 4 and 3 in (colour := [i for i, side in enumerate(sides) if side in (3, 4)]):
        letters = "THWC"
    elif len(long) == 4 and 1 in colour:
        letters = "TCHW"
    order = {letter: axis for letter, axis in zip(letters, long, strict=False)}
    plain = {2: "HW", 3: "THW"}.get(len(long))
    if not order or (letters == plain and not matlab):
        return order, ""
    stored = "".join(sorted(order, key=lambda letter: order[letter]))
    return order, f"Axes taken as {stored}{', as MATLAB stores them' if matlab else ''}."


def frame_shaped(shape: tuple[int, ...]) -> bool:
    """Whether some rule could make frames of an array of this shape; arrays of no size count by their axes alone."""
    sides = [side for side in shape if side != 1]
    if 0 in shape:
        return len(shape) in (2, 3)
    if len(sides) == 2:
        return min(sides) >= MIN_SIDE
    if len(sides) == 3:
        return sides[1] >= MIN_SIDE and max(sides[0], sides[2]) >= MIN_SIDE
    if len(sides) != 4:
        return False
    colour = 3 if sides[3] in (3, 4) else 1
    return sides[colour] in (3, 4) and min(side for i, side in enumerate(sides) if i not in (0, colour)) >= MIN_SIDE


def _three(dataset: h5py.Dataset, long: list[int], sides: list[int], matlab: bool) -> str:
    if sides[2] in (3, 4) and dataset.dtype.kind in "ui" and min(sides[:2]) >= MIN_SIDE:
        return "HWC"
    if sides[2] < MIN_SIDE:
        return "HWT"
    if sides[0] < MIN_SIDE:
        return "THW"
    first, last = _change(dataset, long[0], long[2])
    if matlab:
        return "THW" if first < last / 2 else "HWT"
    return "HWT" if last < first / 2 else "THW"


def _change(dataset: h5py.Dataset, one: int, other: int) -> tuple[float, float]:
    """How much slices along one axis, and along another, differ from each other; 1 for unrelated slices.

    Frames of a cine resemble each other from beginning to end, rows and columns do not.
    """
    picks = {axis: np.unique(np.linspace(0, dataset.shape[axis] - 1, 8).astype(int)) for axis in (one, other)}
    reader = BlockReader(dataset, one)
    slices = [np.moveaxis(reader(int(index)), other - (other > one), 0)[picks[other]] for index in picks[one]]
    block = np.abs(np.stack(slices).reshape(len(picks[one]), len(picks[other]), -1)).astype(np.float64)
    block = np.where(np.isfinite(block), block, np.nanmin(np.where(np.isfinite(block), block, np.nan), initial=0.0))
    variance = float(block.var())
    if not variance > 0:
        return 1.0, 1.0
    # the variance of what is left after the mean over the slices is taken off
    left = [float((block - block.mean(axis=axis, keepdims=True)).var()) for axis in (0, 1)]
    return left[0] / variance, left[1] / variance


def _asked(axes: str, dataset: h5py.Dataset, path: object) -> tuple[dict[str, int], str]:
    letters = axes.upper()
    if len(set(letters)) != len(letters) or not {"H", "W"} <= set(letters) <= set("THWC"):
        raise InputError(path, f"axes {axes!r}", "each of H and W once, T and C at most once, such as THW or HWT")
    long = [axis for axis, side in enumerate(dataset.shape) if side > 1]
    chosen = list(range(dataset.ndim)) if len(letters) == dataset.ndim else long
    if len(letters) != len(chosen):
        name = str(dataset.name).lstrip("/")
        raise InputError(path, f"axes {axes!r} for dataset {name!r} of shape {dataset.shape}", "a letter for each axis")
    order = dict(zip(letters, chosen, strict=True))
    if "C" in order and dataset.shape[order["C"]] not in (1, 3, 4):
        raise InputError(path, f"axes {axes!r} make {dataset.shape[order['C']]} colour channels", "1, 3 or 4")
    return order, ""
