"""Frames as they come, where they come from, and what is known of all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np

from usdehaze.cine import Cine, Geometry, Source
from usdehaze.errors import InputError
from usdehaze.io.picture import Picture
from usdehaze.io.reading import Reading
from usdehaze.io.result import now_utc
from usdehaze.io.scan import Scan
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import OF_ONE_VALUE, StoredScan
from usdehaze.preview import frame_time_s

QUICKEST_S = 0.02  # from frame to frame, that a stream is taken for


@dataclass(frozen=True)
class Sent:
    """What came with a frame over OpenIGTLink, and goes on with what is made of it.

    Attributes:
        matrix: ``(4, 4)`` from (column, row, slice, 1) to mm.
        timestamp_s: of the sender, s since 1970.
        world: whose mm these are: "ras", as of most senders, or "lps".
    """

    matrix: np.ndarray
    timestamp_s: float
    world: str


@dataclass(frozen=True)
class Frame:
    """A frame as it came.

    Attributes:
        came_s: when it was here as a whole, s of ``time.monotonic()``: latency is counted from then.
        values: ``(H, W)`` as its source stores them.
        picture: gives its colours, which of frames that are dropped nobody asks for; None where there can be none.
        mask: ``(H, W)`` bool, False where it is no B-mode, where its source knows that itself.
        at_s: its time in a recording, s; None of what is not one.
        missed: frames that its source left out before it.
        sent: see `Sent`.
    """

    came_s: float
    values: np.ndarray
    picture: Callable[[], Picture] | None = None
    mask: np.ndarray | None = None
    at_s: float | None = None
    missed: int = 0
    sent: Sent | None = None


Frames = Generator[Frame, None, None]


class Stream(Scan):
    """What is known of a stream. As a scan it holds the frames that were dehazed so far, and can give none again.

    Args:
        path: of the source, for messages.
        shape, geometry, dynamic_range_db, source: see `usdehaze.io.scan.Scan`.
        to_db: ``(H, W)`` stored values -> float32 dB.
        frame_time_s: between frames, where it is known.
        b_mode: ``(H, W)`` bool, which pixels of a picture are B-mode; None for all of them.
    """

    frame_times_s = None

    def __init__(
        self,
        path: Path,
        shape: tuple[int, int],
        geometry: Geometry,
        dynamic_range_db: float,
        source: Source,
        to_db: Callable[[np.ndarray], np.ndarray],
        frame_time_s: float | None = None,
        b_mode: Callable[[Picture], np.ndarray | None] = Picture.grey,
    ) -> None:
        self.path, self.shape, self.geometry, self.source = path, shape, geometry, source
        self.dynamic_range_db, self.frame_time_s, self.n_frames = dynamic_range_db, frame_time_s, 0
        self._to_db, self._b_mode = to_db, b_mode
        self._began_s: float | None = None

    def cine_of(self, frame: Frame) -> Cine:
        """A frame as a cine; its time is that of the recording, or since the first one.

        Raises:
            InputError: values that are not numbers.
            Changed: a frame of another shape.
        """
        if frame.values.shape != self.shape:
            found, expected = (f"{height} x {width}" for height, width in (frame.values.shape, self.shape))
            raise Changed(self.path, f"its frames are now {found}", f"{expected} as before", "start again")
        if self._began_s is None:
            self._began_s = frame.came_s
        times = np.array([frame.came_s - self._began_s if frame.at_s is None else frame.at_s])
        b_mode = frame.mask if frame.picture is None else self._b_mode(frame.picture())
        mask = None if b_mode is None else b_mode[None]
        if frame.values.min() == frame.values.max():  # no signal: comes out as it went in
            mask = np.zeros((1, *self.shape), bool)
            if OF_ONE_VALUE not in self.source.assumptions:
                self.source = replace(self.source, assumptions=(*self.source.assumptions, OF_ONE_VALUE))
        return Cine(self._to_db(frame.values)[None], self.geometry, self.dynamic_range_db, times, self.source, mask)

    def blank(self) -> Cine:
        """A frame of nothing."""
        floor = np.full((1, *self.shape), -self.dynamic_range_db, np.float32)
        return Cine(floor, self.geometry, self.dynamic_range_db, None, self.source)

    def read_db(self, start: int, stop: int) -> np.ndarray:
        raise NotImplementedError("frames of a stream come once")

    def close(self) -> None:
        pass


class Changed(InputError):
    """The stream is another than it was."""


def found_in(
    first: list[Frame], name: str, reading: Reading, layout: str, spacing_m: tuple[float, float] | None = None
) -> Stream:
    """What the first frames of a stream show of all of them, found as in a file.

    Args:
        first: at least one.
        name: of the stream.
        reading, layout, spacing_m: see `usdehaze.io.first_frames.FirstFrames`.

    Raises:
        InputError: frames that cannot be used.
    """
    pictures = [Picture(frame.values) if frame.picture is None else frame.picture() for frame in first]
    scan = FirstFrames(f"{name} (live)", pictures, reading, layout, spacing_m)
    source = replace(scan.source, dataset=f"from {now_utc().isoformat(timespec='seconds')}")
    pace_s = max(QUICKEST_S, frame_time_s(np.array([frame.came_s for frame in first])))
    known = scan.shape, scan.geometry, scan.dynamic_range_db, source
    return Stream(Path(name), *known, scan.to_db, pace_s, scan.b_mode)


class FrameSource(ABC):
    """Where frames come from.

    Attributes:
        name: as the user named it, for messages.
        first_frames: that `stream` wants to see.
    """

    name: str
    first_frames: int

    @abstractmethod
    def frames(self, every: bool, stop: Event) -> Frames:
        """Frames as they come, waited for; on a thread of its own.

        Args:
            every: leave none out.
            stop: set when no more are wanted; to be looked at several times a second.

        Raises:
            InputError: nothing can come any more.
        """

    @abstractmethod
    def stream(self, first: list[Frame]) -> Stream:
        """What is known of all frames, by the first ones: so many as ``first_frames``, fewer of a slow source.

        Raises:
            InputError: frames that cannot be used.
        """

    def interrupt(self) -> None:  # noqa: B027 (most look at the event themselves)
        """Ends a wait of `frames` that cannot look at its event; called once that is set."""

    def close(self) -> None:  # noqa: B027 (most have nothing open)
        """Lets go of everything, after `frames` has ended."""


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
