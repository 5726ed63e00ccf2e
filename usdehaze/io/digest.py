"""The digest of a result: one hash of all that its file holds, so that whatever was changed since is noticed.

It says that a file is as it was written, not who wrote it: whoever changes a file on purpose can write another digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attributes, get_dataset, members

ATTRIBUTE = "digest"
_DEEPEST = 4  # groups in groups; a result has one level
_MOST_BYTES = 2**26  # of a dataset that is no frames


def digest_of(file: h5py.File, path: object, known: Mapping[str, str] | None = None) -> str:
    """``sha256:`` and the hash of every group, dataset, link and attribute but the digest itself, in order of name.

    Args:
        file: open, all of it written.
        path: for messages.
        known: `Content.hexdigest` of datasets whose values need not be read again.

    Raises:
        InputError: it is damaged, or holds more than a result does.
    """
    digest = hashlib.sha256()
    for line in _lines(file, "", path, known or {}, 0):
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return f"sha256:{digest.hexdigest()}"


class Content:
    """Hash of a dataset's values, as they come: type and bytes in C order, little endian."""

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype = dtype.newbyteorder("<")
        self._hash = hashlib.sha256(str(self._dtype).encode())

    def add(self, values: np.ndarray) -> None:
        """The next values."""
        self._hash.update(np.ascontiguousarray(values, self._dtype).tobytes())

    def hexdigest(self) -> str:
        """The hash of what has come so far."""
        return self._hash.hexdigest()


def _lines(group: h5py.Group, name: str, path: object, known: Mapping[str, str], depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise InputError(path, "holds groups in groups in groups", "a result as usdehaze process writes it")
    yield from _attribute_lines(group, name, path)
    for member in sorted(members(group, path)):
        inner = f"{name}/{member}"
        link = group.get(member, getlink=True)
        if not isinstance(link, h5py.HardLink):
            yield f"{inner!r} {type(link).__name__}"
            continue
        node = group[member]
        if isinstance(node, h5py.Group):
            yield f"{inner!r} group"
            yield from _lines(node, inner, path, known, depth + 1)
            continue
        yield f"{inner!r} {node.shape} {known.get(inner[1:]) or _content(group.file, inner, path)}"
        yield from _attribute_lines(node, inner, path)


def _attribute_lines(node: h5py.Group | h5py.Dataset, name: str, path: object) -> Iterator[str]:
    for key, value in sorted(attributes(node, path).items()):
        if (name, key) != ("", ATTRIBUTE):
            yield f"{name!r} {key!r} {_plain(value)!r}"


def _plain(value: Any) -> Any:
    """An attribute without what HDF5 makes of its type: text, number, or a list of these."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _content(file: h5py.File, name: str, path: object) -> str:
    dataset = get_dataset(file, name, path)
    if dataset.dtype.kind not in "fiub":
        raise InputError(path, f"dataset {name!r} holds {dataset.dtype}", "numbers")
    content = Content(dataset.dtype)
    if dataset.ndim == 3:
        for frame in range(dataset.shape[0]):
            content.add(dataset[frame])
    elif dataset.nbytes > _MOST_BYTES:
        raise InputError(path, f"dataset {name!r} has shape {dataset.shape}", "what a result holds")
    else:
        content.add(dataset[()])
    return content.hexdigest()
