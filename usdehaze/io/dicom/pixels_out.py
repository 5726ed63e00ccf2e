"""Pixel data written frame by frame, in the transfer syntaxes that results are offered in."""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np
from pydicom import uid
from pydicom.pixels import get_encoder

from usdehaze.choices import TransferSyntax
from usdehaze.quiet import quiet

ENCODERS: dict[TransferSyntax, tuple[uid.UID, str]] = {  # to UID, encoder
    "explicit": (uid.ExplicitVRLittleEndian, ""),
    "rle": (uid.RLELossless, "pylibjpeg"),
    "jpeg-ls": (uid.JPEGLSLossless, "pyjpegls"),
    "j2k": (uid.JPEG2000Lossless, "pylibjpeg"),
}
MAX_LENGTH = 2**32 - 2  # bytes of a value, and of an offset between frames


def photometric(syntax: TransferSyntax, colour: bool) -> str:
    """Photometric Interpretation of frames in RGB or grey: JPEG 2000 turns RGB into YBR_RCT and back."""
    if not colour:
        return "MONOCHROME2"
    return "YBR_RCT" if syntax == "j2k" else "RGB"


class PixelDataWriter:
    """Appends the element Pixel Data (7FE0,0010) to a file, one frame at a time; one fragment a frame where compressed.

    Args:
        file: stands where the element begins.
        syntax: a name in `usdehaze.choices.TRANSFER_SYNTAXES`.
        n_frames: how many frames will come.
        shape: of each, ``(rows, columns)`` or ``(rows, columns, 3)``, uint8.

    Raises:
        ValueError: more pixels than one DICOM object holds.
    """

    def __init__(self, file: BinaryIO, syntax: TransferSyntax, n_frames: int, shape: tuple[int, ...]) -> None:
        self.file, self.n_frames, self.shape = file, n_frames, shape
        self.syntax, self.plugin = ENCODERS[syntax]
        self.photometric = photometric(syntax, len(shape) == 3)
        self.compressed = syntax != "explicit"
        length = n_frames * int(np.prod(shape))
        if not self.compressed and length > MAX_LENGTH:
            raise ValueError(f"{length / 2**30:.3g} GiB of pixels")
        value_length = 0xFFFFFFFF if self.compressed else length + length % 2
        file.write(struct.pack("<HH2sHL", 0x7FE0, 0x0010, b"OB", 0, value_length))
        self._offsets: list[int] = []
        if self.compressed:  # the Basic Offset Table is filled in at the end
            file.write(struct.pack("<HHL", 0xFFFE, 0xE000, 4 * n_frames) + bytes(4 * n_frames))
        self._first = file.tell()

    def append(self, frame: np.ndarray) -> None:
        """Writes a frame of the shape that was announced, uint8."""
        if not self.compressed:
            self.file.write(np.ascontiguousarray(frame).tobytes())
            return
        offset = self.file.tell() - self._first
        if offset > MAX_LENGTH:
            raise ValueError(f"{offset / 2**30:.3g} GiB of compressed pixels")
        self._offsets.append(offset)
        encoded = self._encode(frame)
        encoded += b"\0" * (len(encoded) % 2)
        self.file.write(struct.pack("<HHL", 0xFFFE, 0xE000, len(encoded)) + encoded)

    def close(self) -> None:
        """Ends the element."""
        if not self.compressed:
            self.file.write(b"\0" * ((self.file.tell() - self._first) % 2))
            return
        self.file.write(struct.pack("<HHL", 0xFFFE, 0xE0DD, 0))
        self.file.seek(self._first - 4 * self.n_frames)
        self.file.write(struct.pack(f"<{self.n_frames}L", *self._offsets))

    def _encode(self, frame: np.ndarray) -> bytes:
        rows, columns, *colour = self.shape
        with quiet():
            return get_encoder(self.syntax).encode(
                np.ascontiguousarray(frame),
                encoding_plugin=self.plugin,
                rows=rows,
                columns=columns,
                samples_per_pixel=3 if colour else 1,
                photometric_interpretation=self.photometric,
                bits_allocated=8,
                bits_stored=8,
                pixel_representation=0,
                planar_configuration=0,
                number_of_frames=1,
            )
