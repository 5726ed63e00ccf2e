"""Films -> Scan: MP4, AVI and what else ffmpeg plays, EchoNet-Dynamic's among them."""

from __future__ import annotations

import numpy as np

from usdehaze.io.ffmpeg import Decoder, look_through
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan

_COLOUR = 16  # levels that red, green and blue of a pixel may differ by in grey tissue
_FAINT = 5  # units of Cb and Cr that cannot make as much: _COLOUR / sum(_CHROMA)
_CHROMA = np.array([1.772, 1.402])  # blue and red less luma, a unit of Cb and of Cr (ITU-R BT.601)


class FilmScan(StoredScan):
    """Frames of a film: the luma over its full range, at the times that the film shows them.

    The cines have a ``tissue_mask``, False where there is colour.
    """

    _file: Decoder | None = None

    def _open(self) -> StoredCine:
        film = look_through(self.path)
        decoder = self._file = Decoder(self.path, film.size, self.path, "its first frame")
        times, notes = film.times_s, []
        if len(times) > 1 and np.all(np.diff(times) > 0):
            rate = (len(times) - 1) / (times[-1] - times[0])
            notes.append(f"Frame times are those of the film, {rate:.4g} frames/s.")
        if abs(film.pixel_aspect - 1) > 0.01:
            notes.append(f"The film is to be shown with pixels {film.pixel_aspect:.3g} times as wide as high.")
        share = 1 - float(grey_in(decoder.read(0)).mean())
        if share > 0:
            notes.append(f"Colour is left as it is: {100 * share:.2g} % of the pixels of the first frame.")
        return StoredCine(
            "film",
            "",
            (len(times), *film.size),
            np.dtype(np.uint8),
            lambda index: decoder.read(index)[0],
            frame_times_s=times if len(times) > 1 and np.all(np.diff(times) > 0) else None,
            assumptions=tuple(notes),
        )

    def _read_with_mask(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        self._opened()
        assert self._file is not None
        frames_db = np.empty((stop - start, *self.shape), np.float32)
        grey = np.empty(frames_db.shape, bool)
        for row, index in enumerate(range(self.source.first_frame + start, self.source.first_frame + stop)):
            planes = self._file.read(index)
            frames_db[row], grey[row] = self._to_db(planes[0], index), grey_in(planes)
        return frames_db, None if grey.all() else grey


def grey_in(planes: np.ndarray) -> np.ndarray:
    """``(H, W)`` bool: where a frame ``(3, H, W)`` uint8 of Y, Cb and Cr over their full range shows no colour."""
    if planes[1:].min() >= 128 - _FAINT and planes[1:].max() <= 128 + _FAINT:
        return np.ones(planes.shape[1:], bool)
    blue, red = (planes[1:].astype(np.float32) - 128) * _CHROMA.astype(np.float32)[:, None, None]
    green = -(0.114 * blue + 0.299 * red) / 0.587
    differences = np.stack([blue, red, green])
    return np.asarray(np.ptp(differences, axis=0) <= _COLOUR)
