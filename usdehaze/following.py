"""Which frames of a cine may start from the result of the frame before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor

CELLS = 16  # along depth and angle, whose means are compared
ALIKE = 0.9  # least correlation: 0.96 to 0.99 between frames of real cines, 0.5 to 0.95 between diastole and systole


def ranks(frames: Sequence[int], alike: Sequence[bool], group: int) -> list[int]:
    """How many frames before it each frame hangs on: 0 starts afresh, r + 1 starts from the frame a place before, of r.

    Args:
        frames: index of each frame in its source, rising.
        alike: for each frame whether it looks like the one a place before.
        group: see `usdehaze.cine.blocks`; a group's first frame starts afresh.
    """
    found: list[int] = []
    for place, frame in enumerate(frames):
        follows = place > 0 and frame == frames[place - 1] + 1 and frame % group > 0 and alike[place]
        found.append(found[-1] + 1 if follows else 0)
    return found


def look_alike(y: Tensor, seen: Tensor) -> list[bool]:
    """Whether each frame shows what the frame before shows, speckle aside; False for the first.

    The means of 16 x 16 cells must correlate: stills of an image folder, or a cut to another view, do not.

    Args:
        y: ``(B, depth, angle)`` in [0, 1].
        seen: ``(depth, angle)`` 1.0 where there is image data.
    """
    share = F.adaptive_avg_pool2d(seen[None], CELLS)[0]
    counts = share > 0.5
    cells = [F.adaptive_avg_pool2d((frame * seen)[None], CELLS)[0][counts].double() / share[counts] for frame in y]
    cells = [values - values.mean() for values in cells]
    return [False, *(bool(a @ b > ALIKE * ((a @ a) * (b @ b)).sqrt()) for a, b in pairwise(cells))]
