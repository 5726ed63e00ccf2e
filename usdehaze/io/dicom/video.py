"""Frames of a video stream in the pixel data (MPEG-2, H.264, HEVC), by the ffmpeg that imageio-ffmpeg brings along."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import Any

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.dicom.codecs import PixelFormat
from usdehaze.io.dicom.frames import fragments
from usdehaze.io.dicom.header import Header

VIDEO_SYNTAXES = {  # to Lossy Image Compression Method (0028,2114)
    **dict.fromkeys((f"1.2.840.10008.1.2.4.10{digit}" for digit in "01"), "ISO_13818_2"),
    **dict.fromkeys((f"1.2.840.10008.1.2.4.10{digit}" for digit in "23456"), "ISO_14496_10"),
    **dict.fromkeys((f"1.2.840.10008.1.2.4.10{digit}" for digit in "78"), "ISO_23008_2"),
}
FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,mpegts,mpeg,mpegvideo,h264,hevc"  # no playlists, which name other files
COPY_BYTES = 2**20
NAMELESS = os.path.isdir("/dev/fd")


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
        try:
            import imageio_ffmpeg

            self._program = imageio_ffmpeg.get_ffmpeg_exe()
        except (ImportError, RuntimeError):
            found = "video needs a decoder that is not installed"
            raise InputError(path, found, advice="pip install usdehaze[video]") from None
        self.pixel_format, self.path = pixel_format, path
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
        self._process: subprocess.Popen[bytes] | None = None
        self._next = 0

    def read(self, index: int) -> tuple[np.ndarray, str]:
        """Frame ``index`` as ``(rows, columns, 3)`` uint8, and "YBR_FULL".

        Raises:
            InputError: the stream cannot be decoded, ends before that frame, or has frames of another size.
        """
        if self._process is None or index < self._next:
            self._start()
        while self._next < index:
            self._frame()
        planes = np.frombuffer(self._frame(), np.uint8).reshape(3, self.pixel_format.rows, self.pixel_format.columns)
        return planes.transpose(1, 2, 0), "YBR_FULL"

    def close(self) -> None:
        """Ends ffmpeg and removes the stream's copy."""
        self._stop()
        self._stream.close()

    def _start(self) -> None:
        self._stop()
        number = self._stream.fileno()
        name = f"/dev/fd/{number}" if NAMELESS else self._stream.name
        os.lseek(number, 0, os.SEEK_SET)  # some systems share the position
        read = ["-protocol_whitelist", "file", "-format_whitelist", FORMATS, "-i", name, "-map", "0:v:0"]
        full = ["-vf", "scale=out_range=full", "-pix_fmt", "yuv444p", "-strict", "-1", "-fps_mode", "passthrough"]
        command = [self._program, "-v", "quiet", "-nostdin", "-threads", "1", *read, *full, "-f", "yuv4mpegpipe", "-"]
        passed = [number] if NAMELESS else []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=passed)
        self._next = 0
        header = self._output().readline(1000).decode("ascii", "replace").split()
        size = {part[0]: part[1:] for part in header[1:]}
        if header and (size.get("H"), size.get("W")) != (str(self.pixel_format.rows), str(self.pixel_format.columns)):
            declared = f"{self.pixel_format.rows} x {self.pixel_format.columns} as the file says"
            raise InputError(self.path, f"video of {size.get('H')} x {size.get('W')}", declared)

    def _frame(self) -> bytes:
        """The next frame: planes of Y, Cb and Cr."""
        size = 3 * self.pixel_format.rows * self.pixel_format.columns
        output = self._output()
        output.readline(1000)  # FRAME
        frame = output.read(size)
        if len(frame) != size and self._next == 0:
            raise InputError(self.path, "its video cannot be decoded", advice="the file may be damaged")
        if len(frame) != size:
            raise InputError(self.path, f"its video ends at frame {self._next}", "frames as Number of Frames says")
        self._next += 1
        return frame

    def _output(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._output().close()
            self._process.wait()
            self._process = None
