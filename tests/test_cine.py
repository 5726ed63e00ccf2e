"""Runs of frames cut into blocks."""

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Cine, Polar, blocks


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
