"""Runs of frames cut into blocks."""

import pytest

from usdehaze.cine import blocks


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
