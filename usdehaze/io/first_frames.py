"""The first frames of a stream as a scan: what is found out from them holds for the frames that follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.picture import Picture
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan


class FirstFrames(StoredScan):
    """Units, full scale, geometry and colours of a stream, found as those of a file that held these frames.

    Args:
        name: of the stream, for messages.
        pictures: frames of one shape and type.
        reading: what the stream leaves unsaid.
        layout: where they come from, in words.
        spacing_m: ``(row, column)`` pitch in m, where the stream says so.

    Raises:
        InputError: as of `usdehaze.io.open_scan`.
    """

    def __init__(
        self,
        name: str,
        pictures: Sequence[Picture],
        reading: Reading,
        layout: str,
        spacing_m: tuple[float, float] | None = None,
    ) -> None:
        self._frames = StoredCine(
            layout,
            "",
            (len(pictures), *pictures[0].levels.shape),
            pictures[0].levels.dtype,
            lambda index: pictures[index].levels,
            spacing_m=spacing_m,
            frame_times_s=np.arange(float(len(pictures))),  # they have some, though not these
            picture=lambda index: pictures[index],
        )
        super().__init__(Path(name), reading)

    def _open(self) -> StoredCine:
        return self._frames

    def _hash(self) -> str:
        return ""  # there is no file

    def _check_images(self, first: int, frames_db: np.ndarray) -> None:
        pass  # a stream may begin black

    def to_db(self, values: np.ndarray) -> np.ndarray:
        """A later frame, ``(H, W)`` stored values, as ``(H, W)`` float32 dB; it may be of one value.

        Raises:
            InputError: values that are not numbers, or of another type.
        """
        if values.dtype != self._frames.dtype:
            raise InputError(self.path, f"a frame of {values.dtype}", f"{self._frames.dtype} as before")
        return self._numbers_to_db(values, "a frame")

    def b_mode(self, picture: Picture) -> np.ndarray | None:
        """``(H, W)`` bool, which pixels of a later frame are B-mode: grey, or of the tint that the first ones had; None
        where that is all of them."""
        return self._colours.b_mode(self._in_bytes(picture))
