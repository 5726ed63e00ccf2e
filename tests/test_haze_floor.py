"""The first guess of haze."""

import torch

from usdehaze.haze_floor import BELOW, haze_floor


def test_a_wall_over_even_haze_leaves_the_guess_at_the_level_of_the_haze():
    y = torch.full((1, 1, 128, 128), 0.5)
    y[..., 40:90, 60:72] = 0.9
    assert torch.allclose(haze_floor(y, 31), torch.full_like(y, 0.5 - BELOW), atol=1e-5)


def test_haze_that_fades_with_depth_is_followed():
    depth = torch.linspace(0, 1, 128)[:, None].expand(128, 128)
    y = (0.6 - 0.5 * depth)[None, None].contiguous()
    inside = slice(24, -24)
    assert float((haze_floor(y, 31) - y + BELOW)[..., inside, inside].abs().max()) < 0.02


def test_a_black_chamber_keeps_haze_from_its_surroundings():
    y = torch.full((1, 1, 128, 128), 0.6)
    y[..., 40:100, 40:100] = 0.0
    guess = haze_floor(y, 31)
    assert float(guess[0, 0, 70, 70]) < 0.01


def test_frames_of_a_batch_do_not_touch_one_another():
    y = torch.rand(3, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(haze_floor(y, 21)[1:2], haze_floor(y[1:2], 21), atol=1e-7)
