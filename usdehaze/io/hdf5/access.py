"""Opening HDF5 files that nobody vouches for: no locking, no links out of the file, bounded memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h5py
import numpy as np

from usdehaze.budget import ADVICE, most_memory, spend, spending
from usdehaze.errors import InputError
from usdehaze.io.formats import HDF5, format_of, kind_of
from usdehaze.io.hdf5.heap_check import check_heaps

MAX_ATTRIBUTE_BYTES = 2**16
_CHUNK_COPIES = 3  # compressed, inflated, and what is cut out of it
_SMALL_COPIES = 4  # of an axis or a grid of coordinates, in double precision
OPEN_BYTES = 2**14  # that the HDF5 library takes for an open dataset
METADATA_BYTES = 2**18  # of an open file that the HDF5 library keeps in memory: else more, the more frames there are
MAX_COMPRESSION = 2000  # gzip cannot pass 1032 : 1; real scans stay under 100 : 1


def open_h5(path: str | os.PathLike[str], expected: str = "an HDF5 file") -> h5py.File:
    """Opens an HDF5 file for reading, without locking it.

    Args:
        path: the file.
        expected: what to tell who gives another one.

    Raises:
        InputError: it is not there, no HDF5 file, or damaged.
    """
    if format_of(path) is not HDF5:
        raise InputError(path, f"is not an HDF5 file ({kind_of(path)})", expected)
    with spending(path), hdf5_errors(path):
        check_heaps(path)
        return with_small_cache(_open(path))


def with_small_cache(file: h5py.File) -> h5py.File:
    """The file itself, which keeps `METADATA_BYTES` of what leads to its chunks, and not up to 32 MiB."""
    config = file.id.get_mdc_config()
    config.set_initial_size = True
    config.min_size = config.initial_size = config.max_size = METADATA_BYTES
    file.id.set_mdc_config(config)
    return file


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
        advice = "the file may be cut off or damaged" + (", or still being written" if "truncated" in reason else "")
        raise InputError(path, f"cannot be read as HDF5 ({reason})", advice=advice) from None


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
        InputError: larger than the budget, or stored where it must not be.
    """
    group = get_group(file, name.rpartition("/")[0]) if "/" in name else file
    if group is None or not isinstance(group.get(name.rpartition("/")[2], getlink=True), h5py.HardLink):
        return None
    node = group[name.rpartition("/")[2]]
    if not isinstance(node, h5py.Dataset) or node.dtype.kind not in "uif" or node.shape is None or node.size == 0:
        return None
    check_storage(node, path)
    spend(path, memory=_SMALL_COPIES * 8 * int(node.size))
    return np.squeeze(np.asarray(node[()], np.float64))


def small_line(group: h5py.Group, name: str, path: object) -> np.ndarray | None:
    """`small_array` along a single axis: of an axis of pixels, say."""
    values = small_array(group, name, path)
    return None if values is None else values.ravel()


def small_text(group: h5py.Group, name: str) -> str:
    """A dataset that is one text of a usual size; empty where there is none."""
    node = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(node, h5py.Dataset) or node.shape != () or h5py.check_string_dtype(node.dtype) is None:
        return ""
    return text(node[()]) if node.dtype.itemsize <= MAX_ATTRIBUTE_BYTES else ""


def attribute(node: h5py.Group | h5py.Dataset, name: str) -> str:
    """A text or number attribute as text; empty where there is none, or none of a usual size."""
    value = attribute_value(node, name)
    if isinstance(value, np.ndarray) and value.dtype.kind in "ui" and value.size > 1:  # text as MATLAB's codes
        return "".join(chr(code) for code in value.reshape(-1) if 0 <= code <= sys.maxunicode)
    return "" if value is None else text(value)


def attribute_value(node: h5py.Group | h5py.Dataset, name: str) -> Any:
    """An attribute of numbers or text; None where there is none, none of a usual size, or one of another kind.

    Of values of variable length only single ones are read: any number of them may share one text of megabytes.
    """
    if name not in node.attrs:
        return None
    stored = node.attrs.get_id(name)
    if stored.get_space().get_simple_extent_type() == h5py.h5s.NULL:  # as netCDF leaves a text without a letter
        return None
    count = int(np.prod(stored.shape or (), dtype=object))
    kind = stored.get_type()
    if max(stored.get_storage_size(), count) > MAX_ATTRIBUTE_BYTES:
        return None
    plain = isinstance(
        kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID | h5py.h5t.TypeStringID | h5py.h5t.TypeEnumID
    )
    varying = isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()
    return node.attrs[name] if plain and not (varying and count > 1) else None


def attributes(node: h5py.Group | h5py.Dataset, path: object) -> dict[str, Any]:
    """Every attribute that `attribute_value` reads, by name."""
    names = _names(lambda take: h5py.h5a.iterate(node.id, take), path)
    values = {name: attribute_value(node, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def members(group: h5py.Group, path: object) -> list[str]:
    """Names of what a group holds, as the library sorts them.

    Raises:
        InputError: more than the budget.
    """
    return _names(group.id.links.iterate, path)


def _names(iterate: Callable[[Callable[..., Any]], Any], path: object) -> list[str]:
    """Names that the library counts up; it stops where the budget ends."""
    names: list[str] = []
    refusals: list[InputError] = []

    def take(name: bytes, *_: object) -> bool | None:
        try:
            spend(path, objects=1, memory=2 * len(name))
        except InputError as error:  # none may pass through the library
            refusals.append(error)
            return True
        names.append(name.decode(errors="replace"))
        return None

    iterate(take)
    if refusals:
        raise refusals[0]
    return names


def walk(file: h5py.File, path: object) -> tuple[dict[str, h5py.Dataset], list[str]]:
    """Every dataset by its name, and the names of links that lead elsewhere; each object once, hard links only.

    Raises:
        InputError: more than the budget.
    """
    if (walked := getattr(file, "walked", None)) is not None:  # another layout has asked before
        return walked
    datasets: dict[str, h5py.Dataset] = {}
    links: list[str] = []
    seen = {h5py.h5o.get_info(file.id).addr}
    waiting: list[tuple[str, h5py.Group]] = [("", file["/"])]
    while waiting:
        prefix, group = waiting.pop()
        for part in members(group, path):
            spend(path, memory=2 * len(prefix))
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
            if isinstance(node, h5py.Dataset):
                spend(path, memory=OPEN_BYTES)
                datasets[name] = node
            elif isinstance(node, h5py.Group):
                waiting.append((name + "/", node))
    file.walked = dict(sorted(datasets.items())), sorted(links)
    return file.walked


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
    if declared > 64 * 2**20 and declared > MAX_COMPRESSION * stored:
        found = f"dataset {name!r} declares {declared / 1e9:.3g} GB but stores {stored / 1e9:.3g} GB"
        raise InputError(path, found, "a scan")
    if chunk > most_memory() // _CHUNK_COPIES:
        found, most = f"dataset {name!r} is stored in chunks of {chunk / 1e6:.3g} MB", most_memory() / _CHUNK_COPIES
        raise InputError(path, found, f"chunks of at most {most / 1e6:.3g} MB", ADVICE)


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
