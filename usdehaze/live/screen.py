"""Where results are seen as they are made."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from usdehaze.cine import Polar
from usdehaze.decibels import db_to_grey
from usdehaze.live.stream import Frame
from usdehaze.preview import as_scanned, pitch_m
from usdehaze.result import Result

MOST_VIEWERS = 4  # of a screen
TICK_S = 0.1  # how long a wait lasts until it looks whether it is still wanted


@dataclass(frozen=True)
class Shown:
    """A frame and what it came to.

    Attributes:
        result: of this one frame.
        frame: as it came.
    """

    result: Result
    frame: Frame

    def picture(self, estimate: str) -> np.ndarray:
        """ "tissue" or "haze" as ``(H, W)`` uint8, polar frames as the fan that a scanner shows."""
        cine = self.result.cine
        grey = db_to_grey(getattr(self.result, estimate)[0], cine.dynamic_range_db)
        return as_scanned(grey, cine.geometry)

    @property
    def matrix(self) -> np.ndarray:
        """``(4, 4)`` from (column, row, slice, 1) of a picture to mm: as sent, else from the spacing of the pixels."""
        if self.frame.sent is not None:
            return self.frame.sent.matrix
        geometry, matrix = self.result.cine.geometry, np.eye(4)
        if isinstance(geometry, Polar):
            matrix[0, 0] = matrix[1, 1] = 1000 * pitch_m(geometry)
        elif geometry.spacing_m is not None:
            down_m, across_m = geometry.spacing_m
            matrix[0, 0], matrix[1, 1] = 1000 * across_m, 1000 * down_m
        return matrix


def listens(connection: socket.socket) -> bool:
    """Whether who looks on is still there; what they say is passed over."""
    while select.select([connection], [], [], 0)[0]:
        if not connection.recv(2**16):
            return False
    return True


class Screen(Protocol):
    """Shows the newest result and waits for nobody."""

    def show(self, shown: Shown) -> None:
        """A newer result; returns at once."""

    def close(self) -> None:
        """No more comes."""
