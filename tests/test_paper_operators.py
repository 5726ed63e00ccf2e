"""The paper's operators on Gaussians: the exact rules estimate the posterior mean, written out with matrices."""

import math

import pytest
import torch
from torch import Tensor

from usdehaze.diffusion.denoiser import Gaussian, Posterior, Problem
from usdehaze.diffusion.guidance import PaperPiGDM, PiGDM, Proximal
from usdehaze.diffusion.observation import Additive, Blend, LinearOperator
from usdehaze.diffusion.samplers import dpmpp_2m, start
from usdehaze.diffusion.sde import karras_sigmas
from validation.paper.noises import sensing_matrix, sine_deviations, sine_noise, sine_prior
from validation.paper.public_code import PublicRule
from validation.paper.systems.base import Problem as Measured

C, H, W, STD, SIGNAL = 2, 4, 4, 0.1, 0.5  # channels, sides, deviations of measurement and of signal
D = C * H * W


def matrix() -> Tensor:
    return sensing_matrix(H * W, 2).double()


def deviations(shape: tuple[int, ...]) -> Tensor:
    """Of sine noise: by row of an image, or along a sequence."""
    if shape[1] == 1:
        return sine_deviations(shape[2], 0.2)[None].double()
    return sine_deviations(shape[1], 0.2)[:, None].expand(shape[1:]).double()


def case(name: str):
    """Observation, its dense ``H`` on signal and noise, shape of a measurement, prior of noise, its variances."""
    unit = torch.eye(D, dtype=torch.float64)
    if name == "compressed sensing with sine noise":
        shape = (C, 1, H * W // 2)
        a, observation = torch.block_diag(*[matrix()] * C), LinearOperator(matrix(), std=STD)
    else:
        share = 0.5 if name == "blend" else 0.0
        shape, a = (C, H, W), (1 - share) * unit
        observation = Blend(0.5, STD) if name == "blend" else Additive(STD)
    b = (0.5 if name == "blend" else 1.0) * torch.eye(math.prod(shape), dtype=torch.float64)
    if "sine" in name:
        noise = sine_prior(deviations(shape))
        variances = (deviations(shape) ** 2).expand(shape).flatten()
    else:
        noise = Gaussian(0.3, 0.16)
        variances = torch.full((math.prod(shape),), 0.16, dtype=torch.float64)
    return observation, torch.cat([a, b], 1), shape, noise, variances


NAMES = ["blend", "rain: both added", "2-D sine noise", "compressed sensing with sine noise"]


def setting(name: str, copies: int):
    observation, h, shape, noise, variances = case(name)
    g = torch.Generator().manual_seed(3)
    y = torch.randn(1, *shape, generator=g, dtype=torch.float64).expand(copies, *shape)
    problem = Problem(y, observation, Gaussian(0.4, SIGNAL**2), noise, shape=(C, H, W))
    prior = torch.cat([torch.full((D,), SIGNAL**2, dtype=torch.float64), variances])
    m_noise = 0.0 if "sine" in name else 0.3
    mean = torch.cat([torch.full((D,), 0.4).double(), torch.full((len(variances),), m_noise).double()])
    return problem, h, prior, mean, y[0].flatten()


def given(h: Tensor, prior: Tensor, mean: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of unknowns of these variances given ``y = H u + N(0, STD^2)``."""
    c = torch.diag(prior)
    gain = c @ h.T @ torch.linalg.inv(h @ c @ h.T + STD**2 * torch.eye(len(h)))
    return mean + gain @ (y - h @ mean), c - gain @ h @ c


@pytest.mark.parametrize("rule", [Proximal(), PiGDM()], ids=["proximal", "pigdm"])
@pytest.mark.parametrize("name", NAMES)
def test_the_exact_rules_estimate_the_posterior_mean_at_every_noise_level(name, rule):
    problem, h, prior, mean, y = setting(name, 1)
    u = torch.randn(1, problem.size, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for sigma in (0.05, 0.4, 3.0):
        left = prior * sigma**2 / (prior + sigma**2)  # variance given the noisy unknowns
        expected, _ = given(h, left, mean + prior / (prior + sigma**2) * (u[0] - mean), y)
        torch.testing.assert_close(rule(problem, u, sigma)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_few_steps_of_the_exact_rule_draw_from_the_posterior(name):
    n = 1500
    problem, h, prior, mean, y = setting(name, n)
    g = torch.Generator().manual_seed(5)
    u = start(lambda: torch.randn(n, problem.size, generator=g, dtype=torch.float64), 80.0)
    end = dpmpp_2m(Posterior(problem, Proximal()), u, karras_sigmas(40, 0.01, 80.0, rho=7))
    expected, covariance = given(h, prior, mean, y)
    deviation = covariance.diagonal().sqrt()
    assert ((end.mean(0) - expected) / deviation).abs().max() < 5 / n**0.5
    assert (end.var(0) / covariance.diagonal() - 1).abs().max() < 5 * (2 / n) ** 0.5


def test_a_measurement_knows_its_operator_and_what_noise_is_left():
    x = torch.rand(2, C, H, W)
    noise = sine_noise(2, deviations((C, 1, 8)).float(), (C, 1, 8), 0)
    sensed = LinearOperator(matrix().float(), std=STD)
    problem = Measured(sensed.predict(x, noise), sensed, (C, H, W), 0.2)
    torch.testing.assert_close(problem.noise_of(x), noise)
    expected = torch.einsum("md,ncd->ncm", matrix().float(), x.flatten(2))
    torch.testing.assert_close(problem.forward(x)[:, :, 0], expected)
    v = torch.randn_like(problem.y)
    torch.testing.assert_close((problem.adjoint(v) * x).sum(), (problem.forward(x) * v).sum())
    blend = Measured(0.5 * x + 0.25, Blend(0.5), (C, H, W), 0.2)
    torch.testing.assert_close(blend.noise_of(x), torch.full_like(x, 0.5))


def test_where_jacobians_are_numbers_the_public_rule_is_the_papers_with_variances_of_one():
    """Then ``J^T 1`` times a residual is ``J^T`` of it; what stays is ``S = r2 + q2`` without the blend's factors."""
    signal, noise = Gaussian(0.4, 0.25), Gaussian(0.2, 0.25)
    y = torch.rand(2, C, H, W, generator=torch.Generator().manual_seed(6))
    problem = Problem(y, Blend(0.5, 0.0), signal, noise)
    u = torch.randn(2, problem.size, generator=torch.Generator().manual_seed(7))
    public = PublicRule(scale=(0.93, 0.88), from_mean=False)(problem, u, 0.7, 0.1)
    unguided = problem.join(*problem.denoise(*problem.parts(u), 0.7))
    paper = PaperPiGDM((0.93, 0.88))(problem, u, 0.7, 0.1)
    torch.testing.assert_close(public - unguided, (paper - unguided) / 4)


def test_the_norm_of_public_dps_depends_on_the_batch_until_it_is_mended():
    y = torch.rand(2, C, H, W, generator=torch.Generator().manual_seed(8))
    u = torch.randn(2, 2 * D, generator=torch.Generator().manual_seed(9))

    def first(rows: slice, whole: bool) -> Tensor:
        problem = Problem(y[rows], Blend(0.5), Gaussian(0.4, 0.25), Gaussian(0.2, 0.25))
        return PublicRule(dps=True, scale=(12.7, 16.7), whole_batch=whole)(problem, u[rows], 0.7, 0.1)[0]

    torch.testing.assert_close(first(slice(0, 1), False), first(slice(0, 2), False))
    assert (first(slice(0, 1), True) - first(slice(0, 2), True)).abs().max() > 0.1
