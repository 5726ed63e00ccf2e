"""The plain layout: one numeric dataset of 2 to 4 axes somewhere in the file, and no word on what it is.

MATLAB's v7.3 files and Octave's are read by the same rules; a cell array of frames counts as one dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

import h5py

from usdehaze.errors import InputError
from usdehaze.io.axes_beside import tells_axis
from usdehaze.io.hdf5.access import attribute, get_dataset, get_group, members, small_text, walk
from usdehaze.io.hdf5.layouts import channel
from usdehaze.io.hdf5.layouts.axes import frame_shaped, frames_of, octave_group, on_iq
from usdehaze.io.hdf5.layouts.blocks import is_numeric
from usdehaze.io.hdf5.layouts.cells import cells_of, in_structures, is_cell
from usdehaze.io.hdf5.layouts.times import MOST_MEMBERS, with_times
from usdehaze.io.limits import MIN_SIDE
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine
from usdehaze.notes import Guess
from usdehaze.plain_text import brief

LAYOUT = "HDF5 dataset"
_GRIDS = {"coordinates", "coords", "grid", "positions"}
_NO_IMAGES = {
    *("label", "labels", "mask", "masks", "seg", "segmentation", "segmentations", "annotation", "annotations"),
    *_GRIDS,
}
_TELLING = _NO_IMAGES | channel.NAMES
_NO_NUMBERS = {"char", "logical", "function_handle"}  # classes of MATLAB that it stores as integers
_DECIBELS = {"db", "decibel", "decibels"}  # as netCDF's attribute units says
_NO_TEXT = "\ufffd"  # in names that are no text
_NO_OCTAVE_NUMBERS = {"bool matrix", "string", "sq_string"}


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The named dataset, or the only one that could be frames.

    Datasets named like label maps ("label", "mask", ...) are passed over where something else is there, those named
    like coordinates ("grid", ...) or channel data always.

    Raises:
        InputError: no candidate, several of them, or channel data alone.
    """
    if reading.dataset is not None:
        return _read(file, path, reading.dataset, reading.axes)
    candidates, others, links = _look_through(file, path)
    shapes = {name: file[name].shape for name in (*candidates, *others)}
    name, notes = choose(candidates, others, path, shapes, links)
    cine = _read(file, path, name, reading.axes)
    return replace(cine, assumptions=(*notes, *cine.assumptions))


def choose(
    candidates: dict[str, str],
    others: dict[str, str],
    path: object,
    shapes: Mapping[str, tuple[int, ...]],
    links: Sequence[str] = (),
) -> tuple[str, tuple[str, ...]]:
    """The only one among arrays that could be frames, by their names, and sentences on those that were passed over.

    Those that hold nothing count where there is nothing else.

    Args:
        candidates: shape and type, in words, of arrays that could be frames.
        others: of arrays that could not.
        path: for messages.
        shapes: of all of them.
        links: names of what was not followed, or could not be.

    Raises:
        InputError: see `recognise`.
    """
    candidates = {name: words for name, words in candidates.items() if 0 not in shapes[name]} or candidates
    beamformed = [name for name in candidates if not channel.is_channel_data(name)]
    if candidates and not beamformed:
        raise channel.refusal(path, channel.layout_of(candidates))
    images = _images(beamformed) or [name for name in beamformed if _last(name) not in _GRIDS]
    if not images:
        found = f"no numeric dataset that could be frames of at least {MIN_SIDE} x {MIN_SIDE}"
        if others:
            found += ", only " + _listed(others, most=4)
        for said, names in (
            ("links are not followed", [name for name in links if _NO_TEXT not in name]),
            ("names that are not UTF-8 are not read, rename them", [name for name in links if _NO_TEXT in name]),
        ):
            found += f"; {said} ({', '.join(names[:3])})" if names else ""
        advice = max((on_iq(shapes[name]) for name in others), default="")
        raise InputError(path, found, "log-compressed frames, an envelope, or I/Q, (T, H, W) or (H, W)", advice)
    if len(images) > 1:
        listed = _listed({name: candidates[name] for name in images})
        raise InputError(
            path, f"{len(images)} datasets could be the frames: {listed}", advice="pick one with --dataset"
        )
    notes = tuple[str, ...]()
    # the words alone that told: other parts of a name may say who the patient is
    passed_over = [name for name in candidates if name != images[0]]
    if told := sorted({part for name in passed_over for part in name.split("/") if part.lower() in _TELLING}):
        notes += (f"Passed over {', '.join(told)}: named like a label map, a grid or channel data, not an image.",)
    larger = (n for n in others if not channel.is_channel_data(n) and prod(shapes[n]) > prod(shapes[images[0]]))
    if not candidates[images[0]].endswith("cell") and any(sum(side > 1 for side in shapes[n]) > 3 for n in larger):
        notes += (Guess("A larger array beside it was passed over, whose axes are not those of frames.", "--dataset"),)
    return images[0], notes


def images_beside(file: h5py.File, path: object, names: Sequence[str]) -> str:
    """Other datasets than these, of their shape, that could be the frames, in words; "" where there is none."""
    candidates, _, _ = _look_through(file, path)
    like_them = (name for name in candidates if name not in names and file[name].shape == file[names[0]].shape)
    others = _images(name for name in like_them if not channel.is_channel_data(name))
    return _listed({name: candidates[name] for name in others})


def _images(names: Iterable[str]) -> list[str]:
    return [name for name in names if _last(name) not in _NO_IMAGES]


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()


def _read(file: h5py.File, path: object, name: str, axes: str | None) -> StoredCine:
    stored = get_dataset(file, name, path)
    if is_cell(stored):
        cine = cells_of(file, stored, path, axes)
    else:
        cine = frames_of(stored, path, LAYOUT, axes, axes_beside(file, stored, path))
    if cine.dtype.kind != "c" and (attribute(stored, "units") or attribute(stored, "unit")).lower() in _DECIBELS:
        cine = replace(cine, units="dB")
    return with_times(cine, file, path)


def axes_beside(file: h5py.File, dataset: h5py.Dataset, path: object) -> dict[str, tuple[int, ...]]:
    """Shapes of what may be the axes of the frames, in their group."""
    shapes, above = dict[str, tuple[int, ...]](), str(dataset.name).strip("/").rpartition("/")[0]
    group = get_group(file, above) if above else file["/"]
    if group is None or len(group) > MOST_MEMBERS:
        return shapes
    for name in filter(tells_axis, members(group, path)):
        with suppress(KeyError, TypeError, ValueError):  # a type that h5py does not know
            node = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            shapes |= {name: node.shape or ()} if isinstance(node, h5py.Dataset) else {}
    return shapes


def _look_through(file: h5py.File, path: object) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Shapes of candidates and of other arrays by name, and names of links. Follows hard links only."""
    datasets, links = walk(file, path)
    candidates: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, node in datasets.items():
        try:
            shape, dtype = node.shape or (), node.dtype
        except (TypeError, ValueError):  # a type that numpy does not know
            continue
        if name.startswith(("#refs#/", "#subsystem#/")) or _is_no_array(node):
            continue
        if (is_numeric(dtype) and frame_shaped(shape)) or is_cell(node):
            candidates[name] = f"{shape} {dtype if is_numeric(dtype) else 'cell'}"
        elif len(shape) > 1 and is_numeric(dtype):
            others[name] = f"{shape} {dtype}"
    # structure arrays beside frames hold what belongs to them, as in a MAT-file of another version
    by_themselves = (n for n in candidates if is_numeric(datasets[n].dtype) or not in_structures(datasets[n]))
    return {name: candidates[name] for name in by_themselves} or candidates, others, links


def _is_no_array(node: h5py.Dataset) -> bool:
    """Whether MATLAB or Octave says that what it stores as integers is text, or true and false."""
    group = octave_group(node)
    return attribute(node, "MATLAB_class") in _NO_NUMBERS or (
        group is not None and small_text(group, "type") in _NO_OCTAVE_NUMBERS
    )


def _listed(datasets: dict[str, str], most: int = 8) -> str:
    shown = [f"{brief(name)} {about}" for name, about in list(datasets.items())[:most]]
    return ", ".join(shown) + (f" and {len(datasets) - most} more" if len(datasets) > most else "")
