"""MetaImage files (``.mha``), the format of ITK and of the DehazingEcho2025 challenge, read a frame at a time.

A text header of ``Name = value`` lines, then the values, column fastest, plain or as one zlib stream.
"""

from __future__ import annotations

import zlib
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.limits import MIN_SIDE, check_frame
from usdehaze.io.luma import luma
from usdehaze.io.stored_cine import StoredCine

_TYPES = {
    **{"MET_UCHAR": "u1", "MET_CHAR": "i1", "MET_USHORT": "u2", "MET_SHORT": "i2", "MET_UINT": "u4", "MET_INT": "i4"},
    **{"MET_FLOAT": "f4", "MET_DOUBLE": "f8"},
}
_HEADER_BYTES = 2**16
_READ_BYTES = 2**20
_MOST_COMPRESSED = 1032  # what zlib can reach


class MetaImage:
    """An opened file.

    Raises:
        InputError: a header that says something else than 2-D frames in this very file, or values cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "rb")
        try:
            header = self._header()
            self._read_header(header)
        except BaseException:
            self.close()
            raise
        self._inflate: _Inflate | None = None
        self._position = 0

    def _header(self) -> dict[str, str]:
        header: dict[str, str] = {}
        while self._file.tell() < _HEADER_BYTES and (line := self._file.readline(_HEADER_BYTES)):
            name, equals, value = line.decode("ascii", "replace").partition("=")
            if not equals:
                break
            header[name.strip()] = value.strip()
            if name.strip() == "ElementDataFile":
                return header
        raise InputError(self.path, "has no complete MetaImage header", "a line ElementDataFile = LOCAL")

    def _read_header(self, header: dict[str, str]) -> None:
        if header["ElementDataFile"] != "LOCAL":
            raise InputError(self.path, "keeps its data in another file, which is not followed", "one .mha file")
        try:
            sides = [int(side) for side in header["DimSize"].split()]
            self.channels = int(header.get("ElementNumberOfChannels", "1"))
            spacing_mm = [float(s) for s in header.get("ElementSpacing", header.get("ElementSize", "1 1")).split()]
            msb = header.get("BinaryDataByteOrderMSB", header.get("ElementByteOrderMSB", "False"))
            self.dtype = np.dtype(_TYPES[header["ElementType"]]).newbyteorder(">" if msb.lower() == "true" else "<")
        except (KeyError, ValueError) as error:
            raise InputError(self.path, f"has a header that cannot be used ({type(error).__name__})") from None
        self.width, self.height, *more = [*sides, 1][: max(3, len(sides))]
        long = [side for side in more if side != 1]
        if len(sides) < 2 or len(long) > 1 or min(self.width, self.height, *more) < 1 or self.channels not in (1, 3, 4):
            found = f"{' x '.join(map(str, sides[:6]))} pixels, {self.channels} channels"
            raise InputError(self.path, f"holds {found}", "width x height, or width x height x frames")
        if min(self.width, self.height) < MIN_SIDE:
            raise InputError(self.path, f"frames of {self.height} x {self.width}", f"at least {MIN_SIDE} x {MIN_SIDE}")
        check_frame((self.height, self.width), self.path)
        self.n_frames = long[0] if long else 1
        given = len(spacing_mm) >= 2 and min(spacing_mm[:2]) > 0 and spacing_mm[:2] != [1, 1]
        self.spacing_m = (spacing_mm[1] / 1000, spacing_mm[0] / 1000) if given else None
        self.compressed = header.get("CompressedData", "False").lower() == "true"
        self._start = self._file.tell()
        stored = self.path.stat().st_size - self._start
        if self.n_frames * self._frame_bytes > stored * (_MOST_COMPRESSED if self.compressed else 1):
            raise InputError(self.path, f"declares {self.n_frames * self._frame_bytes} bytes but stores {stored}")

    @property
    def _frame_bytes(self) -> int:
        return self.width * self.height * self.channels * self.dtype.itemsize

    def stored(self) -> StoredCine:
        """The frames, with what the header says about them."""
        notes = ("The third axis taken as frames.",) if self.n_frames > 1 else ()
        shape, dtype = (self.n_frames, self.height, self.width), self.dtype.newbyteorder("=")
        return StoredCine("MetaImage", "", shape, dtype, self.read, spacing_m=self.spacing_m, assumptions=notes)

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W)``; a compressed file is best read in order."""
        start = index * self._frame_bytes
        if self.compressed:
            values = self._inflated(start)
        else:
            self._file.seek(self._start + start)
            values = self._file.read(self._frame_bytes)
        if len(values) != self._frame_bytes:
            raise InputError(self.path, f"ends in frame {index}", advice="the file may be cut off")
        frame = np.frombuffer(values, self.dtype).astype(self.dtype.newbyteorder("="))
        if self.channels == 1:
            return frame.reshape(self.height, self.width)
        return luma(frame.reshape(self.height, self.width, self.channels))

    def _inflated(self, start: int) -> bytes:
        """One frame that begins ``start`` bytes into the inflated values."""
        if self._inflate is None or start < self._position:
            self._file.seek(self._start)
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
    with closing(MetaImage(path)) as image:
        return image.n_frames > 1


class _Inflate:
    """A zlib stream in an open file, read from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._stream = file, zlib.decompressobj()

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
