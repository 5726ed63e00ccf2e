"""gCNR and CNR as MONAI metrics, for MONAI's evaluators and for loops of one's own.

The only module of ``usdehaze.validation`` that needs MONAI; ``usdehaze validate`` does without it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from monai.metrics import CumulativeIterationMetric
from monai.metrics.utils import do_metric_reduction
from monai.utils import MetricReduction

from usdehaze.validation import metrics


class _RegionMetric(CumulativeIterationMetric):
    """A figure of a tissue and a haze region, one a sample and channel (frame)."""

    def __init__(
        self,
        tissue_label: float = 255,
        haze_label: float = 128,
        reduction: MetricReduction | str = MetricReduction.MEAN,
        get_not_nans: bool = False,
    ) -> None:
        super().__init__()
        self.tissue_label, self.haze_label = tissue_label, haze_label
        self.reduction, self.get_not_nans = reduction, get_not_nans

    @abstractmethod
    def _measure(self, tissue: np.ndarray, haze: np.ndarray) -> float:
        """The figure of the pixels of the two regions."""

    def _compute_tensor(self, y_pred: torch.Tensor, y: torch.Tensor | None = None, **kwargs: object) -> torch.Tensor:
        """``(B, C)`` figures of ``(B, C, H, W)`` frames under ``(B, C, H, W)`` or ``(B, 1, H, W)`` labels."""
        if y is None or y_pred.ndim < 3 or y.shape != (len(y_pred), y.shape[1], *y_pred.shape[2:]):
            found = None if y is None else tuple(y.shape)
            raise ValueError(f"y must be labels on the frames of y_pred, found {found} for {tuple(y_pred.shape)}")
        if y.shape[1] not in (1, y_pred.shape[1]):
            raise ValueError(f"y must have 1 or {y_pred.shape[1]} channels, as y_pred has, found {y.shape[1]}")
        frames, labels = map(_array, (y_pred, y.expand(y_pred.shape)))
        figures = torch.full(y_pred.shape[:2], math.nan)
        for b, c in np.ndindex(*figures.shape):
            tissue = frames[b, c][labels[b, c] == self.tissue_label]
            haze = frames[b, c][labels[b, c] == self.haze_label]
            if tissue.size and haze.size:
                figures[b, c] = self._measure(tissue, haze)
        return figures.to(y_pred.device)

    def aggregate(self, reduction: MetricReduction | str | None = None) -> Any:
        """The figures so far, reduced; with ``get_not_nans`` also how many there were.

        Args:
            reduction: of MONAI's modes; None for the one given at construction.
        """
        figures, not_nans = do_metric_reduction(self.get_buffer(), reduction or self.reduction)
        return (figures, not_nans) if self.get_not_nans else figures


def _array(values: torch.Tensor) -> np.ndarray:
    """The values of a tensor wherever it lies, whatever its gradient; of bfloat16, which NumPy has not, in float32."""
    array: np.ndarray = (values.float() if values.dtype == torch.bfloat16 else values).detach().cpu().numpy()
    return array


class GCNRMetric(_RegionMetric):
    """Generalised contrast-to-noise ratio of the tissue region against the haze region, 0 to 1.

    ``y_pred`` holds frames, ``(B, C, H, W)`` or a list of ``(C, H, W)``, on any monotone scale; ``y`` labels of the
    same size, one channel for all frames or one a frame. A frame without pixels of both labels counts as NaN, which
    MONAI's reductions leave out.

    gCNR rewards blackening the haze region and wiping the tissue's texture: report it beside the tissue's KS statistic
    and mean shift (:func:`usdehaze.validation.metrics.ks`, :func:`usdehaze.validation.metrics.mean_shift_db`).

    Args:
        bins: of :func:`usdehaze.validation.metrics.gcnr`: None for equiprobable ones, or how many of equal width.
        tissue_label, haze_label: values of ``y``; by default those of the DehazingEcho2025 challenge.
        reduction: of MONAI's modes, over channels, samples and batches.
        get_not_nans: ``aggregate`` also returns the number of figures.

    Example:
        >>> metric = GCNRMetric()
        >>> frames = torch.tensor([[[[0.0, -1.0, -40.0, -41.0]]]])
        >>> _ = metric(y_pred=frames, y=torch.tensor([[[[255, 255, 128, 128]]]]))
        >>> metric.aggregate().item()
        1.0
    """

    def __init__(
        self,
        bins: int | None = None,
        *,
        tissue_label: float = 255,
        haze_label: float = 128,
        reduction: MetricReduction | str = MetricReduction.MEAN,
        get_not_nans: bool = False,
    ) -> None:
        super().__init__(tissue_label, haze_label, reduction, get_not_nans)
        self.bins = bins

    def _measure(self, tissue: np.ndarray, haze: np.ndarray) -> float:
        return metrics.gcnr(tissue, haze, self.bins)


class CNRMetric(_RegionMetric):
    """Contrast-to-noise ratio ``|mean a - mean b| / sqrt(var a + var b)`` of tissue against haze region; not in dB.

    Arguments, shapes and labels are those of :class:`GCNRMetric`, without ``bins``.
    """

    def _measure(self, tissue: np.ndarray, haze: np.ndarray) -> float:
        return metrics.cnr(tissue, haze)
