"""Which frames of a cine start from the result of the frame before."""

import pytest
import torch

from usdehaze.following import look_alike, ranks
from usdehaze.simulate import simulate_cine

ALL = torch.ones(64, 64)


@pytest.mark.parametrize(
    ("frames", "group", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], 4, [0, 1, 2, 3, 0, 1]),
        ([6, 7, 8, 9], 4, [0, 1, 0, 1]),  # the run begins within a group
        ([0, 1, 3, 4], 8, [0, 1, 0, 1]),  # frame 2 is not there
        ([0, 1, 2], 1, [0, 0, 0]),
        ([5], 4, [0]),
    ],
)
def test_a_frame_hangs_on_those_before_it_in_its_group(frames, group, expected):
    assert ranks(frames, [False, *[True] * (len(frames) - 1)], group) == expected


def test_a_frame_unlike_the_one_before_starts_afresh():
    assert ranks(range(6), [False, True, False, True, True, False], 8) == [0, 1, 0, 1, 2, 0]


def test_frames_of_one_cine_look_alike_and_a_cut_does_not():
    one, other = (torch.from_numpy(simulate_cine(3, s, n_depth=64, n_angle=64).hazy / 60 + 1) for s in (3, 4))
    assert look_alike(torch.cat([one, other]), ALL) == [False, True, True, False, True, True]


def test_speckle_alone_does_not_make_frames_differ():
    ramp = torch.linspace(0.2, 0.8, 64)[:, None].expand(64, 64)
    speckle = 0.1 * torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.corrcoef((ramp + speckle).flatten(1))[0, 1] < 0.9
    assert look_alike(ramp + speckle, ALL) == [False, True]


def test_what_is_no_image_does_not_count():
    seen = ALL.clone()
    seen[:, 32:] = 0
    frames = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(0))
    frames[1, :, :32] = frames[0, :, :32]
    frames[1, :, 32:] = 1 - frames[0, :, 32:]
    assert look_alike(frames, seen) == [False, True]
    assert look_alike(frames, ALL) == [False, False]


def test_frames_of_one_value_are_like_nothing():
    assert look_alike(torch.full((2, 64, 64), 0.5), ALL) == [False, False]
