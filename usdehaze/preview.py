"""Previews: input, tissue and haze side by side, as a PNG of one frame or a GIF or MP4 of the cine.

The same result gives the same bytes, whenever and wherever it is drawn with the same library versions.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from usdehaze.choices import PREVIEW_KINDS, PreviewKind
from usdehaze.cine import Geometry, Polar
from usdehaze.decibels import db_to_grey
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import blank_screen
from usdehaze.io.film import Film, Gif, Mp4, Png
from usdehaze.io.runs import mark
from usdehaze.io.scan import Scan
from usdehaze.io.sink import Sink

if TYPE_CHECKING:
    from usdehaze.result import Result

PANEL_HEIGHT = 384  # rows of a scan-converted panel
LEAST_STRETCH = 0.005  # pixels that are nearer to squares are shown as they are
LONGEST = 4096  # pixels of a side of a stretched picture: three beside each other fit into a film
CAPTION_HEIGHT, GAP = 20, 4
DEFAULT_FRAME_TIME_S = 0.05
LONGEST_S = 10  # that a frame takes
CAPTIONS = ("input", "tissue", "haze")


def check_kind(kind: str) -> None:
    """Finds out before long work whether a preview of this kind can be drawn.

    Raises:
        UsdehazeError: no such kind, or MP4 without the extra that writes it.
    """
    if kind not in PREVIEW_KINDS:
        raise UsdehazeError(f"preview of kind {kind!r}; expected one of {', '.join(PREVIEW_KINDS)}")
    if kind == "mp4":
        try:
            import imageio_ffmpeg

            imageio_ffmpeg.get_ffmpeg_exe()
        except (ImportError, RuntimeError):
            raise UsdehazeError(
                'an MP4 preview needs ffmpeg; get it with: pip install "usdehaze[video]", or ask for a GIF'
            ) from None


class PreviewWriter(Sink):
    """Draws a preview, a few frames at a time.

    Args:
        path: the image or film to write.
        scan: what the frames come from; they are shown as `as_seen`.
        kind: "png", of the middle frame, "gif" or "mp4".
        overwrite: replace a file that exists.
        with_screen: show what the screen has around the images, names perhaps; it is black by default.

    Raises:
        UsdehazeError: the file exists or cannot be written, or MP4 cannot be made here.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        scan: Scan,
        kind: PreviewKind = "png",
        overwrite: bool = False,
        with_screen: bool = False,
    ) -> None:
        super().__init__(path, scan, overwrite)
        check_kind(kind)
        self.kind: PreviewKind = kind
        self.with_screen = with_screen
        self.shown_s = frame_time_s(scan.frame_times_s)
        self._each_s = each_shown_s(scan.frame_times_s) if kind == "gif" else None
        self._film: Film | None = None

    def _append(self, result: Result) -> None:
        indices = range(len(result.tissue))
        if self.kind == "png":
            middle = self.scan.n_frames // 2 - self.n_done
            indices = indices[max(0, middle) :][: middle >= 0]
        for index in indices:
            picture = picture_of(result, index, self.with_screen)
            if self._film is None:
                made_by = mark(self.scan, result)
                self._film = _FILMS[self.kind](self.part.path, picture.shape, self.shown_s, made_by)
            self._film.add(picture, None if self._each_s is None else float(self._each_s[self.n_done + index]))

    @property
    def untimely(self) -> bool:
        """Whether the film, an MP4, whose times are even, is off by more than a frame."""
        times, step = self.scan.frame_times_s, self.shown_s
        if self.kind != "mp4" or times is None or known_frame_time_s(times) is None:
            return False
        return bool(np.abs(times - times[0] - step * np.arange(len(times))).max() > 1.5 * step)

    def _close(self, complete: bool) -> None:
        if self._film is not None:
            self._film.close()


def side_by_side(panels: list[np.ndarray]) -> np.ndarray:
    """Input, tissue and haze ``(H, W)`` uint8 in a row under captions: uint8, both sides even (as video wants them)."""
    height, width = panels[0].shape
    full_width = len(panels) * width + (len(panels) - 1) * GAP
    canvas = Image.new("L", (full_width + full_width % 2, CAPTION_HEIGHT + height + height % 2))
    draw = ImageDraw.Draw(canvas)
    for index, (panel, caption) in enumerate(zip(panels, CAPTIONS, strict=True)):
        left = index * (width + GAP)
        canvas.paste(Image.fromarray(panel), (left, CAPTION_HEIGHT))
        draw.text((left + 4, 3), caption, fill=255, font=ImageFont.load_default(size=12))
    return np.asarray(canvas)


def scan_convert(frame: np.ndarray, geometry: Polar, height: int = PANEL_HEIGHT) -> np.ndarray:
    """A polar frame as the fan that a scanner shows, for the eye alone: bilinear, black outside.

    Args:
        frame: ``(H, W)`` uint8, rows are depths, columns are angles.
        geometry: depths in m and angles in rad.
        height: rows of the picture.

    Returns:
        ``(height, width)`` uint8 with square pixels.
    """
    from scipy.ndimage import map_coordinates

    depths, angles = np.asarray(geometry.depths_m, np.float64), np.asarray(geometry.angles_rad, np.float64)
    x_min, x_max, z_min, z_max = _bounds_m(geometry)
    pitch = pitch_m(geometry, height)
    width = max(2, round((x_max - x_min) / pitch) + 1)
    z, x = np.meshgrid(np.linspace(z_min, z_max, height), np.linspace(x_min, x_max, width), indexing="ij")
    row = np.interp(np.hypot(x, z), depths, np.arange(len(depths)), left=-2, right=-2)
    column = np.interp(np.arctan2(x, z), angles, np.arange(len(angles)), left=-2, right=-2)
    picture = map_coordinates(frame.astype(np.float64), [row, column], order=1, mode="constant", cval=0.0)
    picture[(row < 0) | (column < 0)] = 0
    return np.rint(picture).astype(np.uint8)


def as_scanned(frame: np.ndarray, geometry: Geometry) -> np.ndarray:
    """A frame ``(H, W)`` uint8 as a scanner shows it: a polar one as a fan, any other as it is."""
    return scan_convert(frame, geometry) if isinstance(geometry, Polar) else frame


def as_seen(frame: np.ndarray, geometry: Geometry) -> np.ndarray:
    """A frame ``(H, W)`` uint8 with square pixels: a polar one as a fan, one whose pixels are not square in about as
    many that are (at most `LONGEST` a side), bilinear; any other as it is."""
    stretch = math.sqrt(geometry.row_per_column)
    if abs(stretch - 1) < LEAST_STRETCH:
        return as_scanned(frame, geometry)
    height, width = frame.shape
    longest = max(width / stretch, height * stretch, LONGEST)
    size = [max(1, round(side * LONGEST / longest)) for side in (width / stretch, height * stretch)]
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BILINEAR))


def pitch_m(geometry: Polar, height: int = PANEL_HEIGHT) -> float:
    """Distance between the pixels of a picture by `scan_convert`, m."""
    _, _, z_min, z_max = _bounds_m(geometry)
    return (z_max - z_min) / (height - 1)


def _bounds_m(geometry: Polar) -> tuple[float, float, float, float]:
    """Least and largest x and z of a fan, m."""
    depths, angles = np.asarray(geometry.depths_m, np.float64), np.asarray(geometry.angles_rad, np.float64)
    outermost = np.clip([angles[0], -np.pi / 2, 0, np.pi / 2, angles[-1]], angles[0], angles[-1])
    x, z = (np.outer(depths[[0, -1]], f(outermost)) for f in (np.sin, np.cos))
    return float(x.min()), float(x.max()), float(z.min()), float(z.max())


def picture_of(result: Result, index: int, with_screen: bool = False) -> np.ndarray:
    """Input, tissue and haze of one frame side by side: ``(H, W)`` uint8."""
    cine = result.cine
    panels = [db_to_grey(a[index], cine.dynamic_range_db) for a in (cine.frames, result.tissue, result.haze)]
    if not with_screen:
        panels = [blank_screen(panel, cine.geometry, 0) for panel in panels]
    return side_by_side([as_seen(panel, cine.geometry) for panel in panels])


def frame_time_s(times: np.ndarray | None) -> float:
    """Time between frames, s; 1/20 s where the file does not say."""
    return known_frame_time_s(times) or DEFAULT_FRAME_TIME_S


def known_frame_time_s(times: np.ndarray | None) -> float | None:
    """Usual time between frames, s; None where the file does not say, or says what no scanner does."""
    if times is None or len(times) < 2:
        return None
    steps = np.diff(times)
    median = np.median(steps)
    usual = steps[np.abs(steps - median) <= abs(median) / 2]  # without pauses
    step = float(usual.mean() if usual.size else median)  # of times in whole ms no single step is the rate
    return step if 0.0005 <= step <= LONGEST_S else None


def each_shown_s(times: np.ndarray | None) -> np.ndarray | None:
    """How long each frame is shown, ``(T,)`` s: until the time of the next, the last one as usual; None where the file
    does not say."""
    usual = known_frame_time_s(times)
    if times is None or usual is None:
        return None
    steps = np.append(np.diff(times), usual)
    return np.where((steps > 0) & (steps <= LONGEST_S), steps, usual)


_FILMS: dict[PreviewKind, type[Film]] = {"png": Png, "gif": Gif, "mp4": Mp4}
