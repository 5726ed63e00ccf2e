"""The first frames of a stream as a scan: what is found out from them holds for the frames that follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan


class FirstFrames(StoredScan):
    """Units, full scale and geometry of a stream, found as those of a file that held these frames.

    Args:
        name: of the stream, for messages.
        frames: ``(H, W)`` stored values each, of one shape and type.
        reading: what the stream leaves unsaid.
        layout: where they come from, in words.
        spacing_m: ``(row, column)`` pitch in m, where the stream says so.

    Raises:
        InputError: as of `usdehaze.io.open_scan`.
    """

    def __init__(
        self,
        name: str,
        frames: Sequence[np.ndarray],
        reading: Reading,
        layout: str,
        spacing_m: tuple[float, float] | None = None,
    ) -> None:
        self._frames = StoredCine(
            layout,
            "",
            (len(frames), *frames[0].shape),
            frames[0].dtype,
            lambda index: frames[index],
            spacing_m=spacing_m,
            frame_times_s=np.arange(float(len(frames))),  # they have some, though not these
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
