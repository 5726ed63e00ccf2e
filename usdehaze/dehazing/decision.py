"""From the posterior samples of a frame to what is applied: a quantile in every pixel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def quantiles(values: Tensor, places: Sequence[float], weights: Tensor | None = None) -> Tensor:
    """Quantiles along the first axis.

    Without weights they are linear between neighbours: the lowest value lies at 0, the highest at 1
    (``torch.quantile``, which stops at 16 million values). With weights each value lies at the mid-point of its own
    share of the whole, the lowest at half its weight; they are linear between these points, and beyond the outermost
    ones stay as they are there.

    Args:
        values: ``(N, ...)``, any unit.
        places: each in [0, 1].
        weights: ``(N,)`` positive, summing to 1, one for each value; None for equal ones.

    Returns:
        ``(places, *values.shape[1:])``, in the unit of the values.
    """
    rows = values.movedim(0, -1).contiguous()
    if weights is not None:
        return _weighted(rows, places, weights)
    if values.device.type == "cpu":  # NumPy's vectorised sort of short rows takes a tenth of the time
        ordered = torch.from_numpy(np.sort(rows.numpy(), axis=-1))
    else:
        ordered = rows.sort(-1).values
    found = []
    for place in places:
        at = place * (len(values) - 1)
        low = int(at)
        found.append(ordered[..., low].lerp(ordered[..., min(low + 1, len(values) - 1)], at - low))
    return torch.stack(found)


def _weighted(rows: Tensor, places: Sequence[float], weights: Tensor) -> Tensor:
    """Quantiles along the last axis of values with weights."""
    if rows.device.type == "cpu":
        order = torch.from_numpy(np.argsort(rows.numpy(), axis=-1, kind="stable"))
    else:
        order = rows.sort(dim=-1, stable=True).indices
    ordered, shares = rows.gather(-1, order), weights.to(rows.device, torch.float64)[order]
    middles = shares.cumsum(-1) - shares / 2
    found = []
    for place in places:
        above = (middles < place).sum(-1, keepdim=True)  # the first value that does not lie below the place
        ends = torch.cat([above - 1, above], -1).clamp(0, rows.shape[-1] - 1)
        low, high = middles.gather(-1, ends).unbind(-1)
        share = ((place - low) / (high - low)).nan_to_num(0.0, 0.0, 0.0)  # beyond the outermost both ends are one
        below, over = ordered.gather(-1, ends).unbind(-1)
        found.append(below.lerp(over, share.to(rows.dtype)))
    return torch.stack(found)


def spread(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Standard deviation along the first axis of ``(N, ...)`` values, with weights that sum to 1 or of a sample; of a
    single value 0."""
    if weights is None:
        return values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    share = weights.to(values).reshape(-1, *[1] * (values.ndim - 1))
    return ((values - (share * values).sum(0)).square() * share).sum(0).sqrt()
