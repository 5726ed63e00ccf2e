"""Opening HDF5 files that nobody vouches for: no locking, no links out of the file, bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.formats import HDF5, format_of, kind_of
from usdehaze.io.hdf5.heap_check import check_heaps

MAX_CHUNK_BYTES = 2**30
MAX_ATTRIBUTE_BYTES = 2**16
MAX_SMALL_BYTES = 2**28  # of an axis or a grid of coordinates
MAX_OBJECTS = 100_000  # groups and datasets looked through for frames
MAX_COMPRESSION = 2000  # gzip cannot pass 1032 : 1; real scans stay under 100 : 1


def open_h5(path: str | os.PathLike[str]) -> h5py.File:
    """Opens an HDF5 file for reading, without locking it.

    Raises:
        InputError: it is not there, no HDF5 file, or damaged.
    """
    if format_of(path) is not HDF5:
        raise InputError(path, f"is not an HDF5 file ({kind_of(path)})", "an HDF5 file")
    with hdf5_errors(path):
        check_heaps(path)
        return _open(path)


@contextmanager
def open_file(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """`open_h5` and `hdf5_errors` in one, for a file that is read in one go."""
    with open_h5(path) as file, hdf5_errors(path):
        yield file


@contextmanager
def hdf5_errors(path: object) -> Iterator[None]:
    """Turns what the HDF5 library stumbles over in ``path`` into an `InputError`."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # the last two: types h5py cannot map
        reason = str(error).split("\n")[0]
        raise InputError(path, f"cannot be read as HDF5 ({reason})", advice="the file may be cut off or damaged") from (
            error
        )


def _open(path: str | os.PathLike[str]) -> h5py.File:
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        reason = str(error)
    if "locking flag" in reason:  # this very process has it open already, with locking
        return h5py.File(path, "r")
    if "already open for write" in reason or "SWMR" in reason:
        with suppress(OSError, ValueError):
            return h5py.File(path, "r", libver="latest", swmr=True, locking=False)
        raise InputError(
            path,
            "is open for writing elsewhere, or was when its writer crashed",
            "a file that was closed",
            "close it there, or clear the mark with: h5clear -s FILE",
        )
    if "truncated file" in reason:
        found = "is cut off, or still being written (HDF5 says truncated file)"
        raise InputError(path, found, "a file that was closed")
    raise OSError(reason)


def get_dataset(file: h5py.File, name: str, path: object) -> h5py.Dataset:
    """The dataset called ``name``, reached through hard links only and stored in this very file.

    Raises:
        InputError: there is no such dataset, or its name or its storage leads out of the file.
    """
    node: h5py.Group | h5py.Dataset = file
    for part in name.strip("/").split("/"):
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) and part not in ("", ".") else None
        if link is None:
            raise InputError(path, f"no dataset {name!r}", advice="see what is in it with: usdehaze info")
        if isinstance(link, h5py.ExternalLink):
            raise InputError(path, f"{name!r} is a link into another file, which is not followed")
        if isinstance(link, h5py.SoftLink):
            raise InputError(path, f"{name!r} is a soft link", advice=f"name the dataset itself: {link.path}")
        node = node[part]
    if not isinstance(node, h5py.Dataset):
        raise InputError(path, f"{name!r} is not a dataset", advice="see what is in it with: usdehaze info")
    check_storage(node, path)
    return node


def get_group(file: h5py.Group, name: str) -> h5py.Group | None:
    """The group called ``name``, reached through hard links only; None where there is none."""
    node: h5py.Group | h5py.Dataset = file
    for part in name.strip("/").split("/"):
        if not isinstance(node, h5py.Group) or not isinstance(node.get(part, getlink=True), h5py.HardLink):
            return None
        node = node[part]
    return node if isinstance(node, h5py.Group) else None


def small_array(file: h5py.Group, name: str, path: object) -> np.ndarray | None:
    """A small numeric dataset, an axis for instance, without its axes of length 1; None where there is none.

    Raises:
        InputError: larger than `MAX_SMALL_BYTES`, or stored where it must not be.
    """
    group = get_group(file, name.rpartition("/")[0]) if "/" in name else file
    if group is None or not isinstance(group.get(name.rpartition("/")[2], getlink=True), h5py.HardLink):
        return None
    node = group[name.rpartition("/")[2]]
    if not isinstance(node, h5py.Dataset) or node.dtype.kind not in "uif" or node.shape is None or node.size == 0:
        return None
    check_storage(node, path)
    if node.size * 8 > MAX_SMALL_BYTES:
        raise InputError(path, f"{name!r} has shape {node.shape}", f"at most {MAX_SMALL_BYTES // 8} values")
    return np.squeeze(np.asarray(node[()], np.float64))


def attribute(node: h5py.Group | h5py.Dataset, name: str) -> str:
    """A text or number attribute as text; empty where there is none, or none of a usual size."""
    if name not in node.attrs:
        return ""
    stored = node.attrs.get_id(name)
    if (
        stored.get_storage_size() > MAX_ATTRIBUTE_BYTES
        or int(np.prod(stored.shape, dtype=object)) > MAX_ATTRIBUTE_BYTES
    ):
        return ""
    value = node.attrs[name]
    if isinstance(value, np.ndarray) and value.dtype.kind in "ui" and value.size > 1:  # text as MATLAB's codes
        return "".join(map(chr, value.reshape(-1)))
    return text(value)


def walk(file: h5py.File, path: object) -> tuple[dict[str, h5py.Dataset], list[str]]:
    """Every dataset by its name, and the names of links that lead elsewhere; each object once, hard links only.

    Raises:
        InputError: more than `MAX_OBJECTS` groups and datasets.
    """
    datasets: dict[str, h5py.Dataset] = {}
    links: list[str] = []
    seen = {h5py.h5o.get_info(file.id).addr}
    waiting: list[tuple[str, h5py.Group]] = [("", file["/"])]
    while waiting:
        prefix, group = waiting.pop()
        for part in group:
            name = prefix + part
            if not isinstance(group.get(part, getlink=True), h5py.HardLink):
                links.append(name)
                continue
            try:
                node = group[part]
            except (KeyError, TypeError, ValueError):  # a type that h5py does not know
                continue
            address = h5py.h5o.get_info(node.id).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > MAX_OBJECTS:
                raise InputError(path, f"more than {MAX_OBJECTS} groups and datasets", advice="pick one with --dataset")
            if isinstance(node, h5py.Dataset):
                datasets[name] = node
            elif isinstance(node, h5py.Group):
                waiting.append((name + "/", node))
    return dict(sorted(datasets.items())), sorted(links)


def check_storage(dataset: h5py.Dataset, path: object) -> None:
    """Refuses what cannot be read safely, before a byte of it is read.

    Raises:
        InputError: nothing stored, virtual or external storage, a filter that is not installed, sizes that no scan has.
    """
    name = str(dataset.name).lstrip("/")
    if dataset.shape is None or 0 in dataset.shape:
        raise InputError(path, f"dataset {name!r} is empty, shape {dataset.shape}", "frames (T, H, W) or (H, W)")
    if dataset.is_virtual:
        raise InputError(path, f"dataset {name!r} is virtual: its data lie in other files, which are not followed")
    if dataset.external:
        raise InputError(path, f"dataset {name!r} keeps its data in another file, which is not followed")
    filters = dataset.id.get_create_plist()
    for index in range(filters.get_nfilters()):
        code, _, _, label = filters.get_filter(index)
        if not _filter_available(code):
            label = label.decode(errors="replace") or "a filter"
            raise InputError(
                path,
                f"dataset {name!r} is compressed with {label} (HDF5 filter {code}), which is not installed",
                advice='get it with: pip install "usdehaze[zea]"',
            )
    declared, stored = int(dataset.size) * dataset.dtype.itemsize, int(dataset.id.get_storage_size())
    if stored == 0:
        raise InputError(path, f"dataset {name!r} holds no data: shape {dataset.shape}, but nothing was ever written")
    chunk = int(np.prod(dataset.chunks, dtype=object)) * dataset.dtype.itemsize if dataset.chunks else 0
    if chunk > MAX_CHUNK_BYTES or (declared > 64 * 2**20 and declared > MAX_COMPRESSION * stored):
        raise InputError(
            path,
            f"dataset {name!r} declares {declared / 1e9:.3g} GB but stores {stored / 1e9:.3g} GB",
            "a scan, stored in chunks of at most 1 GB",
        )


def _filter_available(code: int) -> bool:
    if not h5py.h5z.filter_avail(code):
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401  (brings Blosc, Zstandard, LZ4, ... where it is installed)
    return h5py.h5z.filter_avail(code)


def text(value: object) -> str:
    """An HDF5 string attribute, whichever way it was stored."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
