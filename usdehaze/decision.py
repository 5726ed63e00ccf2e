"""From the posterior samples of a frame to the one value that is applied: a quantile in every pixel."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def quantile(values: Tensor, place: float, weights: Tensor | None = None) -> Tensor:
    """Quantile along the first axis.

    Without weights it is linear between neighbours: the lowest value lies at 0, the highest at 1 (``torch.quantile``,
    which stops at 16 million values). With weights each value lies at the mid-point of its own share of the whole, the
    lowest at half its weight; it is linear between these points, and beyond the outermost ones stays as it is there.

    Args:
        values: ``(N, ...)``, any unit.
        place: in [0, 1].
        weights: ``(N,)`` positive, summing to 1, one for each value; None for equal ones.

    Returns:
        ``values.shape[1:]``, in the unit of the values.
    """
    rows = values.movedim(0, -1).contiguous()
    if weights is not None:
        return _weighted(rows, place, weights)
    if values.device.type == "cpu":  # NumPy's vectorised sort of short rows takes a tenth of the time
        ordered = torch.from_numpy(np.sort(rows.numpy(), axis=-1))
    else:
        ordered = rows.sort(-1).values
    at = place * (len(values) - 1)
    low = int(at)
    return ordered[..., low].lerp(ordered[..., min(low + 1, len(values) - 1)], at - low)


def _weighted(rows: Tensor, place: float, weights: Tensor) -> Tensor:
    """Quantile along the last axis of values with weights."""
    if rows.device.type == "cpu":
        order = torch.from_numpy(np.argsort(rows.numpy(), axis=-1, kind="stable"))
    else:
        order = rows.sort(dim=-1, stable=True).indices
    shares = weights.to(rows.device, torch.float64)[order]
    middles = shares.cumsum(-1) - shares / 2
    above = (middles < place).sum(-1, keepdim=True)  # the first value that does not lie below the place
    ends = torch.cat([above - 1, above], -1).clamp(0, rows.shape[-1] - 1)
    low, high = middles.gather(-1, ends).unbind(-1)
    share = ((place - low) / (high - low)).nan_to_num(0.0, 0.0, 0.0)  # beyond the outermost both ends are one
    below, over = rows.gather(-1, order.gather(-1, ends)).unbind(-1)
    return below.lerp(over, share.to(rows.dtype))
