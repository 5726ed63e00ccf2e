"""MetaImage files (``.mha``, ``.mhd`` with ``.raw``) of ITK, PLUS and the DehazingEcho2025 challenge.

A text header, then the values, read a frame at a time: column fastest, plain or as a zlib stream, in the same file or
beside it.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.layouts.axes import third_axis
from usdehaze.io.images.metaimage_header import read_header
from usdehaze.io.limits import MOST_DEFLATED
from usdehaze.io.picture import Picture, luma
from usdehaze.io.stored_cine import TIMES_UNUSED, StoredCine

_READ_BYTES = 2**20
_ANY_HEADER = 32  # of zlib or gzip, as ITK reads both


class MetaImage:
    """An opened file.

    Raises:
        InputError: see `usdehaze.io.images.metaimage_header.read_header`; also values that are cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, read_header(path)
        self.width, self.height, self.n_frames = self.header.sides
        files = self.header.files
        self._in_file = self.n_frames // len(files)  # frames
        self._inflate: _Inflate | None = None
        self._position = 0  # in the inflated values
        self._open_index, self._file = 0, open(files[0], "rb")
        try:
            for file in files:
                self._check_size(file)
        except BaseException:
            self.close()
            raise

    def _check_size(self, file: Path) -> None:
        stored, needed = file.stat().st_size - max(self.header.skipped, 0), self._in_file * self._frame_bytes
        if needed > stored * (MOST_DEFLATED if self.header.compressed else 1):
            raise InputError(self.path, f"declares {needed} bytes but stores {max(stored, 0)}")

    @property
    def _frame_bytes(self) -> int:
        return self.width * self.height * self.header.channels * self.header.dtype.itemsize

    @property
    def _turned(self) -> bool:
        """Rows of the file run along the depth."""
        return self.header.orientation[:1] in ("F", "N")

    def stored(self) -> StoredCine:
        """The frames, with what the header says about them."""
        header, notes = self.header, tuple[str, ...]()
        size, spacing_m = (self.height, self.width), header.spacing_m
        if self._turned:
            size, spacing_m = size[::-1], spacing_m and spacing_m[::-1]
        if self._turned or "N" in header.orientation:
            notes += ("Frames turned upright, as UltrasoundImageOrientation says.",)
        if header.times_unused:
            notes += (TIMES_UNUSED,)
        stored = StoredCine(
            "MetaImage",
            "",
            (self.n_frames, *size),
            header.dtype.newbyteorder("="),
            self.read,
            spacing_m=spacing_m,
            frame_times_s=header.times_s,
            assumptions=notes,
            picture=self.picture if header.channels > 1 else None,
        )
        if self.n_frames == 1 or header.is_sequence:
            return stored
        told = third_axis(stored, self.path, "Kinds = domain domain list in the header")
        return replace(stored, assumptions=(told, *notes))

    def _channels(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W, C)``."""
        self._switch_to(index // self._in_file)
        start = index % self._in_file * self._frame_bytes
        if self.header.compressed:
            values = self._inflated(start)
        else:
            self._file.seek(self._start + start)
            values = self._file.read(self._frame_bytes)
        if len(values) != self._frame_bytes:
            raise InputError(self.path, f"ends in frame {index}", advice="the file may be cut off")
        dtype = self.header.dtype
        frame = np.frombuffer(values, dtype).astype(dtype.newbyteorder("="))
        frame = frame.reshape(self.height, self.width, self.header.channels)
        frame = frame.swapaxes(0, 1) if self._turned else frame
        return frame[::-1] if "N" in self.header.orientation else frame

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W)``; a compressed file is best read in order."""
        frame = self._channels(index)
        return frame[..., 0] if self.header.channels == 1 else luma(frame)

    def picture(self, index: int) -> Picture:
        """Frame ``index`` with its colours."""
        frame = self._channels(index)
        return Picture(luma(frame), frame[..., :3])

    @property
    def _start(self) -> int:
        """Where the values begin in the file that is open."""
        if self.header.skipped >= 0:
            return self.header.skipped
        return self.header.files[self._open_index].stat().st_size - self._in_file * self._frame_bytes

    def _switch_to(self, index: int) -> None:
        """Opens the file ``index`` of those with values."""
        if index != self._open_index:
            self._file.close()
            self._file, self._open_index, self._inflate = open(self.header.files[index], "rb"), index, None

    def _inflated(self, start: int) -> bytes:
        """One frame that begins ``start`` bytes into the inflated values."""
        if self._inflate is None or start < self._position:
            self._file.seek(max(self.header.skipped, 0))
            self._inflate, self._position = _Inflate(self._file), 0
        while self._position < start:
            if not (passed := self._inflate.read(min(_READ_BYTES, start - self._position))):
                break
            self._position += len(passed)
        values = self._inflate.read(self._frame_bytes)
        self._position += len(values)
        return values

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def is_stack(path: Path) -> bool:
    """Whether a file holds more than one frame.

    Raises:
        InputError: as of `MetaImage`.
    """
    return read_header(path).sides[2] > 1


def data_files(path: Path) -> list[Path]:
    """The files with the values of a header that has none itself.

    Raises:
        InputError: as of `MetaImage`.
    """
    return [file for file in read_header(path).files if file != path]


class _Inflate:
    """A zlib stream in an open file, read from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._stream = file, zlib.decompressobj(zlib.MAX_WBITS | _ANY_HEADER)

    def read(self, wanted: int) -> bytes:
        """``wanted`` bytes, or fewer at the end of the stream."""
        parts = []
        while wanted and not self._stream.eof:
            packed = self._stream.unconsumed_tail or self._file.read(_READ_BYTES)
            if not packed:
                break
            parts.append(self._stream.decompress(packed, wanted))
            wanted -= len(parts[-1])
        return b"".join(parts)
