"""Smoothing and opening, against scipy."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from usdehaze.diffusion.smooth import average, opening


@pytest.fixture
def frames() -> torch.Tensor:
    return torch.rand(2, 1, 40, 33, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("cells", [0.7, 2.0, 7.75])
def test_average_is_the_gaussian_filter_of_scipy(frames, cells):
    reach = int(np.ceil(3 * cells))
    expected = np.stack([ndimage.gaussian_filter(f, cells, mode="nearest", radius=reach) for f in frames[:, 0].numpy()])
    assert np.allclose(average(frames, cells)[:, 0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("window", [3, 9, 31])
def test_opening_is_the_grey_opening_of_scipy(frames, window):
    expected = np.stack([ndimage.grey_opening(f, (window, window), mode="nearest") for f in frames[:, 0].numpy()])
    assert np.array_equal(opening(frames, window)[:, 0].numpy(), expected)
