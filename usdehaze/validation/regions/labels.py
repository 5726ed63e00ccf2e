"""Regions as label images: PNG, a dataset of an HDF5 file, or NIfTI."""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.io.arrays.nifti import quiet_nibabel
from usdehaze.io.hdf5.access import attribute, get_dataset, open_file, walk
from usdehaze.io.hdf5.layouts.axes import turned_by
from usdehaze.validation.regions.model import Region

Labels = Mapping[str, tuple[str, ...]]  # role -> what stands for it: label values, or names of DICOM segments
CHALLENGE_LABELS: Labels = {"tissue": ("255",), "haze": ("128",)}
MAX_VALUES = 64  # more different values and it is a picture, which holds 255 and 128 by accident
ROLES_KEY = "roles"  # of an attribute, or a text in a PNG
LABEL_COPIES = 2
MAX_EXTENSIONS = 2**20  # bytes between the header of a NIfTI file and its voxels
LABEL_NAMES = ("label", "labels", "roi", "rois", "mask", "segmentation")


def regions_of_labels(
    path: Path, stack: np.ndarray, shape: tuple[int, int, int], labels: Labels | None
) -> list[Region]:
    """Regions of a label image.

    Args:
        path: for errors.
        stack: ``(1, H, W)`` or ``(T, H, W)``.
        shape: ``(T, H, W)`` of the cine.
        labels: values that stand for each role; None for 255 = tissue, 128 = haze.

    Raises:
        InputError: labels of another size or number of frames, or without a value that was asked for.
    """
    n_frames = shape[0]
    if stack.shape[1:] != shape[1:]:
        found = f"labels of {stack.shape[1]} x {stack.shape[2]} pixels (height x width)"
        raise InputError(path, found, f"{shape[1]} x {shape[2]}, the frame of the result")
    if len(stack) not in (1, n_frames):
        expected = f"1, {n_frames} (the frames of the result), or all frames of the source"
        raise InputError(path, f"labels of {len(stack)} frames", expected)
    found_values = np.unique(stack)
    if found_values.size > MAX_VALUES:
        found = f"{found_values.size} different values: an image, not labels"
        raise InputError(path, found, f"a label image of at most {MAX_VALUES} values")
    regions = []
    for role, values in (labels or CHALLENGE_LABELS).items():
        numbers = [_number(path, role, value) for value in values]
        mask = np.isin(stack, numbers)
        if not mask.any():
            there = ", ".join(f"{v:g}" for v in found_values[:8].tolist())
            expected = " or ".join(f"{v:g}" for v in numbers) + f" ({role})"
            advice = "" if labels else "name the values with --labels"
            raise InputError(path, f"labels {there}", expected, advice)
        regions.append(Region(role, role, mask, range(n_frames)))
    return regions


def roles_in(text: object, stack: np.ndarray) -> Labels | None:
    """Of the labels of a text "tissue=255 haze=128 faint=64", as ``usdehaze regions`` writes one, those that are in the
    frames of the cine; None where there are none."""
    pairs = re.findall(r"\b(tissue|haze|faint)=(\d+)", text) if isinstance(text, str) else []
    return {role: (value,) for role, value in pairs if (stack == int(value)).any()} or None


def _number(path: Path, role: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(path, f"--labels says {role}={value}, but a label image holds numbers", "a number") from None


def read_png(path: Path) -> tuple[np.ndarray, Labels | None]:
    """Label image as ``(1, H, W)``: grey values, or where its palette has colours their numbers in it; 0 where no
    opacity hides them. And what it says of its roles, see `roles_in`.

    Raises:
        InputError: damaged.
    """
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG",)) as image:
            spend(path, memory=8 * image.height * image.width)
            coloured = image.mode == "P" and any(len(set(c)) > 1 for _, c in image.convert("RGB").getcolors())
            labels = np.asarray(image if image.mode.startswith("I") or coloured else image.convert("L"))
            if image.has_transparency_data and not image.mode.startswith("I"):
                labels = np.where(np.asarray(image.convert("RGBA"))[..., 3] > 0, labels, 0)
            return labels[None], roles_in(image.info.get(ROLES_KEY), labels)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise InputError(path, "damaged PNG", "a label image, 255 = tissue, 128 = haze") from None


def read_h5_labels(
    path: Path, dataset: str | None, shape: tuple[int, int, int], first_frame: int, source_frames: int
) -> tuple[np.ndarray, Labels | None]:
    """The label dataset of an HDF5 file as ``(N, H, W)``, and what it says of its roles, see `roles_in`.

    MATLAB and Octave store columns before rows.

    Args:
        path: the file.
        dataset: path of the dataset inside it; None for the only one that fits the cine, or the only one of these
            that is called "label", "mask" or the like.
        shape: ``(T, H, W)`` of the cine.
        first_frame: index in the source of the cine's first frame.
        source_frames: that the source has; 0 where that is not known.

    Raises:
        InputError: not readable, no such dataset, none that fits, or several.
    """

    def size_of(dataset: h5py.Dataset) -> tuple[int, ...]:
        size: tuple[int, ...] = dataset.shape
        return (*size[:-2], size[-1], size[-2]) if turned_by(dataset) else size

    def fits(size: tuple[int, ...]) -> bool:
        n = size[0] if len(size) == 3 else 1
        return size[-2:] == shape[1:] and (n in (1, shape[0]) or _of_source(n, shape[0], first_frame, source_frames))

    with open_file(path) as file:
        if dataset is None:
            stored = {name: d for name, d in walk(file, path)[0].items() if d.dtype.kind in "buif" and d.ndim in (2, 3)}
            found: dict[str, tuple[int, ...]] = {name: size_of(d) for name, d in stored.items()}
            fitting = [name for name, size in found.items() if fits(size)]
            named = [name for name in fitting if name.rsplit("/", 1)[-1].lower() in LABEL_NAMES]
            candidates = named or fitting
            if not candidates:
                sizes = ", ".join(f"{name} {size}" for name, size in list(found.items())[:8]) or "none"
                raise InputError(path, f"no label dataset that fits (found {sizes})", f"{shape[1:]} or {shape}")
            if len(candidates) > 1:
                advice = f"name one: --roi {path.name}:{candidates[0]}"
                raise InputError(path, f"several label datasets ({', '.join(candidates[:8])})", "one", advice)
            dataset = candidates[0]
        chosen = get_dataset(file, dataset, path)
        if chosen.dtype.kind not in "buif" or chosen.ndim not in (2, 3) or not fits(size_of(chosen)):
            raise InputError(path, f"{dataset} is {chosen.shape} {chosen.dtype}", f"labels {shape[1:]} or {shape}")
        frames = _needed(chosen.shape[0], shape[0], first_frame, source_frames) if chosen.ndim == 3 else slice(None)
        spend(path, memory=LABEL_COPIES * chosen.dtype.itemsize * math.prod(shape[-chosen.ndim :]))
        stack = np.asarray(chosen[frames])
        stack = stack.swapaxes(-1, -2) if turned_by(chosen) else stack
        roles = roles_in(attribute(chosen, ROLES_KEY), stack)
    return stack[None] if stack.ndim == 2 else stack, roles


def read_nifti(path: Path, shape: tuple[int, int, int], first_frame: int = 0, source_frames: int = 0) -> np.ndarray:
    """Label image of a NIfTI file as ``(N, H, W)``: its first axis is x (columns), its second y (rows), then frames.

    Raises:
        InputError: nibabel is not installed, the file is damaged, or its size does not fit ``shape`` ``(T, H, W)``.
    """
    try:
        import nibabel
        from nibabel.filebasedimages import ImageFileError
        from nibabel.spatialimages import HeaderDataError
    except ImportError:
        raise InputError(path, "NIfTI needs nibabel", advice='pip install "usdehaze[nifti]"') from None
    try:
        _check_nifti_start(path)
        with quiet_nibabel():
            image: Any = nibabel.load(path)
        size = tuple(int(n) for n in image.shape)
        long_axes = [n for n in size[2:] if n != 1]
        if size[:2] != (shape[2], shape[1]) or len(long_axes) > 1:
            expected = f"({shape[2]}, {shape[1]}) or ({shape[2]}, {shape[1]}, frames): columns first"
            raise InputError(path, f"NIfTI of shape {size}", expected)
        if image.get_data_dtype().kind not in "buif" or image.get_data_dtype().itemsize > 8:
            raise InputError(path, f"NIfTI of {image.get_data_dtype()}", "whole or real numbers")
        spend(path, memory=LABEL_COPIES * 8 * math.prod(shape[1:]) * min(math.prod(long_axes), first_frame + shape[0]))
        part = [slice(None)] * len(size)
        if long_axes:
            part[size.index(long_axes[0], 2)] = _needed(long_axes[0], shape[0], first_frame, source_frames)
        data = np.asanyarray(image.dataobj[tuple(part)]).reshape(*size[:2], -1)
    except (ImageFileError, HeaderDataError, OSError, EOFError, ValueError, zlib.error):
        raise InputError(path, "damaged NIfTI", "a label image") from None
    return data.T


def _needed(n_labels: int, n_frames: int, first_frame: int, source_frames: int) -> slice:
    """Which of a stack of labels belong to the cine: those of its frames, where the stack is of all of its source."""
    if n_labels in (1, n_frames) or not _of_source(n_labels, n_frames, first_frame, source_frames):
        return slice(None)
    return slice(first_frame, first_frame + n_frames)


def _of_source(n_labels: int, n_frames: int, first_frame: int, source_frames: int) -> bool:
    """Whether a stack of labels may be of all frames of the source."""
    return n_labels == source_frames if source_frames else n_labels >= first_frame + n_frames


def _check_nifti_start(path: Path) -> None:
    """Refuses a header that is followed by more than `MAX_EXTENSIONS` before the voxels (vox_offset, byte 108)."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else open(path, "rb") as file:
        start = file.read(352)
    order = "<" if start[:4] == b"\x5c\x01\0\0" else ">"
    if len(start) == 352 and not struct.unpack_from(order + "f", start, 108)[0] <= MAX_EXTENSIONS:
        raise InputError(path, "a NIfTI file with more in front of its voxels than a label image has")
