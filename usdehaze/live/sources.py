"""From what a user names to where frames come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from usdehaze.errors import InputError
from usdehaze.io.reading import Reading
from usdehaze.live.device import VideoDevice, device_of
from usdehaze.live.folder import Folder
from usdehaze.live.igtl import SCHEME, IgtlSource
from usdehaze.live.recorded import Recorded
from usdehaze.live.stream import FrameSource


def open_source(name: str, reading: Reading | None = None, tell: Callable[[str], None] = print) -> FrameSource:
    """Where frames come from.

    Args:
        name: a folder that images are written to; a video device ("/dev/video0", "avfoundation:0", "dshow:video=...");
            "igtl://HOST:PORT" or "igtl://HOST:PORT/DEVICE", an OpenIGTLink server; or a scan, which is played.
        reading: what the frames leave unsaid.
        tell: told of what happens on the way, in sentences.

    Raises:
        InputError: there is no such thing, or it cannot be read.
        UsdehazeError: it needs a package that is not installed.
    """
    reading = reading or Reading()
    path, device = Path(name), device_of(name)
    recorded = device is None and not name.startswith(SCHEME) and not path.is_dir()
    if recorded:
        return Recorded(path, reading)
    if reading.dataset or reading.axes:
        raise InputError(name, "has no datasets", "no --dataset and no --axes")
    if name.startswith(SCHEME):
        return IgtlSource(name, reading, tell)
    return Folder(path, reading, tell) if device is None else VideoDevice(device, name, reading)
