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
    if weights is not None:
        weighted = _weighted_on_cpu if values.device.type == "cpu" else _weighted
        return weighted(values, places, weights)
    if len(values) == 1:
        return values.expand(len(places), *values.shape[1:])
    rows = values.movedim(0, -1).contiguous()
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


def _weighted(values: Tensor, places: Sequence[float], weights: Tensor) -> Tensor:
    """Quantiles along the first axis of values with weights."""
    rows = values.movedim(0, -1).contiguous()
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


def _weighted_on_cpu(values: Tensor, places: Sequence[float], weights: Tensor) -> Tensor:
    """The same values in half the time: float32 and its place in the list are one whole number, sorted as such."""
    n, shape = len(values), values.shape[1:]
    rises = (values[1:] >= values[:-1]).flatten(1).all(1)
    if bool(rises.all()):
        return _of_rising(values, places, weights)
    if n in range(2, 65, 2) and int(rises.sum()) == n - 2 and not rises[n // 2 - 1]:
        return _of_two_rising(values, places, weights)
    bits = (n - 1).bit_length()
    whole = (values.reshape(n, -1).numpy().T + np.float32(0)).view(np.int32)  # -0 equals 0
    keys = (whole ^ ((whole >> 31) & 0x7FFFFFFF)).astype(np.int64, order="C")  # order as the floats
    keys <<= bits
    keys |= np.arange(n)
    keys.sort(axis=-1)
    keys = np.ascontiguousarray(keys.T)
    whole = (keys >> bits).astype(np.int32)
    ordered = (whole ^ ((whole >> 31) & 0x7FFFFFFF)).view(np.float32)
    shares = weights.double().numpy().take(keys & ((1 << bits) - 1))
    middles = shares.copy()
    for i in range(1, n):  # np.cumsum along the first axis takes ten times as long
        middles[i] += middles[i - 1]
    middles -= shares / 2
    pixels, found = np.arange(keys.shape[1]), []
    for place in places:
        above = (middles < place).sum(axis=0, dtype=np.int64)
        low, high = (above - 1).clip(0), above.clip(max=n - 1)
        apart = middles[high, pixels] - middles[low, pixels]
        share = np.where(low == high, 0.0, (place - middles[low, pixels]) / np.where(low == high, 1.0, apart))
        below, over = (torch.from_numpy(ordered[at, pixels]) for at in (low, high))
        found.append(below.lerp(over, torch.from_numpy(share).float()).reshape(shape))
    return torch.stack(found)


def _of_rising(values: Tensor, places: Sequence[float], weights: Tensor) -> Tensor:
    """The same values where they rise along the first axis everywhere, as the quantiles of a single sample do."""
    shares, n = weights.double(), len(values)
    middles, found = shares.cumsum(0) - shares / 2, []
    for place in places:
        above = int((middles < place).sum())
        low, high = max(above - 1, 0), min(above, n - 1)
        share = 0.0 if low == high else float((place - middles[low]) / (middles[high] - middles[low]))
        below, over = values[low] + 0.0, values[high] + 0.0  # -0 equals 0
        found.append(below.lerp(over, torch.full_like(below, share)))
    return torch.stack(found)


def _of_two_rising(values: Tensor, places: Sequence[float], weights: Tensor) -> Tensor:
    """The same values where either half of them rises, as the quantiles of two samples do: by counting, not sorting."""
    half, shape = len(values) // 2, values.shape[1:]
    rows = values.reshape(2, half, -1).numpy() + np.float32(0)  # -0 equals 0
    shares = weights.double().numpy().reshape(2, half)
    before = np.zeros(rows.shape, np.int8)  # of the other half; of equal values those of the first half come first
    for i in range(half):
        for j in range(half):
            later = rows[1, j] < rows[0, i]
            before[0, i] += later
            before[1, j] += ~later
    sums = np.pad(shares.cumsum(axis=1), ((0, 0), (1, 0)))
    # of a row, by how many of the other half lie before it
    middles = [sums[k, :-1, None] + shares[k, :, None] / 2 + sums[1 - k] for k in (0, 1)]
    pixels, found = np.arange(rows.shape[2]), []
    for place in places:
        ends = []  # (middle, value) of the last below the place and of the first not below it, of each half
        for k in (0, 1):
            most = (middles[k] < place).sum(axis=1).astype(np.int8)
            count = (before[k] < most[:, None]).sum(axis=0, dtype=np.intp)
            for at, there, nowhere in ((count - 1, count > 0, -np.inf), (count, count < half, np.inf)):
                at = at.clip(0, half - 1)
                ends.append((np.where(there, middles[k][at, before[k, at, pixels]], nowhere), rows[k, at, pixels]))
        low, below = _chosen(ends[0][0] > ends[2][0], ends[0], ends[2])
        high, over = _chosen(ends[1][0] < ends[3][0], ends[1], ends[3])
        below, over = np.where(low == -np.inf, over, below), np.where(high == np.inf, below, over)
        between = np.isfinite(high - low)  # beyond the outermost both ends are one
        share = np.where(between, place - low, 0.0) / np.where(between, high - low, 1.0)
        low_end, high_end, share_of = (torch.from_numpy(each.astype(np.float32)) for each in (below, over, share))
        found.append(low_end.lerp(high_end, share_of).reshape(shape))
    return torch.stack(found)


def _chosen(first: np.ndarray, one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of two pairs of arrays the first one where ``first``, else the other."""
    return [np.where(first, a, b) for a, b in zip(one, other, strict=True)]


def spread(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Standard deviation along the first axis of ``(N, ...)`` values, with weights that sum to 1 or of a sample; of a
    single value 0."""
    if weights is None:
        return values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    share = weights.to(values).reshape(-1, *[1] * (values.ndim - 1))
    return ((values - (share * values).sum(0)).square() * share).sum(0).sqrt()
