"""Runs of frames cut into blocks."""

import numpy as np
import pytest
import torch

from usdehaze.cine import Cartesian, Cine, Polar, blocks
from usdehaze.result import Result


@pytest.mark.parametrize(
    ("n_frames", "most", "expected"),
    [
        (7, 3, [slice(0, 3), slice(3, 6), slice(6, 7)]),
        (6, 3, [slice(0, 3), slice(3, 6)]),
        (2, 100, [slice(0, 2)]),
    ],
)
def test_blocks_are_the_whole_run_in_order_and_as_large_as_they_may_be(n_frames, most, expected):
    assert list(blocks(n_frames, most)) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"geometry": Polar(np.linspace(0.1, 0, 4), np.linspace(-0.5, 0.5, 5))}, "must increase"),
        ({"geometry": Polar(np.full(4, np.nan), np.linspace(-0.5, 0.5, 5))}, "must increase"),
        ({"geometry": Polar(np.linspace(0, 0.1, 5), np.linspace(-0.5, 0.5, 4))}, "does not fit"),
        ({"frame_times_s": np.arange(3.0)}, r"frame times have shape \(3,\)"),
        ({"tissue_mask": np.ones((2, 5, 4), bool)}, "tissue mask has shape"),
        ({"tissue_mask": [True]}, r"tissue mask has shape \(1,\)"),
        ({"frames": np.zeros((4, 5), np.float32)}, r"must be \(T, H, W\) and not empty, found \(4, 5\)"),
        ({"frames": np.zeros((2, 4, 5))}, r"found an array of float64; make one: np.asarray\(frames"),
        ({"frames": [[[0.0]]]}, "must be an array of float32, found list; make one"),
        ({"frames": torch.zeros(2, 4, 5)}, "must be an array of float32, found Tensor; make one"),
        ({"geometry": Polar(np.linspace(0, 0.1, 4), np.linspace(-37, 37, 5))}, "angles are in rad"),
        ({"geometry": Cartesian((0.0, 3e-4))}, "pixel spacing must be two positive numbers"),
        ({"geometry": Cartesian((float("nan"), 3e-4))}, "pixel spacing must be two positive numbers"),
        ({"geometry": Cartesian((3e-4,))}, "pixel spacing must be two positive numbers"),
        ({"geometry": None}, "must be Polar or Cartesian, found NoneType"),
        ({"frame_times_s": np.array([0, np.nan])}, "finite numbers of seconds"),
        ({"frame_times_s": ["0", "1"]}, "finite numbers of seconds"),
    ],
)
def test_what_does_not_fit_the_frames_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Cine(**{"frames": np.zeros((2, 4, 5), np.float32), "geometry": Cartesian(), **given})


def test_what_is_printed_shows_no_pixel_and_cines_can_be_told_apart():
    frames = np.full((2, 4, 5), -31.25, np.float32)
    cine, other = (Cine(frames, Cartesian(), 40.0) for _ in range(2))
    assert repr(cine) == "Cine(2 frames of 4 x 5, 40 dB, Cartesian)" and cine != other and len({cine, other, cine}) == 2
    result = Result(cine, frames, frames, None, {"preset": "fast"})
    assert repr(result) == f"Result({cine!r}, {{'preset': 'fast'}})" and "31" not in repr(result)
