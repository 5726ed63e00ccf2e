"""The two layouts of a cine in MONAI: frames as channels, ``(T, H, W)``, and one channel in time, ``(1, T, H, W)``.

With frames as channels every 2-D transform acts on each frame. With one channel, cines of different length can be
padded and batched, 3-D networks take them as they are, and 2-D networks frame by frame through
``monai.inferers.SliceInferer(roi_size=(H, W), spatial_dim=0)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from monai.utils import convert_data_type

from usdehaze.choices import LAYOUTS, Layout
from usdehaze.cine import Cine


def check_layout(layout: str) -> Layout:
    """The layout itself.

    Raises:
        ValueError: there is no such layout.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r}; expected one of {', '.join(LAYOUTS)}")
    return layout


def n_frames_of(image: Any) -> int:
    """Number of frames of an image in either layout."""
    return int(image.shape[-3])


def array_of(image: Any) -> np.ndarray:
    """An image ``(T, H, W)`` or ``(1, T, H, W)``, whatever its type and device, as a float32 array ``(T, H, W)``."""
    if isinstance(image, np.ndarray):  # read-only ones and other byte orders are not for torch
        array = np.ascontiguousarray(image, np.float32)
    else:
        array = convert_data_type(image, torch.Tensor, device="cpu", dtype=torch.float32)[0].detach().numpy()
    return array[0] if array.ndim == 4 and len(array) == 1 else array


def plane_affine(affine: Any) -> np.ndarray:
    """``(3, 3)`` from pixel ``(row, column)`` to mm, of an affine in either layout; NaN where time and space mix."""
    matrix = np.asarray(affine, np.float64)
    if matrix.shape != (4, 4):
        return matrix
    mixed = matrix[1:3, 0].any() or matrix[0, 1:3].any()
    return np.full((3, 3), np.nan) if mixed else matrix[1:, 1:]


def time_affine(plane: np.ndarray, cine: Cine) -> np.ndarray:
    """``(4, 4)`` from pixel ``(frame, row, column)`` to s and mm; frames are 1 apart where no times are known."""
    affine = np.eye(4)
    affine[1:, 1:] = plane
    times_s = cine.frame_times_s
    if times_s is not None and len(times_s) > 1 and times_s[-1] > times_s[0]:
        affine[0, 0] = (times_s[-1] - times_s[0]) / (len(times_s) - 1)
        affine[0, 3] = times_s[0]
    return affine
