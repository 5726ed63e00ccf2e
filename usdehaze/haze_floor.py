"""A first guess of the haze: what no structure of the frame stands out of."""

from __future__ import annotations

from torch import Tensor

from usdehaze.diffusion.smooth import average, opening

GRAIN = 2.0  # deviation of the average that takes speckle off, cells of the model grid
BELOW = 4 / 60  # model units: tissue adds to every level, so that haze lies lower than what is seen
DEVIATION = 5 / 60  # of the guess, model units


def haze_floor(y: Tensor, window: int) -> Tensor:
    """Level that haze has at most, wherever it is smooth: the opened, smoothed frame less 4 dB of 60.

    Walls stand out of haze and are narrower than a window, haze is not: grey-level opening keeps what fills a window.
    So does it keep tissue that fills one; what became of that is decided by the priors, who see this only under noise.

    Args:
        y: ``(B, 1, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB).
        window: side of the square, cells of the model grid, odd.
    """
    return average(opening(average(y, GRAIN), window), window / 4) - BELOW
