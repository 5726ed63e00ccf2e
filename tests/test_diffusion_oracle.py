"""Every sampler with every exact rule and every linear model, against the posterior in closed form.

Priors have full covariances, frames lie off what they expect, and 2,000 samples must agree with the posterior's mean
and covariance within five standard errors; steps are many enough for their own error to be smaller than that.
"""

from functools import partial

import pytest
import torch
from _gaussians import cases, check_moments, log_sigmas, normal

from usdehaze.diffusion import samplers
from usdehaze.diffusion.denoiser import Posterior
from usdehaze.diffusion.guidance import PiGDM, Proximal
from usdehaze.diffusion.sde import VE, VP, PaperVE, SubVP, karras_sigmas, times

pytestmark = pytest.mark.slow  # for their number, not for any one
COPIES, FIRST = 2000, 80.0
CASES = cases()
RULES = {"proximal": Proximal(), "pigdm": PiGDM()}

fine = karras_sigmas(200, 0.01, FIRST, rho=7)
few = karras_sigmas(40, 0.01, FIRST, rho=7)
by_sigma = {
    "euler": partial(samplers.euler, sigmas=fine),
    "euler with churn": partial(samplers.euler, sigmas=fine, churn=10.0),
    "heun": partial(samplers.heun, sigmas=few),
    "heun with churn": partial(samplers.heun, sigmas=few, churn=10.0),
    "heun on a log-linear grid": partial(samplers.heun, sigmas=log_sigmas(60, 0.01, FIRST)),
    "dpm-solver++ 2m": partial(samplers.dpmpp_2m, sigmas=few),
    "dpm-solver++ 2m sde": partial(samplers.dpmpp_2m, sigmas=karras_sigmas(100, 0.01, FIRST, rho=7), eta=1.0),
    "annealed langevin": partial(samplers.annealed_langevin, sigmas=log_sigmas(25, 0.05, 4.0), moves=60, step=0.1),
}
by_time = {
    "euler-maruyama": samplers.euler_maruyama,
    "reverse diffusion": partial(samplers.predictor_corrector, corrections=0),
    "predictor-corrector": partial(samplers.predictor_corrector, snr=0.1),
    "probability flow": samplers.probability_flow,
}


def drawn(case, rule, run, sde=None, seed=0):
    problem = case.problem(COPIES)
    noise, guided = normal(seed, COPIES, problem.size), Posterior(problem, rule)
    if sde is None:
        return run(guided, samplers.start(noise, FIRST), noise=noise)
    # A flow never forgets where it starts; noise of 10 about 0 instead of about the mean would show.
    around = sde.alpha(1.0) * case.posterior()[0]
    return run(guided, samplers.start(noise, sde.beta(1.0), around), sde, times(500), noise=noise)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These tensors are too small to be worth a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("sampler", by_sigma)
def test_samples_are_the_posterior_on_noise_levels(sampler, model, rule):
    check_moments(drawn(CASES[model], RULES[rule], by_sigma[sampler]), *CASES[model].posterior())


@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("sampler", by_time)
def test_samples_are_the_posterior_on_the_papers_diffusion(sampler, model):
    check_moments(drawn(CASES[model], Proximal(), by_time[sampler], PaperVE()), *CASES[model].posterior())


@pytest.mark.parametrize("sde", [VE(0.01, 8.0), VP(), SubVP()], ids=lambda sde: type(sde).__name__)
@pytest.mark.parametrize("sampler", by_time)
def test_samples_are_the_posterior_on_every_diffusion(sampler, sde):
    check_moments(drawn(CASES["additive"], PiGDM(), by_time[sampler], sde), *CASES["additive"].posterior())


@pytest.mark.parametrize("model", CASES)
def test_the_adaptive_flow_ends_in_the_posterior(model):
    problem = CASES[model].problem(COPIES)
    start = samplers.start(normal(3, COPIES, problem.size), FIRST)
    check_moments(
        samplers.adaptive_flow(Posterior(problem, PiGDM()), start, fine, tolerance=1e-3), *CASES[model].posterior()
    )
