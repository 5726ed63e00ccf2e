"""GIF: one image, or an animation with a time for every frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from usdehaze.budget import spend
from usdehaze.io.decoding import decoding
from usdehaze.io.images.opacity import rgb_of
from usdehaze.io.limits import check_frame
from usdehaze.io.picture import Picture, luma
from usdehaze.io.stored_cine import StoredCine, rising


class GifImage:
    """An opened file; frames are best read in order.

    Raises:
        InputError: it cannot be decoded, or its frames are too large.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with decoding(path, "a GIF"):
            self._image: Image.Image = _open(path)
            try:
                check_frame((self._image.height, self._image.width), path)
                self._times_s, self._colour = self._look_through()
            except BaseException:
                self._image.close()
                raise

    def _look_through(self) -> tuple[np.ndarray, bool]:
        """When each frame is first shown, s; and whether any is coloured."""
        starts: list[float] = []
        colour, now, index = False, 0.0, 0
        while True:
            try:
                self._image.seek(index)
            except EOFError:
                return np.array(starts), colour
            spend(self.path, objects=1)
            starts.append(now)
            now += self._image.info.get("duration", 0) / 1000
            rgb = rgb_of(self._image, self.path)
            colour = colour or bool((rgb != rgb[..., :1]).any())
            index += 1

    def stored(self) -> StoredCine:
        """The frames."""
        times = self._times_s
        notes = ("Colours taken as their luma.",) if self._colour else ()
        return StoredCine(
            "GIF film" if len(times) > 1 else "GIF image",
            "",
            (len(times), self._image.height, self._image.width),
            np.dtype(np.uint8),
            self.read,
            frame_times_s=rising(times),
            assumptions=notes,
            picture=self.picture if self._colour else None,
        )

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W)`` uint8."""
        self._image.seek(index)
        return luma(rgb_of(self._image, self.path))

    def picture(self, index: int) -> Picture:
        """Frame ``index`` with its colours."""
        self._image.seek(index)
        rgb = rgb_of(self._image, self.path)
        return Picture(luma(rgb), rgb)

    def close(self) -> None:
        """Closes the file."""
        self._image.close()


def is_animated(path: Path) -> bool:
    """Whether a file holds more than one frame.

    Raises:
        InputError: it cannot be decoded.
    """
    with decoding(path, "a GIF"), _open(path) as image:
        return bool(getattr(image, "is_animated", False))


def _open(path: Path) -> Image.Image:
    return Image.open(path, formats=("GIF",))
