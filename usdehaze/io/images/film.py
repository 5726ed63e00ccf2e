"""Films -> Scan: MP4, AVI and what else ffmpeg plays, EchoNet-Dynamic's among them."""

from __future__ import annotations

import numpy as np

from usdehaze.io.ffmpeg import Decoder, look_through
from usdehaze.io.picture import Picture
from usdehaze.io.stored_cine import StoredCine, rising
from usdehaze.io.stored_scan import StoredScan
from usdehaze.notes import Guess

_FAINT = 5  # units of Cb and Cr that cannot make as much colour as counts: GREY_SPREAD of a picture / sum(_CHROMA)
_CHROMA = np.array([1.772, 1.402])  # blue and red less luma, a unit of Cb and of Cr (ITU-R BT.601)


class FilmScan(StoredScan):
    """Frames of a film: the luma over its full range, at the times that the film shows them."""

    _file: Decoder | None = None

    def _open(self) -> StoredCine:
        film = look_through(self.path)
        decoder = self._file = Decoder(self.path, film.size, self.path, "its first frame")
        times, notes = rising(film.times_s), list[str]()
        if film.damaged:
            note = "The film seems damaged or cut off: frames may be missing, or partly made up by the decoder."
            notes.append(Guess(note, "a film that is whole"))
        if times is not None:
            rate = (len(times) - 1) / (times[-1] - times[0])
            notes.append(f"Frame times are those of the film, {rate:.4g} frames/s.")
        is_square = abs(film.pixel_aspect - 1) <= 0.01 or not 0.2 <= film.pixel_aspect <= 5
        if not is_square:
            notes.append(f"The film is to be shown with pixels {film.pixel_aspect:.3g} times as wide as high.")
        return StoredCine(
            "film",
            "",
            (len(film.times_s), *film.size),
            np.dtype(np.uint8),
            lambda index: decoder.read(index)[0],
            aspect=1.0 if is_square else 1 / film.pixel_aspect,
            frame_times_s=times,
            assumptions=tuple(notes),
            picture=lambda index: picture_of(decoder.read(index)),
        )


def picture_of(planes: np.ndarray) -> Picture:
    """A frame ``(3, H, W)`` uint8 of Y, Cb and Cr over their full range."""
    if _is_faint(planes):
        return Picture(planes[0])
    rgb = planes[0][..., None] + _differences(planes)
    return Picture(planes[0], np.clip(np.rint(rgb), 0, 255).astype(np.uint8))


def _is_faint(planes: np.ndarray) -> bool:
    """Whether no pixel has as much colour as counts."""
    return bool(planes[1:].min() >= 128 - _FAINT and planes[1:].max() <= 128 + _FAINT)


def _differences(planes: np.ndarray) -> np.ndarray:
    """``(H, W, 3)`` red, green and blue less luma."""
    blue, red = (planes[1:].astype(np.float32) - 128) * _CHROMA.astype(np.float32)[:, None, None]
    return np.stack([red, -(0.114 * blue + 0.299 * red) / 0.587, blue], axis=-1)
