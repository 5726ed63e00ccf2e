"""Samplers and rules against Gaussians, whose joint posterior is known in closed form."""

import math
from itertools import pairwise

import pytest
import torch

from usdehaze.diffusion.guidance import DPS, PiGDM, Problem, proximal
from usdehaze.diffusion.observation import Additive
from usdehaze.diffusion.samplers import euler_maruyama, karras_sigmas, paper_sigmas, stochastic
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError

FRAMES, SIDE = 160, 9


class Gaussian:
    """The exact denoiser of independent pixels ``N(mean, data_variance)``."""

    def __init__(self, mean: float, variance: float) -> None:
        self.data_mean, self.data_variance, self.calls = mean, variance, 0

    def __call__(self, x, sigma):
        self.calls += 1
        return self.data_mean + self.data_variance / (self.data_variance + sigma**2) * (x - self.data_mean)


def problem(y: float = 0.9, std: float = 0.1, seen: float = 1.0) -> Problem:
    frames = torch.full((FRAMES, 1, SIDE, SIDE), y)
    return Problem(frames, torch.full((SIDE, SIDE), seen), Gaussian(0.4, 0.05), Gaussian(0.2, 0.02), Additive(std))


def posterior(p: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (2) and covariance (2, 2) of (tissue, haze) in a pixel."""
    prior = torch.tensor([p.tissue.data_variance, p.haze.data_variance])
    mean = torch.tensor([p.tissue.data_mean, p.haze.data_mean])
    total = prior.sum() + p.observation.std**2
    gain = prior / total
    return mean + gain * (float(p.y[0, 0, 0, 0]) - mean.sum()), torch.diag(prior) - torch.outer(prior, prior) / total


def moments(x, n) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.stack([x.flatten(), n.flatten()])
    return both.mean(1), torch.cov(both)


@pytest.mark.parametrize("rule", [proximal, PiGDM()], ids=["proximal", "pigdm"])
def test_many_small_steps_sample_the_posterior(rule):
    # For Gaussians both rules are exact, so Euler-Maruyama has only its step-size error.
    p = problem()
    x, n = euler_maruyama(p, rule, karras_sigmas(250, 0.004, 6.0, rho=7), Streams([(1, i) for i in range(FRAMES)]))
    mean, covariance = posterior(p)
    got_mean, got_covariance = moments(x, n)
    error = (covariance.diagonal() / (FRAMES * SIDE**2)).sqrt()
    assert (got_mean - mean).abs().max() < 4 * error.max() + 1e-3
    torch.testing.assert_close(got_covariance, covariance, rtol=0.06, atol=6e-4)


@pytest.mark.parametrize("renewal", [0.5, 0.95])
def test_few_stochastic_steps_centre_on_the_posterior_mean(renewal):
    p = problem()
    x, n = stochastic(
        p, proximal, karras_sigmas(40, 0.01, 4.0), Streams([(2, i) for i in range(FRAMES)]), renewal=renewal
    )
    mean, _ = posterior(p)
    assert (moments(x, n)[0] - mean).abs().max() < 4e-3


def test_where_nothing_is_seen_the_priors_stay():
    p = problem(seen=0.0)
    x, n = euler_maruyama(p, proximal, karras_sigmas(250, 0.004, 6.0, rho=7), Streams([(3, i) for i in range(FRAMES)]))
    mean, covariance = moments(x, n)
    torch.testing.assert_close(mean, torch.tensor([0.4, 0.2]), rtol=0, atol=6e-3)
    torch.testing.assert_close(covariance, torch.diag(torch.tensor([0.05, 0.02])), rtol=0.06, atol=8e-4)


def test_dps_descends_the_norm_of_each_frame_alone():
    p = Problem(
        torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0)),
        torch.ones(4, 4),
        Gaussian(0.4, 0.05),
        Gaussian(0.2, 0.02),
        Additive(),
    )
    x, n = torch.full((3, 1, 4, 4), 0.3), torch.full((3, 1, 4, 4), 0.1)
    sigma = 0.5
    x0, n0 = p.tissue(x, sigma), p.haze(n, sigma)
    residual = p.y - x0 - n0
    jacobian = 0.05 / (0.05 + sigma**2)
    expected = x0 + 2.0 / 0.25 * jacobian * residual / residual.flatten(1).norm(dim=1).reshape(3, 1, 1, 1)
    got, _ = DPS((2.0, 0.0))(p, x, n, sigma, 0.25)
    torch.testing.assert_close(got, expected)
    alone = Problem(p.y[1:2], p.seen, p.tissue, p.haze, p.observation)
    torch.testing.assert_close(DPS((2.0, 0.0))(alone, x[1:2], n[1:2], sigma, 0.25)[0], got[1:2])


def test_pigdm_uses_the_true_jacobian_of_the_denoiser():
    torch.manual_seed(0)

    class Net:
        def __init__(self, variance):
            layers = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(4, 1, 3, padding=1)
            self.net, self.data_variance = torch.nn.Sequential(*layers).double(), variance
            self.data_mean = 0.0

        def __call__(self, x, sigma):
            return self.net(x)

    tissue, haze = Net(0.06), Net(0.03)
    y, x, n = torch.rand(3, 1, 1, 4, 4, dtype=torch.float64)
    model, sigma = Additive(0.05), 0.3
    p = Problem(y, torch.ones(4, 4), tissue, haze, model)
    with torch.no_grad():
        got = PiGDM()(p, x, n, sigma, 1.0)
        x0, n0 = tissue(x, sigma), haze(n, sigma)
        r2, q2 = (sigma**2 * v / (sigma**2 + v) for v in (0.06, 0.03))
        error = (y - x0 - n0) / (r2 + q2 + 0.05**2)  # S^-1 e, with A = 1
    for prior, at, start, moved in ((tissue, x, x0, got[0]), (haze, n, n0, got[1])):
        jacobian = torch.autograd.functional.jacobian(prior.net, at).reshape(16, 16)
        expected = start.flatten() + sigma**2 * jacobian.T @ error.flatten()
        torch.testing.assert_close(moved.flatten(), expected, rtol=0, atol=1e-10)


def test_each_noise_level_asks_each_prior_once():
    for rule in (proximal, PiGDM(), DPS()):
        p = problem()
        stochastic(p, rule, karras_sigmas(7, 0.01, 4.0), Streams([(0, i) for i in range(FRAMES)]))
        assert (p.tissue.calls, p.haze.calls) == (7, 7)


def test_paper_noise_levels_start_at_the_true_terminal_deviation():
    sigmas = paper_sigmas(600)
    assert sigmas[0] == pytest.approx(math.sqrt((25**2 - 1) / (2 * math.log(25))))
    assert sigmas[0] == pytest.approx(9.845, abs=1e-3)
    assert len(sigmas) == 600 and all(a > b for a, b in pairwise(sigmas))


def test_karras_noise_levels_are_even_in_the_root():
    sigmas = karras_sigmas(5, 0.01, 4.0, rho=5)
    roots = [s**0.2 for s in sigmas]
    assert sigmas[0] == pytest.approx(4.0) and sigmas[-1] == pytest.approx(0.01)
    assert [b - a for a, b in pairwise(roots)] == pytest.approx([(0.01**0.2 - 4.0**0.2) / 4] * 4)


def test_a_value_that_is_not_finite_stops_the_run_by_name():
    p = problem()
    p.tissue.data_mean = math.nan
    with pytest.raises(UsdehazeError, match=r"step 1 \(noise level 4\)"):
        stochastic(p, proximal, karras_sigmas(3, 0.01, 4.0), Streams([(0, i) for i in range(FRAMES)]))


def test_streams_depend_on_their_key_alone():
    whole = Streams([(5, i, 0) for i in range(4)]).normal((2, 3))
    part = Streams([(5, 2, 0)]).normal((2, 3))
    assert torch.equal(whole[2], part[0])
    keys = [(0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0)]
    draws = Streams(keys).normal((64,))
    correlation = torch.corrcoef(draws) - torch.eye(4)
    assert correlation.abs().max() < 0.5
