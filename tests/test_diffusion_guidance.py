"""Guidance rules against their formulas, with every Jacobian and matrix written out."""

import math
from itertools import pairwise

import pytest
import torch
from _gaussians import STD, D, cases, check_moments, normal

from usdehaze.diffusion import samplers
from usdehaze.diffusion.denoiser import Gaussian, Posterior, Problem
from usdehaze.diffusion.echo import Companded, LinearisedLogPower, LinearPower, LogPower
from usdehaze.diffusion.guidance import DPS, PaperPiGDM, PiGDM, Projection, Proximal, SharedNoise
from usdehaze.diffusion.observation import Additive
from usdehaze.diffusion.sde import PaperVE, times
from usdehaze.errors import UsdehazeError

CASES = cases()
COPIES = 3000
LAM, KAP = 0.9, 0.6  # unlike enough for a swap to show


def scales(case, scale=(LAM, KAP)) -> torch.Tensor:
    return torch.tensor([scale[0]] * D + ([scale[1]] * case.m if case.joint else []), dtype=torch.float64)


def tiny_net(seed: int):
    torch.manual_seed(seed)
    layers = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(4, 1, 3, padding=1)
    return torch.nn.Sequential(*layers).double()


class Net:
    """A small network as a prior, with a Jacobian that is neither symmetric nor a multiple of its error's spread."""

    data_mean = 0.3

    def __init__(self, seed: int, variance: float):
        self.net, self.variance = tiny_net(seed), variance

    def __call__(self, x, sigma):
        return self.net(x) * (1 + sigma)

    def spread(self, sigma):
        return sigma**2 * self.variance / (sigma**2 + self.variance)

    def jacobian(self, x, sigma):
        size = x.numel()
        return torch.autograd.functional.jacobian(lambda at: self(at, sigma), x).reshape(size, size)


def net_problem(observation, haze=True, side=4):
    g = torch.Generator().manual_seed(8)
    y = torch.rand(1, 1, side, side, generator=g).double()
    problem = Problem(y, observation, Net(0, 0.06), Net(1, 0.03) if haze else None)
    return problem, torch.rand(1, problem.size, generator=g).double()


@pytest.mark.parametrize("haze", [True, False], ids=["joint", "alone"])
def test_pigdm_is_the_explicit_jacobian_times_the_residual(haze):
    problem, u = net_problem(Additive(0.05), haze)
    sigma = 0.3
    x, n = problem.parts(u)
    x0, n0 = problem.denoise(x, n, sigma)
    r2, q2 = problem.spread(sigma)
    e = ((problem.y - x0 - n0) / (r2 + q2 + 0.05**2)).flatten()
    with torch.no_grad():
        got = problem.parts(PiGDM((LAM, KAP))(problem, u, sigma, None))
        paper = problem.parts(PaperPiGDM((LAM, KAP))(problem, u, sigma, 0.2))
    for part, at, estimate, spread, scale in ((0, x, x0, r2, LAM), (1, n, n0, q2, KAP))[: 1 + haze]:
        prior = (problem.tissue, problem.haze)[part]
        pull = prior.jacobian(at, sigma).T @ e
        expected = estimate.flatten() + scale * sigma**2 * pull
        torch.testing.assert_close(got[part].flatten(), expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(
            paper[part].flatten(), estimate.flatten() + scale * spread / 0.2 * pull, rtol=0, atol=1e-10
        )


@pytest.mark.parametrize(
    "model",
    [Additive(0.05), LinearisedLogPower(60.0), LinearPower(), Companded()],
    ids=lambda m: type(m).__name__,
)
def test_pointwise_derivatives_give_the_update_of_brute_force_autograd(model):
    # PiGDM's formula for a nonlinear h: h's own derivatives, here from autograd on predict, in place of A.
    problem, u = net_problem(model)
    sigma = 0.3
    at = u.clone().requires_grad_()
    x0, n0 = problem.denoise(*problem.parts(at), sigma)
    r2, q2 = problem.spread(sigma)
    hx, hn = (g.detach() for g in torch.autograd.grad(model.predict(x0, n0).sum(), (x0, n0), retain_graph=True))
    s = hx**2 * r2 + hn**2 * q2 + model.variance(x0, n0).detach()
    e = (problem.y - model.predict(x0, n0)).detach() / s
    linearised = (e * model.predict(x0, n0)).sum()  # its gradient is J^T h'^T S^-1 e
    expected = problem.join(x0, n0) + sigma**2 * torch.autograd.grad(linearised, at, retain_graph=True)[0]
    torch.testing.assert_close(PiGDM()(problem, u, sigma, None), expected.detach(), rtol=0, atol=1e-9)
    norm = torch.linalg.vector_norm(problem.y - model.predict(x0, n0))
    gradient = torch.autograd.grad(norm, at)[0]
    down = problem.join(*(s * g for s, g in zip((2.0, 3.0), problem.parts(gradient), strict=True)))
    torch.testing.assert_close(
        DPS((2.0, 3.0))(problem, u, sigma, 0.25), (problem.join(x0, n0) - down / 0.25).detach(), rtol=0, atol=1e-9
    )


def test_the_pull_of_log_power_is_the_gradient_of_its_evidence():
    # log p(y) of the mixture-maximum model, whose noise level is held fixed: y made by either, the other below.
    model = LogPower(60.0, std_db=2.0, interference=0.0)
    x, n = (torch.rand(50, generator=torch.Generator().manual_seed(k)).double().requires_grad_() for k in (0, 1))
    y, r2, q2, s2 = torch.rand(50, generator=torch.Generator().manual_seed(2)).double(), 0.04, 0.02, (2 / 60) ** 2

    def made(at, spread):
        return torch.distributions.Normal(at, math.sqrt(spread + s2)).log_prob(y)

    def below(at, spread):
        return torch.special.log_ndtr((y - at) / math.sqrt(spread + s2))

    evidence = torch.logaddexp(made(x, r2) + below(n, q2), made(n, q2) + below(x, r2))
    expected = torch.autograd.grad(evidence.sum(), (x, n))
    for got, want in zip(model.pull(y, x.detach(), r2, n.detach(), q2), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)


def test_dps_descends_the_norm_of_each_frame_alone():
    y = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    tissue, haze, sigma = Gaussian(0.4, 0.05), Gaussian(0.2, 0.02), 0.5
    problem = Problem(y, Additive(), tissue, haze)
    x, n = torch.full_like(y, 0.3), torch.full_like(y, 0.1)
    residual = y - tissue(x, sigma) - haze(n, sigma)
    jacobian = 0.05 / (0.05 + sigma**2)
    unit = residual / residual.flatten(1).norm(dim=1).reshape(3, 1, 1, 1)
    expected = tissue(x, sigma) + 2.0 / 0.25 * jacobian * unit
    got = DPS((2.0, 0.0))(problem, problem.join(x, n), sigma, 0.25)
    torch.testing.assert_close(problem.parts(got)[0], expected)
    alone = Problem(y[1:2], Additive(), tissue, haze)
    torch.testing.assert_close(DPS((2.0, 0.0))(alone, problem.join(x, n)[1:2], sigma, 0.25), got[1:2])


def test_proximal_moves_by_its_scale():
    case = CASES["matrix"]
    problem, u = case.problem(4), normal(0, 4, 8)()
    free = problem.join(*problem.denoise(*problem.parts(u), 0.7))
    whole = Proximal()(problem, u, 0.7) - free
    torch.testing.assert_close(Proximal((LAM, KAP))(problem, u, 0.7) - free, whole * scales(case))
    assert whole.abs().min() > 1e-4


# The paper's own steps do not sample the posterior. With Gaussian priors each is a linear recursion, so that what they
# do sample is known exactly: mean and covariance are carried along with every matrix written out, and the samples must
# agree. How far that is from the posterior is asserted too: that is the rule's bias.

STEPS = 60


def paper_recursion(case, scale, projection: bool):
    """Mean and covariance at the end of Euler-Maruyama under PiGDM's or the projection's own steps."""
    sde, grid, size = PaperVE(), times(STEPS), len(case.prior)
    one, scale = torch.eye(size, dtype=torch.float64), scales(case, scale)
    shared = torch.cat([torch.eye(D), torch.eye(D)]).double() if case.joint and case.m == D else one
    unit = shared if projection else one  # how the draw z enters the unknowns
    mean, cov = torch.zeros(size).double(), sde.beta(1.0) ** 2 * unit @ unit.T
    with_z = sde.beta(1.0) * unit  # covariance of the unknowns with the last draw
    for t, below in pairwise(grid):
        sigma, dt, g = sde.beta(t), t - below, sde.g(t)
        step = g**2 * dt / sigma**2
        j, c = case.denoiser(sigma)
        if projection:
            pull = torch.diag(scale) @ case.h.T  # u' = u + pull (y + sigma A z - H u), then the step from u'
            forward = (1 - step) * one + step * j
            m = forward @ (one - pull @ case.h)
            z = forward @ pull @ (case.h[:, :D] * sigma)
            add = forward @ pull @ case.y + step * c
        else:
            blocks = [slice(0, D), slice(D, None)] if case.joint else [slice(0, D)]
            r = torch.block_diag(*[sigma**2 * j[b, b] for b in blocks])
            k = torch.diag(scale) @ r @ j.T @ case.h.T
            k = k @ torch.linalg.inv(case.h @ (sigma**2 * j) @ case.h.T + STD**2 * torch.eye(case.m))
            m = (1 - step) * one + step * j - k @ case.h @ j
            z, add = torch.zeros(size, D).double(), k @ (case.y - case.h @ c) + step * c
        last = with_z[:, :D] if projection else torch.zeros(size, D).double()
        mean = m @ mean + add
        cov = m @ cov @ m.T + z @ z.T + m @ last @ z.T + (m @ last @ z.T).T
        if below > 0:
            cov, with_z = cov + g**2 * dt * unit @ unit.T, g * math.sqrt(dt) * unit
    return mean, cov


@pytest.mark.parametrize("model", ["additive", "blend", "matrix", "gaussian noise alone", "matrix alone"])
def test_pigdm_with_the_papers_step_samples_what_its_recursion_says(model):
    case = CASES[model]
    problem, sde = case.problem(COPIES), PaperVE()
    noise = normal(1, COPIES, problem.size)
    guided = Posterior(problem, PaperPiGDM((LAM, KAP)))
    got = samplers.euler_maruyama(guided, samplers.start(noise, sde.beta(1.0)), sde, times(STEPS), noise)
    mean, cov = paper_recursion(case, (LAM, KAP), projection=False)
    check_moments(got, mean, cov)
    # A correction a step, however short the step, pulls too often: what the frame shows is far too sure.
    shown, true = case.h @ cov @ case.h.T, case.h @ case.posterior()[1] @ case.h.T
    assert shown.diagonal().sum() < 0.7 * true.diagonal().sum()


@pytest.mark.parametrize("model", ["additive", "blend", "gaussian noise alone", "matrix alone"])
def test_projection_samples_what_its_recursion_says(model):
    case, scale = CASES[model], (0.3, 0.2)
    problem, sde = case.problem(COPIES), PaperVE()
    noise = SharedNoise(normal(2, COPIES, problem.size), problem)
    guided = Posterior(problem, Projection(noise, scale))
    got = samplers.euler_maruyama(guided, samplers.start(noise, sde.beta(1.0)), sde, times(STEPS), noise)
    mean, cov = paper_recursion(case, scale, projection=True)
    lowest = torch.linalg.eigvalsh(cov).min()
    if lowest > 1e-9:
        check_moments(got, mean, cov)
    else:  # tissue and haze share their noise: some directions have none of their own
        torch.testing.assert_close(got.mean(0), mean, rtol=0, atol=0.1)
        torch.testing.assert_close(torch.cov(got.T), cov, rtol=0.12, atol=0.02)
    assert (mean - case.posterior()[0]).abs().max() > 0.02


def test_dps_leaves_less_residual_than_the_posterior_has():
    case = CASES["additive"]
    problem, sde = case.problem(COPIES), PaperVE()
    noise = normal(3, COPIES, problem.size)
    u = samplers.start(noise, sde.beta(1.0))
    got = samplers.euler_maruyama(Posterior(problem, DPS((0.3, 0.2))), u, sde, times(STEPS), noise)
    mean, cov = case.posterior()
    expected = (case.h @ cov @ case.h.T).diagonal().sum() + (case.y - case.h @ mean).square().sum()
    residual = (case.y - got @ case.h.T).square().sum(1).mean()
    assert residual < 0.1 * expected  # it explains the noise away


@pytest.mark.parametrize("model", [LogPower(60.0), LinearPower(), Companded()], ids=lambda m: type(m).__name__)
def test_projection_refuses_models_that_are_not_linear(model):
    problem, u = net_problem(model)
    noise = SharedNoise(normal(0, 1, problem.size), problem)
    noise()
    with pytest.raises(UsdehazeError, match=f"linear observation model such as Additive, found {type(model).__name__}"):
        Projection(noise)(problem, u, 0.3, 0.5)


@pytest.mark.parametrize("rule", [DPS(), PaperPiGDM()], ids=["dps", "pigdm"])
def test_rules_that_correct_once_a_step_refuse_steps_of_no_fixed_length(rule):
    problem, u = net_problem(Additive())
    with pytest.raises(UsdehazeError, match="no fixed length"):
        rule(problem, u, 0.3, None)


def test_log_power_without_a_haze_prior_is_refused():
    with pytest.raises(UsdehazeError, match="LogPower needs a haze prior"):
        Problem(torch.rand(1, 1, 4, 4), LogPower(60.0), Gaussian(0.3, 0.1))


def test_where_nothing_is_seen_the_estimates_stay_the_priors():
    for rule in (Proximal(), PiGDM(), DPS()):
        problem, u = net_problem(Additive())
        problem.seen = torch.zeros(4, 4).double()
        free = problem.join(*problem.denoise(*problem.parts(u), 0.3)).detach()
        torch.testing.assert_close(rule(problem, u, 0.3, 0.5), free, rtol=0, atol=0)
