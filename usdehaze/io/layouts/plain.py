"""The plain layout: one numeric dataset of 2 to 4 axes somewhere in the file, and no word on what it is."""

from __future__ import annotations

from dataclasses import replace

import h5py

from usdehaze.errors import InputError
from usdehaze.io.h5 import get_dataset
from usdehaze.io.layouts.axes import frame_shaped, frames_of
from usdehaze.io.layouts.found import MIN_SIDE, Found, is_numeric

_NO_IMAGES = {
    *("label", "labels", "mask", "masks", "seg", "segmentation", "segmentations", "annotation", "annotations"),
    *("coordinates", "coords", "grid", "positions"),
}


def recognise(file: h5py.File, path: object, dataset: str | None, axes: str | None) -> Found | None:
    """The named dataset, or the only one that could be frames.

    Datasets named like label maps or coordinates ("label", "mask", "grid", ...) are passed over where something else
    is there.

    Raises:
        InputError: no candidate, or several of them.
    """
    if dataset is not None:
        return frames_of(get_dataset(file, dataset, path), path, "HDF5 dataset", axes)
    candidates, others, links = _look_through(file)
    images = [d for d in candidates if d.rsplit("/", 1)[-1].lower() not in _NO_IMAGES] or list(candidates)
    if not images:
        found = f"no numeric dataset that could be frames of at least {MIN_SIDE} x {MIN_SIDE}"
        if others:
            found += ", only " + _listed(others, most=4)
        if links:
            found += f"; links are not followed ({', '.join(links[:3])})"
        raise InputError(path, found, "log-compressed frames, an envelope, or I/Q, (T, H, W) or (H, W)")
    if len(images) > 1:
        listed = _listed({name: candidates[name] for name in images})
        raise InputError(
            path, f"{len(images)} datasets could be the frames: {listed}", advice="pick one with --dataset"
        )
    found_frames = frames_of(get_dataset(file, images[0], path), path, "HDF5 dataset", axes)
    passed_over = [name for name in candidates if name != images[0]]
    if passed_over:
        note = f"Passed over {', '.join(passed_over)}: named like a label map or a grid, not an image."
        found_frames = replace(found_frames, assumptions=(note,))
    return found_frames


def _look_through(file: h5py.File) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Shapes of candidates and of other arrays by name, and names of links. Follows hard links only."""
    candidates: dict[str, str] = {}
    others: dict[str, str] = {}
    links: list[str] = []

    def visit(name: str, node: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(node, h5py.Dataset):
            return
        try:
            shape, dtype = node.shape or (), node.dtype
        except (TypeError, ValueError):  # a type that numpy does not know
            return
        frame_like = is_numeric(dtype) and frame_shaped(shape)
        if frame_like:
            candidates[name] = f"{shape} {dtype}"
        elif len(shape) > 1 and is_numeric(dtype):
            others[name] = f"{shape} {dtype}"

    def visit_link(name: str, link: object) -> None:
        if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
            links.append(name)

    file.visititems(visit)
    file.visititems_links(visit_link)
    return dict(sorted(candidates.items())), dict(sorted(others.items())), sorted(links)


def _listed(datasets: dict[str, str], most: int = 8) -> str:
    shown = [f"{name} {about}" for name, about in list(datasets.items())[:most]]
    return ", ".join(shown) + (f" and {len(datasets) - most} more" if len(datasets) > most else "")
