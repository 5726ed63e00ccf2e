"""The learned posterior as a denoiser: with the exact one of Gaussians, every sampler draws from the closed form."""

from functools import partial

import pytest
import torch

from usdehaze.diffusion import samplers
from usdehaze.diffusion.learned import Learned
from usdehaze.diffusion.sde import PaperVE, karras_sigmas, times
from usdehaze.errors import UsdehazeError

COPIES, FIRST = 4000, 80.0
MEANS, VARIANCES, NOISE = torch.tensor([0.6, 0.3]), torch.tensor([0.04, 0.01]), 0.02**2  # tissue, haze; of y = x + n
SIZE = 3  # pixels, which do not know of one another


def posterior(y):
    """Mean ``(..., 2)`` and covariance ``(2, 2)`` of tissue and haze of a pixel given ``y``."""
    gain = VARIANCES / (VARIANCES.sum() + NOISE)
    covariance = VARIANCES.diag() - gain[:, None] * VARIANCES[None, :]
    return MEANS + gain * (y - MEANS.sum())[..., None], covariance


class Exact:
    """The denoiser of that posterior."""

    def __call__(self, u, sigma, y):
        mean, c = posterior(y[:, 0])
        shrink = c @ torch.linalg.inv(c + sigma**2 * torch.eye(2))
        clean = mean + (u.movedim(1, -1) - mean) @ shrink.T
        return clean.movedim(-1, 1), torch.zeros(len(u), 9, *u.shape[2:])


fine = karras_sigmas(300, 0.002, FIRST, rho=7)
by_sigma = {
    "euler with churn": partial(samplers.euler, sigmas=fine, churn=10.0),
    "heun": partial(samplers.heun, sigmas=karras_sigmas(40, 0.002, FIRST, rho=7)),
    "dpm-solver++ 2m": partial(samplers.dpmpp_2m, sigmas=karras_sigmas(60, 0.002, FIRST, rho=7)),
    "dpm-solver++ 2m sde": partial(samplers.dpmpp_2m, sigmas=fine, eta=1.0),
}
by_time = {
    "euler-maruyama": samplers.euler_maruyama,
    "predictor-corrector": partial(samplers.predictor_corrector, snr=0.1),
}


def noise_of(learned, seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda: torch.randn(len(learned.y), learned.size, generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*by_sigma, *by_time])
def test_every_sampler_draws_from_the_posterior(name):
    y = torch.tensor([0.5, 0.9, 1.4]).reshape(1, 1, SIZE, 1).expand(COPIES, -1, -1, -1)
    learned = Learned(y, Exact())
    noise = noise_of(learned, 3)
    if name in by_sigma:
        end = by_sigma[name](learned, samplers.start(noise, FIRST), noise=noise)
    else:
        sde = PaperVE()
        around = torch.cat([m.expand_as(y) for m in MEANS], dim=1).flatten(1)
        end = by_time[name](learned, samplers.start(noise, sde.beta(1.0), around), sde, times(500), noise=noise)
    samples = torch.stack(learned.parts(end), dim=-1)[:, 0, :, 0]  # (COPIES, SIZE, 2)
    mean, covariance = posterior(y[0, 0, :, 0])
    error = (covariance.diagonal() / COPIES).sqrt()
    assert bool(((samples.mean(0) - mean).abs() < 5 * error + 2e-3).all()), name
    found = torch.stack([torch.cov(samples[:, i].T) for i in range(SIZE)])
    assert float((found - covariance).abs().max()) < 0.12 * float(covariance.diagonal().max()), name


def test_it_counts_its_passes_keeps_the_gains_and_starts_from_no_haze():
    y = torch.rand(2, 1, SIZE, 1)
    learned = Learned(y, Exact())
    assert learned.size == 2 * SIZE and learned.gains is None
    x, n = learned.parts(learned.first_guess())
    assert torch.equal(x, y) and not n.any()
    learned(learned.first_guess(), 0.3)
    assert learned.evaluations == 1 and learned.gains.shape == (2, 9, SIZE, 1)


def test_values_that_are_not_finite_end_the_run():
    learned = Learned(torch.rand(1, 1, SIZE, 1), lambda u, sigma, y: (u * torch.nan, u))
    with pytest.raises(UsdehazeError, match=r"step 1 \(guidance learned, noise level 0.5"):
        learned(torch.zeros(1, 2 * SIZE), 0.5)
