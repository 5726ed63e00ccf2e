"""From the last levels of a frame's chains to one answer: docs/method.md, "From chains to one answer"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from usdehaze.diffusion.smooth import average

VOTE = 0.375  # place of the vote that counts, from most removed (0) to least (1); see docs/method.md
ONSET_DB = 3.0  # a vote for so much removal gets two thirds of the deepening
BLACK_DB = (8.0, 12.0)  # levels above the floor: all of the deepening up to the first, none of it from the second
BRIGHT_DB = (20.0, 32.0)  # none of it up to the first, all of it from the second
LEVEL_CELLS = 2.0  # deviation of the Gaussian that this level is averaged over, pixels


def elect(
    frame: Tensor,
    estimates: Sequence[tuple[Tensor, Tensor]],
    chains: int,
    *,
    joint: bool = True,
    additive: bool = False,
) -> tuple[Tensor, Tensor]:
    """One gain of the tissue and one level of the haze from what every chain says at every level.

    Args:
        frame: ``(B * chains, 1, depth, angle)`` in [0, 1], each frame repeated for its chains.
        estimates: tissue and haze of ``frame``'s shape, one pair a level.
        chains: of a frame.
        joint: there is a haze prior; without one haze is what is not tissue.
        additive: tissue and haze add as values, not as powers.

    Returns:
        Gain in [-1, 0] and level in [0, 1], each ``(B, depth, angle)``.
    """
    gains, levels = [], []
    for x, n in estimates:
        # The stronger echo sets the level: where haze is stronger, tissue lies below the frame by x - n.
        gains.append((x - frame if additive or not joint else x - n).clamp(-1, 0))
        levels.append((n if joint else frame - x).clamp(0, 1))
    # (levels, B, chains, depth, angle) -> every vote on a frame along the first axis
    ballots = torch.stack([torch.stack(gains), torch.stack(levels)])
    ballots = ballots.reshape(2, len(gains), -1, chains, *frame.shape[2:]).transpose(2, 3).flatten(1, 2)
    return quantile(ballots[0], VOTE), quantile(ballots[1], VOTE)


def deepen(gain: Tensor, frame: Tensor, dynamic_range_db: float, most_db: float) -> Tensor:
    """Lowers tissue that lies under haze towards where it lies on frames whose truth is known.

    Estimates of what haze hides are drawn towards the haze over it, and the vote that counts is a cautious one: on such
    frames tissue is lower than that. How much lower depends on what the vote says, hardly anything where it says next
    to nothing, and on how bright the haze is, since there is more room beneath bright haze. Haze that is all but black
    goes to black; between the two lie the dim walls of many scans, which are left to the votes.

    Args:
        gain: ``(B, depth, angle)`` in [-1, 0], what the vote says; 1 is the dynamic range.
        frame: ``(B, 1, depth, angle)`` in [0, 1].
        dynamic_range_db: dB that [0, 1] spans.
        most_db: dB to lower by where the vote is clear and the frame, averaged over speckle, bright or all but black.

    Returns:
        Gain in [-1, 0], nowhere above ``gain``, and 0 where that is 0.
    """
    level_db = average(frame, LEVEL_CELLS)[:, 0] * dynamic_range_db
    black = (BLACK_DB[1] - level_db) / (BLACK_DB[1] - BLACK_DB[0])
    bright = (level_db - BRIGHT_DB[0]) / (BRIGHT_DB[1] - BRIGHT_DB[0])
    share = torch.maximum(black, bright).clamp(0, 1)
    decided = -torch.expm1(-((gain * dynamic_range_db / ONSET_DB) ** 2))
    return (gain - decided * share * most_db / dynamic_range_db).clamp(min=-1)


def quantile(values: Tensor, place: float) -> Tensor:
    """Quantile along the first axis, linear between neighbours (torch.quantile stops at 16 million values)."""
    if values.device.type == "cpu":  # NumPy's vectorised sort of short rows takes a tenth of the time
        rows = values.movedim(0, -1).contiguous().numpy()
        ordered = torch.from_numpy(np.sort(rows, axis=-1)).movedim(-1, 0)
    else:
        ordered = values.sort(0).values
    at = place * (len(ordered) - 1)
    low = int(at)
    return ordered[low].lerp(ordered[min(low + 1, len(ordered) - 1)], at - low)
