"""Regions as label images: PNG, a dataset of an HDF5 file, or NIfTI."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import get_dataset, open_file
from usdehaze.validation.regions.model import Region

Labels = Mapping[str, tuple[str, ...]]  # role -> what stands for it: label values, or names of DICOM segments
CHALLENGE_LABELS: Labels = {"tissue": ("255",), "haze": ("128",)}
MAX_VALUES = 64  # more different values and it is a picture, which holds 255 and 128 by accident
LABEL_NAMES = ("label", "labels", "roi", "rois", "mask", "segmentation")


def regions_of_labels(
    path: Path, stack: np.ndarray, shape: tuple[int, int, int], first_frame: int, labels: Labels | None
) -> list[Region]:
    """Regions of a label image.

    Args:
        path: for errors.
        stack: ``(1, H, W)``, ``(T, H, W)``, or ``(N, H, W)`` of all frames of the source.
        shape: ``(T, H, W)`` of the cine.
        first_frame: index in the source of the cine's first frame.
        labels: values that stand for each role; None for 255 = tissue, 128 = haze.

    Raises:
        InputError: labels of another size or number of frames, or without a value that was asked for.
    """
    n_frames = shape[0]
    if stack.shape[1:] != shape[1:]:
        found = f"labels of {stack.shape[1]} x {stack.shape[2]} pixels (height x width)"
        raise InputError(path, found, f"{shape[1]} x {shape[2]}, the frame of the result")
    if len(stack) not in (1, n_frames):
        if len(stack) < first_frame + n_frames:
            expected = f"1, {n_frames} (the frames of the result), or all frames of the source"
            raise InputError(path, f"labels of {len(stack)} frames", expected)
        stack = stack[first_frame : first_frame + n_frames]
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
        regions.append(Region(role, role, mask, frozenset(range(n_frames))))
    return regions


def _number(path: Path, role: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise InputError(path, f"--labels says {role}={value}, but a label image holds numbers", "a number") from error


def read_png(path: Path) -> np.ndarray:
    """Label image as ``(1, H, W)`` grey values.

    Raises:
        InputError: damaged.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image if image.mode.startswith("I") else image.convert("L"))[None]
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(path, "damaged PNG", "a label image, 255 = tissue, 128 = haze") from error


def read_h5_labels(path: Path, dataset: str | None, shape: tuple[int, int, int], first_frame: int) -> np.ndarray:
    """The label dataset of an HDF5 file as ``(N, H, W)``.

    Args:
        path: the file.
        dataset: path of the dataset inside it; None for the only one that fits the cine, or the only one of these
            that is called "label", "mask" or the like.
        shape: ``(T, H, W)`` of the cine.
        first_frame: index in the source of the cine's first frame.

    Raises:
        InputError: not readable, no such dataset, none that fits, or several.
    """
    import h5py

    def fits(size: tuple[int, ...]) -> bool:
        n = size[0] if len(size) == 3 else 1
        return size[-2:] == shape[1:] and (n in (1, shape[0]) or n >= first_frame + shape[0])

    with open_file(path) as file:
        found: dict[str, tuple[int, ...]] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "buif" and item.ndim in (2, 3):
                found[name] = item.shape

        if dataset is None:
            file.visititems(visit)
            fitting = [name for name, size in found.items() if fits(size)]
            named = [name for name in fitting if name.rsplit("/", 1)[-1].lower() in LABEL_NAMES]
            candidates = named or fitting
            if not candidates:
                sizes = ", ".join(f"{name} {size}" for name, size in found.items()) or "none"
                raise InputError(path, f"no label dataset that fits (found {sizes})", f"{shape[1:]} or {shape}")
            if len(candidates) > 1:
                advice = f"name one: --roi {path.name}:{candidates[0]}"
                raise InputError(path, f"several label datasets ({', '.join(candidates)})", "one", advice)
            dataset = candidates[0]
        chosen = get_dataset(file, dataset, path)
        if chosen.dtype.kind not in "buif" or chosen.ndim not in (2, 3) or not fits(chosen.shape):
            raise InputError(path, f"{dataset} is {chosen.shape} {chosen.dtype}", f"labels {shape[1:]} or {shape}")
        stack = np.asarray(chosen[()])
    return stack[None] if stack.ndim == 2 else stack


def read_nifti(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Label image of a NIfTI file as ``(N, H, W)``: its first axis is x (columns), its second y (rows), then frames.

    Raises:
        InputError: nibabel is not installed, the file is damaged, or its size does not fit ``shape`` ``(T, H, W)``.
    """
    try:
        import nibabel
        from nibabel.filebasedimages import ImageFileError
        from nibabel.spatialimages import HeaderDataError
    except ImportError as error:
        raise InputError(path, "NIfTI needs nibabel", advice='pip install "usdehaze[nifti]"') from error
    try:
        image: Any = nibabel.load(path)
        size = tuple(int(n) for n in image.shape)
        long_axes = [n for n in size[2:] if n != 1]
        if size[:2] != (shape[2], shape[1]) or len(long_axes) > 1:
            expected = f"({shape[2]}, {shape[1]}) or ({shape[2]}, {shape[1]}, frames): columns first"
            raise InputError(path, f"NIfTI of shape {size}", expected)
        data = np.asanyarray(image.dataobj).reshape(*size[:2], -1)
    except (ImageFileError, HeaderDataError, OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(path, "damaged NIfTI", "a label image") from error
    return data.T
