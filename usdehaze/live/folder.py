"""A folder that something writes images to, one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np

from usdehaze.errors import InputError
from usdehaze.geometry.sector import FRAMES_USED
from usdehaze.io.decoding import decoding
from usdehaze.io.formats import FORMATS, is_left_out
from usdehaze.io.images.read import natural_order, open_image
from usdehaze.io.picture import Picture
from usdehaze.io.reading import Reading
from usdehaze.live.stream import Frame, Frames, FrameSource, Stream, found_in

POLL_S, LONGEST_S = 0.01, 0.25  # between looks at the folder
IDLE = 4  # of the time that a look takes, to the next one: a large folder must not fill a core
GRACE_S = 2.0  # after its last change, that a file may be unreadable for
SUFFIXES = tuple(suffix for known in FORMATS if known.open_image is not None for suffix in known.suffixes)


class Folder(FrameSource):
    """New images in a folder, and new frames in the newest, in the order in which they were last changed.

    Of the images that are there at the beginning the newest is the first frame; where none may be left out all of them
    come, by name. The folder is looked through again and again: its writer should not let many thousands pile up.

    Args:
        path: the folder.
        reading: what the images leave unsaid.
        tell: told of files that cannot be used.
    """

    first_frames = FRAMES_USED

    def __init__(self, path: Path, reading: Reading, tell: Callable[[str], None]) -> None:
        self.name, self._path, self._reading, self._tell = str(path), path, reading, tell
        self._file, self._count, self._last = "", 0, np.empty(0)  # the last file, its frames taken, the last of these
        self._layout = ""
        self._spacing_m: tuple[float, float] | None = None

    def frames(self, every: bool, stop: Event) -> Frames:
        watched = Watched(self._path)
        there = watched.new()
        if not there:
            self._tell(f"{self.name}: holds no image yet ({', '.join(SUFFIXES)}); waits for one")
        if every:
            for path in natural_order([path for _, path in there]):
                yield from self._told(path)
        watched.done(there if every else there[:-1])
        while not stop.is_set():
            began_s = time.monotonic()
            new = watched.new()
            n, took_s = len(new), time.monotonic() - began_s
            for place in range(min(n, 1)) if every else range(n - 1, max(n - 3, -1), -1):
                changed_ns, path = new[place]
                young = abs(time.time_ns() - changed_ns) < GRACE_S * 1e9  # clocks of others may be ahead
                try:
                    yield from self._read(path, missed=place)
                except InputError as error:
                    if young:  # still being written, perhaps
                        continue
                    self._tell(str(error))
                watched.done(new[: place + 1])
                break
            else:
                stop.wait(min(max(POLL_S, IDLE * took_s), LONGEST_S))

    def _told(self, path: Path) -> Iterator[Frame]:
        try:
            yield from self._read(path)
        except InputError as error:
            self._tell(str(error))

    def _read(self, path: Path, missed: int = 0) -> Iterator[Frame]:
        """The frames of a file; of the one that was read last those that are new.

        Raises:
            InputError: it cannot be read.
        """
        taken = self._count if path.name == self._file else 0
        with decoding(path, "an image"), closing(open_image(path)) as image:
            stored = image.stored()
            n_frames = stored.shape[0]
            if taken == n_frames and np.array_equal(stored.read(taken - 1), self._last):
                return  # touched, not changed
            self._layout, self._spacing_m = stored.layout, stored.spacing_m
            for index in range(taken if taken < n_frames else 0, n_frames):
                picture = stored.picture_of(index)
                self._file, self._count, self._last = path.name, index + 1, picture.levels
                yield Frame(
                    time.monotonic(), picture.levels, partial(Picture, picture.levels, picture.rgb), missed=missed
                )
                missed = 0

    def stream(self, first: list[Frame]) -> Stream:
        return found_in(first, self.name, self._reading, f"folder being written ({self._layout})", self._spacing_m)


class Watched:
    """Which images of a folder are new: files that are moved or copied in may be older than those that were there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._through = dict[str, int]()  # when files that are done with were last changed, by their names

    def new(self) -> list[tuple[int, Path]]:
        """When they were last changed, ns since 1970, and the images, in this order, then by name.

        Raises:
            InputError: the folder cannot be looked through.
        """
        changed = dict[str, int]()
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    is_image = not is_left_out(entry.name) and entry.name.lower().endswith(SUFFIXES)
                    if is_image and (at := _changed_ns(entry)) is not None:
                        changed[entry.name] = at
        except OSError as error:
            raise InputError(self._path, f"cannot be looked through ({error.strerror})") from error
        self._through = {name: at for name, at in self._through.items() if name in changed}
        new = [self._path / name for name, at in changed.items() if self._through.get(name) != at]
        return sorted(((changed[path.name], path) for path in natural_order(new)), key=lambda file: file[0])

    def done(self, files: Sequence[tuple[int, Path]]) -> None:
        """These are through, until they change again."""
        self._through.update((path.name, changed_ns) for changed_ns, path in files)


def _changed_ns(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_mtime_ns if entry.is_file() else None
    except OSError:  # gone by now
        return None
