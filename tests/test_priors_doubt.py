"""Spreads that come from measured errors."""

import math

import pytest
import torch

from usdehaze.priors.doubt import Doubted
from usdehaze.priors.objective import held_out_loss
from usdehaze.priors.prior import Prior
from usdehaze.simulate import training_frames


@pytest.fixture(scope="module")
def haze() -> Prior:
    return Prior.load("haze", "haze")


def test_spread_at_a_measured_level_is_the_factor_times_the_measured_error(haze):
    measured = {float(sigma): error * float(sigma) ** 2 for sigma, error in haze.card["held_out"].items()}
    for sigma in (0.1, 0.3, 1.0):
        assert Doubted(haze, 2.5).spread(sigma) == pytest.approx(2.5 * measured[sigma], rel=1e-6)


def test_errors_between_two_levels_lie_on_a_line_in_logarithms(haze):
    between = math.sqrt(0.1 * 0.3)
    low, high = (Doubted(haze, 1.0).spread(s) for s in (0.1, 0.3))
    assert Doubted(haze, 1.0).spread(between) == pytest.approx(math.sqrt(low * high), rel=1e-6)


def test_a_spread_is_never_larger_than_the_priors_own(haze):
    assert Doubted(haze, 1e6).spread(0.3) == haze.spread(0.3)
    assert Doubted(haze, 1.0).spread(1e6) == haze.spread(1e6)


def test_a_prior_that_was_not_measured_keeps_its_own_spread(haze):
    bare = Prior(haze.network, {k: v for k, v in haze.card.items() if k != "held_out"})
    assert Doubted(bare, 3.0).spread(0.3) == haze.spread(0.3)


def test_measured_errors_are_those_of_the_shipped_prior_on_fresh_frames(haze):
    frames = training_frames("haze", 16, torch.Generator().manual_seed(77))
    (error,) = held_out_loss(haze, frames, (0.3,))
    assert Doubted(haze, 1.0).spread(0.3) == pytest.approx(error * 0.3**2, rel=0.4)


def test_estimates_are_the_priors_own(haze):
    x = torch.rand(1, 1, 128, 128)
    assert torch.equal(Doubted(haze, 4.0)(x, 0.5), haze(x, 0.5))
    assert Doubted(haze, 4.0).data_mean == haze.data_mean
