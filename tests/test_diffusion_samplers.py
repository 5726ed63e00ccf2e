"""What samplers promise besides the density that they sample (tests/test_diffusion_oracle.py)."""

import math
from dataclasses import replace

import pytest
import torch
from _gaussians import cases, normal, sde_sigmas

from usdehaze.dehazing.chain import sample
from usdehaze.dehazing.registry import SAMPLERS
from usdehaze.dehazing.settings import WITH_RULES
from usdehaze.diffusion import samplers
from usdehaze.diffusion.denoiser import Gaussian, Posterior, Problem
from usdehaze.diffusion.guidance import DPS, PiGDM, Projection, Proximal, SharedNoise
from usdehaze.diffusion.observation import Additive, GaussianNoise
from usdehaze.diffusion.sde import PaperVE, karras_sigmas
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError

CASES = cases()
COPIES = 400

RULE = WITH_RULES["fast"]


class Watched(Gaussian):
    """Remembers where it was asked."""

    def __init__(self, mean, variance):
        super().__init__(mean, variance)
        self.asked = []

    def __call__(self, x, sigma):
        self.asked.append((float(x.detach().sum()), sigma))
        return super().__call__(x, sigma)


def frames(y=0.9, haze=True) -> Problem:
    observation = Additive(0.1) if haze else GaussianNoise(0.1)
    return Problem(torch.full((3, 1, 4, 4), y), observation, Watched(0.4, 0.05), Watched(0.2, 0.02) if haze else None)


def source(problem, seed=0):
    streams = Streams([(seed, i) for i in range(len(problem.y))])
    return lambda: streams.normal((problem.size,))


# Network passes of each prior for 7 steps; the adaptive flow takes what it needs.
PASSES = dict.fromkeys(SAMPLERS, 7) | {"heun": 13, "heun-churn": 13, "langevin": 36, "predictor-corrector": 13}
del PASSES["adaptive-flow"]


@pytest.mark.parametrize("haze", [True, False], ids=["joint", "alone"])
@pytest.mark.parametrize("rule", [Proximal(), PiGDM(), DPS((0.1, 0.1)), "projection"], ids=str)
@pytest.mark.parametrize("sampler", PASSES)
def test_no_network_is_asked_twice_at_one_point_and_every_pass_is_counted(sampler, rule, haze):
    problem = frames(haze=haze)
    noise = source(problem)
    if rule == "projection":
        noise = SharedNoise(noise, problem)
        rule = Projection(noise, (0.1, 0.1))
    sample(replace(RULE, sampler=sampler, steps=7), Posterior(problem, rule), noise)
    priors = [problem.tissue, problem.haze][: 1 + haze]
    for prior in priors:
        assert len(prior.asked) == len(set(prior.asked)) == PASSES[sampler]
    assert problem.evaluations == sum(len(prior.asked) for prior in priors)


def test_one_callback_sees_every_step_and_its_noise_level():
    for name in SAMPLERS:
        if name == "adaptive-flow":
            continue
        problem, seen = frames(), []
        sample(replace(RULE, sampler=name, steps=5), Posterior(problem, Proximal()), source(problem), seen.append)
        per_level = 5 if name == "langevin" else 1
        assert [step.index for step in seen] == list(range(5 * per_level))
        assert {step.count for step in seen} == {5 * per_level}
        levels = (
            sde_sigmas(PaperVE(), 5) if SAMPLERS[name].by_time else karras_sigmas(5, RULE.sigma_min, RULE.sigma_max)
        )
        if "churn" not in name:
            assert [step.sigma for step in seen][::per_level] == pytest.approx(levels[:-1])
        assert all(step.u.shape == step.estimate.shape == (3, 32) for step in seen)


def test_stochastic_without_renewal_is_the_euler_step_of_the_flow():
    case, sigmas = CASES["additive"], karras_sigmas(9, 0.02, 5.0)
    start = normal(0, COPIES, 10)() * 5
    noise = normal(1, COPIES, 10)
    guided = Posterior(case.problem(COPIES), Proximal())
    ddim = samplers.stochastic(guided, start, sigmas, noise, renewal=0.0)
    torch.testing.assert_close(ddim, samplers.euler(guided, start, sigmas), rtol=0, atol=1e-10)


@pytest.mark.parametrize("renewal", [0.5, 0.95])
def test_stochastic_centres_on_the_posterior_and_is_narrower(renewal):
    case, copies = CASES["matrix"], 4000
    problem = case.problem(copies)
    noise = normal(2, copies, problem.size)
    start = samplers.start(noise, 20.0)
    got = samplers.stochastic(
        Posterior(problem, Proximal()), start, karras_sigmas(60, 0.01, 20.0), noise, renewal=renewal
    )
    mean, cov = case.posterior()
    white = torch.linalg.inv(torch.linalg.cholesky(cov))
    assert ((got - mean) @ white.T).mean(0).abs().max() < 0.12
    assert torch.linalg.eigvalsh(white @ torch.cov(got.T) @ white.T).max() < 0.9


@pytest.mark.parametrize("name", ["heun", "dpmpp_2m"])
def test_second_order_samplers_err_a_quarter_as_much_with_twice_the_steps(name):
    case = CASES["additive"]
    start, guided = 20 * normal(3, 50, 10)(), Posterior(case.problem(50), Proximal())
    run = getattr(samplers, name)
    exact = samplers.heun(guided, start, karras_sigmas(1500, 0.05, 20.0, rho=7))
    errors = [(run(guided, start, karras_sigmas(n, 0.05, 20.0, rho=7)) - exact).norm() for n in (24, 48)]
    assert 2.8 < errors[0] / errors[1] < 6.5
    first = (samplers.euler(guided, start, karras_sigmas(48, 0.05, 20.0, rho=7)) - exact).norm()
    assert first > 4 * errors[1]


def test_the_adaptive_flow_follows_the_fixed_one():
    case = CASES["blend"]
    start, guided = 20 * normal(4, 1, 10)(), Posterior(case.problem(1), PiGDM())
    fixed = samplers.heun(guided, start, karras_sigmas(1500, 0.05, 20.0, rho=7))
    torch.testing.assert_close(
        samplers.adaptive_flow(guided, start, [20.0, 0.05, 0.0], tolerance=1e-7), fixed, rtol=0, atol=1e-4
    )


def test_a_start_around_an_earlier_result_at_a_low_level_stays_near_it():
    case = CASES["additive"]
    problem, earlier = case.problem(COPIES), case.posterior()[0] + 0.5
    noise = normal(5, COPIES, problem.size)
    for sigma, at_most, at_least in ((0.05, 1.0, 0.3), (20.0, 0.1, 0.0)):
        start = samplers.start(noise, sigma, earlier)
        got = samplers.heun(Posterior(problem, Proximal()), start, karras_sigmas(20, 0.01, sigma))
        distance = float((got.mean(0) - case.posterior()[0]).abs().mean())
        assert at_least < distance < at_most


def test_settings_start_around_the_first_guess_or_from_noise_alone():
    for from_guess in (True, False):
        problem, seen = frames(), []
        s = replace(RULE, sampler="euler", steps=2, from_guess=from_guess)
        sample(s, Posterior(problem, Proximal()), source(problem), seen.append)
        expected = source(problem)() * s.sigma_max + (problem.first_guess() if from_guess else 0)
        torch.testing.assert_close(seen[0].u, expected)


def test_the_first_guess_is_what_the_frame_tells_of_two_known_variances():
    # y = x + n with x ~ N(.4, .05), n ~ N(.2, .02) and noise of 0.1: gains .05 / .08 and .02 / .08 of a residual of .3.
    guess = frames().first_guess()
    torch.testing.assert_close(guess[0, [0, 16]], torch.tensor([0.4 + 0.3 * 5 / 8, 0.2 + 0.3 * 2 / 8]))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_value_that_is_not_finite_stops_the_run_by_step_rule_and_level(sampler):
    problem = frames()
    problem.tissue.mean = math.nan
    level = "9.85" if SAMPLERS[sampler].by_time else "0.707" if "churn" in sampler else "0.5"
    with pytest.raises(UsdehazeError, match=rf"step 1 \(guidance pigdm, noise level {level}\): values are not finite"):
        sample(replace(RULE, sampler=sampler, steps=3, from_guess=False), Posterior(problem, PiGDM()), source(problem))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_frame_does_not_depend_on_the_others_in_its_batch(sampler):
    if sampler == "adaptive-flow":  # chooses its steps for a whole batch, and says so
        return
    g = torch.Generator().manual_seed(0)
    y = torch.rand(7, 1, 4, 4, generator=g)
    order = [4, 0, 6, 2, 5, 1, 3]

    def split(which):
        problem = Problem(y[which], Additive(0.1), Gaussian(0.4, 0.05), Gaussian(0.2, 0.02))
        streams = Streams([(9, i) for i in which])
        noise = lambda: streams.normal((problem.size,))  # noqa: E731
        return sample(replace(RULE, sampler=sampler, steps=6), Posterior(problem, DPS((0.1, 0.1))), noise)

    whole = split(list(range(7)))
    assert torch.equal(split(order), whole[order])
    assert torch.equal(torch.cat([split([0]), split([1, 2])]), whole[:3])


def test_streams_depend_on_their_key_alone():
    whole = Streams([(5, i, 0) for i in range(4)]).normal((2, 3))
    part = Streams([(5, 2, 0)]).normal((2, 3))
    assert torch.equal(whole[2], part[0])
    keys = [(0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0)]
    draws = Streams(keys).normal((64,))
    correlation = torch.corrcoef(draws) - torch.eye(4)
    assert correlation.abs().max() < 0.5
