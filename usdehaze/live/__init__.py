"""Live: frames dehazed as they come, with bounded latency. What cannot be kept up with is dropped, never queued."""

from usdehaze.live.loop import run
from usdehaze.live.sources import open_source

__all__ = ["open_source", "run"]
