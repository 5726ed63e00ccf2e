import math
from itertools import pairwise

import pytest
import torch

from usdehaze.diffusion.denoiser import Gaussian, score
from usdehaze.diffusion.sde import VE, VP, PaperVE, SubVP, karras_sigmas, times

ALL = [PaperVE(), VE(), VP(), SubVP()]


def slope(function, t, h=1e-5):
    return (function(t + h) - function(t - h)) / (2 * h)


@pytest.mark.parametrize("sde", ALL, ids=lambda sde: type(sde).__name__)
@pytest.mark.parametrize("t", [0.05, 0.4, 0.95])
def test_mean_and_deviation_solve_the_diffusions_own_equations(sde, t):
    # d alpha / dt = f alpha and d beta^2 / dt = 2 f beta^2 + g^2 hold for every linear diffusion.
    assert slope(sde.alpha, t) == pytest.approx(sde.f(t) * sde.alpha(t), rel=1e-5, abs=1e-9)
    expected = 2 * sde.f(t) * sde.beta(t) ** 2 + sde.g(t) ** 2
    assert slope(lambda s: sde.beta(s) ** 2, t) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sde", ALL, ids=lambda sde: type(sde).__name__)
def test_nothing_is_added_at_time_0(sde):
    assert sde.beta(0.0) == 0.0 and sde.alpha(0.0) == 1.0


def test_the_papers_diffusion_ends_at_its_true_deviation():
    assert PaperVE().beta(1.0) == pytest.approx(math.sqrt((25**2 - 1) / (2 * math.log(25))))
    assert PaperVE().beta(1.0) == pytest.approx(9.845, abs=1e-3)
    assert PaperVE().g(1.0) == 25.0


def test_variance_preserving_diffusions_keep_unit_data_at_or_below_unit_variance():
    for t in (0.2, 0.7, 1.0):
        assert VP().alpha(t) ** 2 + VP().beta(t) ** 2 == pytest.approx(1.0)
        assert SubVP().beta(t) == pytest.approx(VP().beta(t) ** 2)
    assert VP().alpha(1.0) == pytest.approx(math.exp(-0.25 * 20.1))


def test_times_are_the_papers_even_grid():
    assert times(4) == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_karras_noise_levels_are_even_in_the_root_and_end_in_0():
    sigmas = karras_sigmas(5, 0.01, 4.0, rho=5)
    roots = [s**0.2 for s in sigmas[:-1]]
    assert sigmas[0] == pytest.approx(4.0) and sigmas[-2:] == [pytest.approx(0.01), 0.0]
    assert [b - a for a, b in pairwise(roots)] == pytest.approx([(0.01**0.2 - 4.0**0.2) / 4] * 4)
    assert karras_sigmas(1, 0.01, 4.0) == [4.0, 0.0]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.7), (0.3, 0.9)])
def test_score_of_a_gaussian_is_that_of_its_density(alpha, beta):
    c = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
    mean, x = torch.tensor([0.4, -0.1]).double(), torch.tensor([[1.0, 0.5]]).double().requires_grad_()
    density = torch.distributions.MultivariateNormal(alpha * mean, alpha**2 * c + beta**2 * torch.eye(2))
    expected = torch.autograd.grad(density.log_prob(x).sum(), x)[0]
    torch.testing.assert_close(score(Gaussian(mean, c), x.detach(), alpha, beta), expected)
