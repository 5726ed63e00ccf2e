"""Frames of a video stream in the pixel data (MPEG-2, H.264, HEVC), by ffmpeg."""

from __future__ import annotations

import tempfile

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.dicom.codecs import PixelFormat
from usdehaze.io.dicom.frames import fragments
from usdehaze.io.dicom.header import Header
from usdehaze.io.ffmpeg import NAMELESS, Decoder

VIDEO_SYNTAXES = {  # to Lossy Image Compression Method (0028,2114)
    **dict.fromkeys((f"1.2.840.10008.1.2.4.10{digit}" for digit in "01"), "ISO_13818_2"),
    **dict.fromkeys((f"1.2.840.10008.1.2.4.10{digit}" for digit in "23456"), "ISO_14496_10"),
    **dict.fromkeys((f"1.2.840.10008.1.2.4.10{digit}" for digit in "78"), "ISO_23008_2"),
}
VIDEO_SYNTAXES |= {f"{syntax}.1": VIDEO_SYNTAXES[syntax] for syntax in [*VIDEO_SYNTAXES][:7]}  # in fragments
COPY_BYTES = 2**20


class VideoFrames:
    """Reads frames in order, best one after the other: going back means to decode from the beginning.

    Args:
        header: of the DICOM file.
        n_frames: Number of Frames.
        pixel_format: size of the frames.
        path: for messages.

    Raises:
        InputError: imageio-ffmpeg is not installed, or the pixel data are damaged or hold nothing like so many frames.
    """

    def __init__(self, header: Header, n_frames: int, pixel_format: PixelFormat, path: object) -> None:
        spans, _, _ = fragments(header, path)
        if n_frames > sum(length for _, length in spans):
            raise InputError(path, f"{n_frames} frames in {sum(length for _, length in spans)} bytes of video")
        # ffmpeg seeks in it; where the system can, it has no name, and so nothing to leave behind when it is killed
        self._stream = tempfile.TemporaryFile() if NAMELESS else tempfile.NamedTemporaryFile(suffix=".video")
        for start, length in spans:
            header.file.seek(start)
            while length > 0 and (block := header.file.read(min(length, COPY_BYTES))):
                self._stream.write(block)
                length -= len(block)
        self._stream.flush()
        size = pixel_format.rows, pixel_format.columns
        self._decoder = Decoder(self._stream, size, path, "the file says")

    def read(self, index: int) -> tuple[np.ndarray, str]:
        """Frame ``index`` as ``(rows, columns, 3)`` uint8, and "YBR_FULL".

        Raises:
            InputError: the stream cannot be decoded, ends before that frame, or has frames of another size.
        """
        return self._decoder.read(index).transpose(1, 2, 0), "YBR_FULL"

    def count(self) -> int:
        """Frames in the stream, all of it decoded.

        Raises:
            InputError: the stream cannot be decoded, or has frames of another size.
        """
        count = 0
        try:
            while True:
                self._decoder.read(count)
                count += 1
        except InputError:
            if count == 0:
                raise
        self._decoder.close()
        return count

    def close(self) -> None:
        """Ends ffmpeg and removes the stream's copy."""
        self._decoder.close()
        self._stream.close()
