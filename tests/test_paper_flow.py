"""FLOW of the paper's comparison: exact densities, and searches that end where closed forms say."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import Tensor

from usdehaze.diffusion.observation import Additive, Blend, LinearOperator
from usdehaze.errors import UsdehazeError
from validation.paper.systems.base import Budget, Problem
from validation.paper.systems.flow import Flow, map_in_data, map_in_latent, train_flow
from validation.paper.systems.glow import Glow, folded, normal_log_prob

pytest.importorskip("normflows")


@pytest.fixture
def tiny_flow() -> Glow:
    """Two levels of two steps on 3 x 4 x 8, float64, with couplings that do something."""
    torch.manual_seed(0)
    flow = Glow((3, 4, 8), depth=2, levels=2, width=8).double()
    flow.encode(torch.rand(16, 3, 4, 8, dtype=torch.float64))  # sets the activation norms
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return flow.eval().requires_grad_(False)


class Diagonal:
    """A normal density as a flow: ``x = mean + std z``."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return ((x - self.mean) / self.std).flatten(1), -self.std.log().sum().expand(len(x))

    def generate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean + self.std * z.reshape(len(z), *self.mean.shape), self.std.log().sum().expand(len(z))

    def log_prob(self, x: Tensor) -> Tensor:
        z, log_det = self.encode(x)
        return normal_log_prob(z) + log_det


def test_images_come_back_from_their_latents_exactly(tiny_flow: Glow) -> None:
    x = torch.rand(5, 3, 4, 8, dtype=torch.float64)
    z, down = tiny_flow.encode(x)
    back, up = tiny_flow.generate(z)
    assert z.shape == (5, 96)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-9)
    torch.testing.assert_close(up, -down)


def test_log_determinant_is_that_of_the_jacobian(tiny_flow: Glow) -> None:
    x = torch.rand(1, 3, 4, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda u: tiny_flow.encode(u)[0], x).reshape(96, 96)
    z, log_det = tiny_flow.encode(x)
    expected = torch.linalg.slogdet(jacobian).logabsdet
    torch.testing.assert_close(log_det[0], expected)
    log_normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum()
    torch.testing.assert_close(tiny_flow.log_prob(x)[0], log_normal + expected)


def test_printed_depth_and_levels_keep_images_in_single_precision() -> None:
    torch.manual_seed(0)
    flow = Glow((1, 16, 16), width=4)
    x = torch.rand(8, 1, 16, 16)
    flow.encode(x)
    with torch.no_grad():
        torch.testing.assert_close(flow.generate(flow.encode(x)[0])[0], x, rtol=0, atol=1e-3)
    assert len(flow.flow.flows) == 4 and all(len(level) == 18 + 1 for level in flow.flow.flows)


def test_sequences_are_folded_so_that_every_level_finds_even_sides() -> None:
    assert folded((3, 1, 2048)) == (3, 32, 64)
    assert folded((1, 1, 64)) == (1, 8, 8)
    assert folded((3, 64, 64)) == (3, 64, 64)
    with pytest.raises(UsdehazeError, match="length that 64 divides, found 2050"):
        folded((1, 1, 2050))
    with pytest.raises(UsdehazeError, match="multiples of 16, found 20 x 64"):
        Glow((3, 20, 64))


def test_a_missing_library_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "normflows", None)
    with pytest.raises(UsdehazeError, match=r"normflows is not installed: pip install 'usdehaze\[paper\]'"):
        Glow((3, 16, 16))


def gaussian_problem(observation: Additive | Blend | LinearOperator) -> tuple[Problem, Diagonal, Diagonal, Tensor]:
    """A measurement, densities of signal and noise, and the maximum of their joint posterior."""
    generator = torch.Generator().manual_seed(3)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    m = 4 if isinstance(observation, LinearOperator) else 8
    shape = (1, 1, m) if m == 4 else (1, 2, 4)
    signal = Diagonal(rand(1, 2, 4), 0.1 + 0.2 * rand(1, 2, 4))
    noise = Diagonal(rand(*shape), 0.1 + 0.2 * rand(*shape))
    problem = Problem(rand(2, *shape), observation, (1, 2, 4), 0.2)
    a = problem.signal_factor * torch.eye(8, dtype=torch.float64)
    if isinstance(observation, LinearOperator):
        assert observation.matrix is not None
        a = observation.matrix
    b = problem.noise_factor
    precision = torch.diag(signal.std.flatten() ** -2)
    weight = torch.diag((b * noise.std.flatten()) ** -2)
    right = (problem.y.flatten(1) - b * noise.mean.flatten()) @ weight @ a + signal.mean.flatten() @ precision
    closed = torch.linalg.solve(precision + a.T @ weight @ a, right.T).T
    return problem, signal, noise, closed.reshape(2, 1, 2, 4)


MATRIX = torch.randn(4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 2


@pytest.mark.parametrize("observation", [Additive(), Blend(0.3), LinearOperator(MATRIX)])
def test_search_in_data_space_ends_at_the_closed_form(observation: Additive | Blend | LinearOperator) -> None:
    problem, signal, noise, closed = gaussian_problem(observation)
    found = map_in_data(problem, signal, noise, torch.zeros(2, 1, 2, 4, dtype=torch.float64), 400, 0.02)
    torch.testing.assert_close(found, closed, rtol=0, atol=2e-3)


@pytest.mark.parametrize("observation", [Blend(0.3), LinearOperator(MATRIX)])
def test_search_in_latent_space_of_weight_one_ends_at_the_same(
    observation: Blend | LinearOperator,
) -> None:
    problem, signal, noise, closed = gaussian_problem(observation)
    start = torch.zeros(2, 8, dtype=torch.float64)
    found = map_in_latent(problem, signal, noise, start, 1.0, steps=300, step=0.1)
    torch.testing.assert_close(found, closed, rtol=0, atol=2e-3)


def test_small_weight_trusts_the_noise_more() -> None:
    problem, signal, noise, _ = gaussian_problem(Additive())
    start = torch.zeros(2, 8, dtype=torch.float64)

    def misfit(weight: float) -> float:
        x = map_in_latent(problem, signal, noise, start, weight, steps=200, step=0.1)
        return -float(noise.log_prob(problem.noise_of(x)).sum())

    assert misfit(0.03) < misfit(1.0) - 1


def test_training_learns_a_density_and_a_stopped_run_ends_like_any_other(tmp_path, monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    level = 0.3 + 0.4 * torch.rand(200, 1, 1, 1, generator=generator)
    images = (level + 0.05 * torch.randn(200, 1, 8, 8, generator=generator)).clamp(0, 1)
    budget = Budget(train_steps=60, batch=32, tiny=True)
    whole, told = train_flow("signal", images, 0, budget, tmp_path / "whole", lr=5e-3)
    grey = images.mean() + images.std() * torch.randn(images.shape, generator=generator)
    assert whole.log_prob(images).mean() > whole.log_prob(grey.clamp(0, 1)).mean() + 20
    assert "180 images, 60 steps" in told and "held out" in told

    class Stop(Exception):
        pass

    flow_step = torch.optim.Adam.step

    def stop_at_40(self, closure=None):
        stop_at_40.count += 1
        if stop_at_40.count == 40:
            raise Stop
        return flow_step(self, closure)

    stop_at_40.count = 0
    monkeypatch.setattr(torch.optim.Adam, "step", stop_at_40)
    monkeypatch.setattr("validation.paper.systems.fitting.EVERY_S", 0.0)
    with pytest.raises(Stop):
        train_flow("signal", images, 0, budget, tmp_path / "stopped", lr=5e-3)
    again, _ = train_flow("signal", images, 0, budget, tmp_path / "stopped", lr=5e-3)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)


def test_system_splits_a_blend_and_batches_change_nothing(tmp_path) -> None:
    generator = torch.Generator().manual_seed(0)
    signal = 0.5 + 0.1 * torch.randn(64, 1, 8, 8, generator=generator)
    noise = 0.2 + 0.02 * torch.randn(64, 1, 8, 8, generator=generator)
    y = 0.5 * signal[:3] + 0.5 * noise[:3]
    problem = Problem(y, Blend(0.5), (1, 8, 8), 0.1)
    for system in (Flow(step=0.02, lr=5e-3), Flow(latent=True, weight=1, step=0.1, lr=5e-3)):
        system.prepare(signal, noise, 0, Budget(train_steps=30, batch=16, solve_steps=30, tiny=True), tmp_path)
        x, n = system.solve(problem, 0)
        assert n is not None
        torch.testing.assert_close(0.5 * x + 0.5 * n, y)
        assert (x - signal[:3]).abs().mean() < (y - signal[:3]).abs().mean() / 2
        alone, _ = system.solve(problem.split(slice(0, 1)), 0)
        torch.testing.assert_close(alone, x[:1], rtol=0, atol=1e-5)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2  # both searches use the same flows


def test_values_without_a_density_do_not_stop_a_search() -> None:
    class Half(Diagonal):
        def log_prob(self, x: Tensor) -> Tensor:
            return super().log_prob(x) + torch.where(x.flatten(1)[:, 0] < -0.9, math.nan, 0.0)

    problem, signal, noise, closed = gaussian_problem(Additive())
    start = torch.full((2, 1, 2, 4), 0.5, dtype=torch.float64)
    start[1, 0, 0, 0] = -1
    found = map_in_data(problem, Half(signal.mean, signal.std), noise, start, 400, 0.02)
    torch.testing.assert_close(found, closed, rtol=0, atol=2e-3)
