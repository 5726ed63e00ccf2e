"""Grey pictures into a PNG, GIF or MP4, one at a time: none of them is kept in memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress

import numpy as np
from PIL import GifImagePlugin, Image, PngImagePlugin

from usdehaze.errors import UsdehazeError


class Film(ABC):
    """A file of pictures ``(H, W)`` uint8, all of one size.

    Args:
        path: where to write; replaced if it is there.
        shape: ``(H, W)`` of every picture; both even for an MP4.
        frame_time_s: how long each is shown by default, s.
        comment: that the file carries.
    """

    def __init__(
        self, path: str | os.PathLike[str], shape: tuple[int, ...], frame_time_s: float, comment: str = ""
    ) -> None:
        self.path, self.shape, self.frame_time_s, self.comment = path, shape, frame_time_s, comment

    @abstractmethod
    def add(self, picture: np.ndarray, shown_s: float | None = None) -> None:
        """Appends a picture, shown so long where the file can say that of each, else ``frame_time_s``."""

    @abstractmethod
    def close(self) -> None:
        """Completes the file; may be called again."""


class Png(Film):
    """A single picture; of several, the first."""

    _written = False

    def add(self, picture: np.ndarray, shown_s: float | None = None) -> None:
        if not self._written:
            info = PngImagePlugin.PngInfo()
            info.add_text("Comment", self.comment)
            Image.fromarray(picture).save(self.path, "PNG", pnginfo=info)
            self._written = True

    def close(self) -> None:
        pass


class Gif(Film):
    """All pictures, over and over, at least 20 ms each; 256 grey levels, nothing lost.

    A GIF counts in hundredths of a second: some are shown for one more, so that all together take their time.
    """

    def __init__(
        self, path: str | os.PathLike[str], shape: tuple[int, ...], frame_time_s: float, comment: str = ""
    ) -> None:
        super().__init__(path, shape, frame_time_s, comment)
        self._end_s = 0.0
        self._file = open(path, "wb")
        header, _ = GifImagePlugin.getheader(Image.new("L", (shape[1], shape[0])), info={"loop": 0, "comment": comment})
        self._file.writelines(header)

    def add(self, picture: np.ndarray, shown_s: float | None = None) -> None:
        begin_s = self._end_s
        self._end_s += shown_s or self.frame_time_s
        shown = round(100 * self._end_s) - round(100 * begin_s)
        self._file.writelines(GifImagePlugin.getdata(Image.fromarray(picture), duration=10 * max(2, shown)))

    def close(self) -> None:
        if not self._file.closed:
            self._file.write(b";")
            self._file.close()


class Mp4(Film):
    """H.264 in yuv420p, index first: plays everywhere, and before it is loaded to the end."""

    def __init__(
        self, path: str | os.PathLike[str], shape: tuple[int, ...], frame_time_s: float, comment: str = ""
    ) -> None:
        super().__init__(path, shape, frame_time_s, comment)
        import imageio_ffmpeg

        exact = ["-threads", "1", "-fflags", "+bitexact"]  # the same pictures give the same bytes
        self._writer = imageio_ffmpeg.write_frames(
            os.fspath(path),
            (shape[1], shape[0]),
            pix_fmt_in="gray",
            pix_fmt_out="yuv420p",
            fps=1 / frame_time_s,
            quality=None,
            codec="libx264",
            macro_block_size=2,
            output_params=[
                "-crf",
                "18",
                *exact,
                "-metadata",
                f"comment={comment}",
                "-movflags",
                "+faststart",
                "-f",
                "mp4",
            ],
        )
        self._writer.send(None)

    def add(self, picture: np.ndarray, shown_s: float | None = None) -> None:
        try:
            self._writer.send(np.ascontiguousarray(picture))
        except OSError as error:  # a broken pipe: ffmpeg gave up
            with suppress(OSError):
                self._writer.close()
            raise _failed() from error

    def close(self) -> None:
        try:
            self._writer.close()  # waits for ffmpeg to finish
            with open(self.path, "rb") as file:
                complete = b"moov" in file.read(64)  # the index is moved to the front when all else is written
        except OSError as error:
            raise _failed() from error
        if not complete:
            raise _failed()


def _failed() -> UsdehazeError:
    return UsdehazeError("ffmpeg could not write the MP4 preview; ask for a GIF or PNG")
