"""GAN of the paper's comparison: what the generator made is found again, and training goes on as if never stopped."""

from __future__ import annotations

import pytest
import torch

from usdehaze.diffusion.observation import Blend, LinearOperator
from usdehaze.errors import UsdehazeError
from validation.paper.systems.base import Budget, Problem
from validation.paper.systems.dcgan import Discriminator, Generator
from validation.paper.systems.gan import Gan, train_gan


def searcher(weight: float, squared: bool = False, restarts: int = 3, steps: int = 80) -> Gan:
    """A GAN whose small generator is random, which has 8 latents and makes images of 8 x 8."""
    torch.manual_seed(2)
    gan = Gan(weight, step=0.1, squared=squared)
    gan.generator, gan.restarts, gan.steps = Generator((1, 8, 8), (16,), latent=4), restarts, steps
    with torch.no_grad():
        for parameter in gan.generator.parameters():
            parameter.mul_(5)
    gan.generator.eval().requires_grad_(False)
    return gan


def problem_of(images: torch.Tensor, matrix: bool = False) -> Problem:
    if not matrix:
        return Problem(0.5 * images, Blend(0.5), (1, 8, 8), 0.1)
    operator = LinearOperator(torch.randn(32, 64, generator=torch.Generator().manual_seed(0)) / 32**0.5)
    return Problem(operator.forward(images).reshape(len(images), 1, 1, 32), operator, (1, 8, 8), 0.1)


@pytest.mark.parametrize("matrix", [False, True])
def test_inversion_recovers_images_that_the_generator_made(matrix: bool) -> None:
    gan = searcher(weight=1e-6)
    made = gan.generator(torch.randn(3, 4))
    found, noise = gan.solve(problem_of(made, matrix), 0)
    assert noise is None
    assert made.std() > 0.1
    torch.testing.assert_close(found, made, rtol=0, atol=0.02)


def test_a_search_of_a_measurement_depends_on_no_other() -> None:
    gan = searcher(weight=1e-3, steps=20)
    problem = problem_of(gan.generator(torch.randn(3, 4)))
    together, _ = gan.solve(problem, 5)
    alone, _ = gan.solve(problem.split(slice(0, 1)), 5)
    torch.testing.assert_close(alone, together[:1], rtol=0, atol=1e-5)


def test_restarts_never_end_higher_than_the_first_search() -> None:
    once, often = searcher(1e-6, restarts=1, steps=10), searcher(1e-6, restarts=6, steps=10)
    made = once.generator(torch.randn(8, 4))
    problem = problem_of(made)
    misfit = [(made - gan.solve(problem, 0)[0]).square().flatten(1).sum(1) for gan in (once, often)]
    assert (misfit[1] <= misfit[0] + 1e-5).all()
    assert misfit[1].mean() < 0.7 * misfit[0].mean()


def test_losses_are_the_printed_one_and_that_of_the_public_code() -> None:
    printed, public = searcher(0.9), searcher(0.9, squared=True)
    problem = Problem(torch.full((1, 1, 8, 8), 0.5), Blend(0.5), (1, 8, 8), 0.1)
    x, z = torch.zeros(1, 1, 8, 8), torch.tensor([[1.0, 2.0, 0.0, 0.0]])
    assert float(printed._loss(problem, x, z)) == pytest.approx(4 + 0.9 * 5)
    assert float(public._loss(problem, x, z)) == pytest.approx(0.9 * 16 + 5)


def test_networks_have_the_printed_shape() -> None:
    generator, discriminator = Generator((3, 64, 64)), Discriminator((3, 64, 64))
    widths = [m.out_channels for m in generator.modules() if isinstance(m, torch.nn.ConvTranspose2d)]
    assert widths == [512, 256, 128, 64, 3]
    assert all(m.kernel_size == (4, 4) for m in generator.modules() if isinstance(m, torch.nn.ConvTranspose2d))
    images = generator(torch.randn(2, 100))
    assert images.shape == (2, 3, 64, 64) and discriminator(images).shape == (2,)
    with pytest.raises(UsdehazeError, match="makes images of 64 x 64, not 32 x 64"):
        Generator((3, 32, 64))


def test_training_moves_the_generator_to_the_images_and_goes_on_where_it_stopped(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("validation.paper.systems.gan.LR", 0.01)
    images = 0.8 + 0.02 * torch.randn(64, 1, 8, 8)
    budget = Budget(train_steps=40, batch=16, tiny=True)
    generator, told = train_gan(images, 0, budget, tmp_path / "whole")
    assert "64 images, 40 steps" in told
    torch.manual_seed(0)
    untrained = Generator((1, 8, 8), (2,), 8).eval()
    z = torch.randn(32, 8)
    assert abs(generator(z).mean() - 0.8) < abs(untrained(z).mean() - 0.8) / 1.5

    monkeypatch.setattr("validation.paper.systems.fitting.EVERY_S", 0.0)
    taken = torch.optim.Adam.step
    steps = iter(range(1, 1000))

    def interrupted(self, closure=None):
        if next(steps) == 51:
            raise KeyboardInterrupt
        return taken(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_gan(images, 0, budget, tmp_path / "stopped")
    monkeypatch.setattr(torch.optim.Adam, "step", taken)
    again, _ = train_gan(images, 0, budget, tmp_path / "stopped")
    for name, value in generator.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)


def test_a_broken_checkpoint_is_told_in_one_line(tmp_path) -> None:
    images = torch.rand(16, 1, 8, 8)
    budget = Budget(train_steps=1, batch=8, tiny=True)
    train_gan(images, 0, budget, tmp_path)
    (path,) = tmp_path.glob("gan-*.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UsdehazeError, match=r"not a usable checkpoint .*remove it to start anew"):
        train_gan(images, 0, budget, tmp_path)


def test_prepare_and_solve_are_the_systems(tmp_path) -> None:
    gan = Gan()
    images = torch.rand(16, 1, 8, 8)
    told = gan.prepare(
        images, images, 0, Budget(train_steps=2, batch=8, solve_steps=3, restarts=2, tiny=True), tmp_path
    )
    x, noise = gan.solve(problem_of(images[:2]), 0)
    assert gan.name == "gan" and told.startswith("16 images, 2 steps") and noise is None
    assert x.shape == (2, 1, 8, 8) and 0 <= float(x.min()) <= float(x.max()) <= 1
