"""A camera or frame grabber."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from threading import Event

from usdehaze.errors import InputError
from usdehaze.geometry.sector import FRAMES_USED
from usdehaze.io.ffmpeg import Device, Grabber
from usdehaze.io.images.film import picture_of
from usdehaze.io.reading import Reading
from usdehaze.live.stream import Frame, Frames, FrameSource, Stream, found_in

KINDS = ("v4l2", "avfoundation", "dshow")  # Linux, macOS, Windows


class VideoDevice(FrameSource):
    """Frames of a video device by ffmpeg: luma over the full range; what is coloured stays as it is.

    Args:
        device: which.
        name: as the user named it.
        reading: what it leaves unsaid.
    """

    first_frames = FRAMES_USED

    def __init__(self, device: Device, name: str, reading: Reading) -> None:
        self.name, self._device, self._reading = name, device, reading
        self._grabber: Grabber | None = None

    def frames(self, every: bool, stop: Event) -> Frames:
        grabber = self._grabber = Grabber(self._device, self.name)
        while not stop.is_set():
            planes = grabber.read()
            if planes is not None:
                yield Frame(time.monotonic(), planes[0], partial(picture_of, planes))
            elif not stop.is_set():
                raise InputError(self.name, "gives no more pictures", advice="see whether it is still plugged in")

    def stream(self, first: list[Frame]) -> Stream:
        return found_in(first, self.name, self._reading, f"video device ({self._device.format})")

    def interrupt(self) -> None:
        if self._grabber is not None:
            self._grabber.stop()

    def close(self) -> None:
        if self._grabber is not None:
            self._grabber.close()


def device_of(name: str) -> Device | None:
    """The device that a name stands for: "/dev/video0" on Linux, else "avfoundation:0", "dshow:video=..." and the like;
    None for any other name."""
    kind, _, rest = name.partition(":")
    if kind in KINDS and rest:
        return Device(kind, rest)
    return Device("v4l2", name) if Path(name).is_char_device() else None
