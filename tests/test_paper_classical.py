"""LASSO and BM3D of the paper's comparison."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from usdehaze.diffusion.observation import Blend, LinearOperator
from usdehaze.errors import UsdehazeError
from validation.paper.systems.base import Budget, Problem
from validation.paper.systems.bm3d import Bm3d
from validation.paper.systems.lasso import Lasso, Wavelets, fista, optimality

pywt = pytest.importorskip("pywt")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_wavelets_are_orthonormal_and_come_back() -> None:
    wavelets, x = Wavelets(8, 16), random(3, 2, 8, 16)
    w = wavelets.forward(x)
    torch.testing.assert_close(wavelets.backward(w), x)
    torch.testing.assert_close(w.square().sum((2, 3)), x.square().sum((2, 3)))
    unit = wavelets.forward(torch.eye(128, dtype=torch.float64).reshape(128, 8, 16)).flatten(1)
    torch.testing.assert_close(unit @ unit.T, torch.eye(128, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (wavelets.forward(torch.ones(8, 16, dtype=torch.float64)).abs() > 1e-9).sum() == 2  # 8 x 16 ends at 1 x 2


def test_orthonormal_basis_is_soft_thresholding() -> None:
    basis, y = torch.linalg.qr(random(6, 6)).Q, random(4, 6, seed=1)
    expected = y @ basis
    expected = expected.sign() * (expected.abs() - 0.15).clamp(min=0)
    torch.testing.assert_close(fista(basis, y, 0.3, tolerance=1e-9), expected, rtol=0, atol=1e-8)
    assert (expected == 0).any()


def test_underdetermined_solution_obeys_the_optimality_conditions() -> None:
    basis, y, weight = random(12, 30) / 12**0.5, random(5, 12, seed=1), 0.2
    w = fista(basis, y, weight, 20_000, 1e-6)
    assert optimality(basis, y, w, weight).max() <= 1e-6 * weight
    assert ((w != 0).sum(1) <= 12).all()
    assert optimality(basis, y, 1.01 * w, weight).min() > 1e-3 * weight
    torch.testing.assert_close(fista(basis, y[2:3], weight, 20_000, 1e-6), w[2:3], rtol=0, atol=1e-9)


def test_another_solver_finds_no_lower_value() -> None:
    basis, y, weight = random(8, 14).numpy(), random(1, 8, seed=1).numpy(), 0.3

    def value(w: np.ndarray) -> float:
        return float(((y - w @ basis.T) ** 2).sum() + weight * np.abs(w).sum())

    def split(u: np.ndarray) -> float:  # w = u+ - u-, both at least 0: smooth
        return float(((y - (u[:14] - u[14:]) @ basis.T) ** 2).sum() + weight * u.sum())

    other = minimize(split, np.full(28, 0.1), bounds=[(0, None)] * 28, method="L-BFGS-B", options={"ftol": 1e-14})
    ours = fista(torch.from_numpy(basis), torch.from_numpy(y), weight, 20_000, 1e-6).numpy()
    assert value(ours) == pytest.approx(other.fun, rel=1e-6)
    np.testing.assert_allclose(ours[0], other.x[:14] - other.x[14:], atol=1e-3)


def sparse_problem(offset: float) -> tuple[Problem, torch.Tensor]:
    wavelets = Wavelets(8, 8)
    w = torch.zeros(4, 64, dtype=torch.float64)
    w[:, 0] = 4  # a mean of 0.5
    w[:, [1, 5, 17]] = 0.4 * random(4, 3)
    x = wavelets.backward(w.reshape(2, 2, 8, 8)).clamp(0, 1)
    operator = LinearOperator(random(32, 64, seed=4) / 32**0.5)
    y = operator.forward(x.reshape(4, 1, 8, 8)).reshape(2, 2, 1, 32) + offset
    return Problem(y, operator, (2, 8, 8), 0.1), x


@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_sparse_images_come_back_whatever_the_mean_of_the_noise(offset: float, tmp_path) -> None:
    problem, x = sparse_problem(offset)
    lasso = Lasso(1e-3)
    assert lasso.prepare(x, x, 0, Budget(), tmp_path) == ""
    found, noise = lasso.solve(problem, 0)
    assert noise is None and found.dtype == torch.float64
    torch.testing.assert_close(found, x, rtol=0, atol=2e-3)


def test_lasso_wants_compressed_sensing_and_says_what_is_missing(tmp_path, monkeypatch) -> None:
    problem = Problem(torch.rand(1, 1, 8, 8), Blend(0.5), (1, 8, 8), 0.1)
    with pytest.raises(UsdehazeError, match="LASSO is for compressed sensing"):
        Lasso().solve(problem, 0)
    monkeypatch.setattr("validation.paper.systems.lasso.find_spec", lambda name: None)
    with pytest.raises(UsdehazeError, match=r"PyWavelets is not installed: pip install 'usdehaze\[paper\]'"):
        Lasso().prepare(problem.y, problem.y, 0, Budget(), tmp_path)


@pytest.mark.parametrize("channels", [1, 3])
def test_bm3d_takes_white_noise_off_flat_images(channels: int, tmp_path) -> None:
    pytest.importorskip("bm3d")
    x = torch.full((1, channels, 24, 24), 0.3)
    x[:, :, :, 12:] = 0.7
    y = 0.5 * x + 0.05 * torch.randn(x.shape)
    bm3d = Bm3d()
    assert bm3d.prepare(x, x, 0, Budget(), tmp_path) == ""
    found, noise = bm3d.solve(Problem(y, Blend(0.5), (channels, 24, 24), 0.05), 0)
    assert noise is None and found.dtype == y.dtype
    assert math.sqrt(float((found - x).square().mean())) < 0.03 < 0.09 < float((2 * y - x).std())


def test_bm3d_takes_a_grey_image_in_colour_for_a_grey_one(tmp_path) -> None:
    pytest.importorskip("bm3d")
    grey = 0.25 + 0.05 * torch.randn(1, 1, 24, 24)
    bm3d = Bm3d()
    bm3d.prepare(grey, grey, 0, Budget(), tmp_path)
    of_grey, of_colour = (
        bm3d.solve(Problem(y, Blend(0.5), (y.shape[1], 24, 24), 0.05), 0)[0] for y in (grey, grey.repeat(1, 3, 1, 1))
    )
    torch.testing.assert_close(of_colour, of_grey.expand_as(of_colour))  # and finite


def test_bm3d_wants_images_and_says_what_is_missing(tmp_path, monkeypatch) -> None:
    problem, x = sparse_problem(0.0)
    with pytest.raises(UsdehazeError, match="takes no compressed sensing"):
        Bm3d().solve(problem, 0)
    monkeypatch.setattr("validation.paper.systems.bm3d.find_spec", lambda name: None)
    with pytest.raises(UsdehazeError, match=r"pip install 'usdehaze\[bm3d\]' \(non-commercial licence\)"):
        Bm3d().prepare(x, x, 0, Budget(), tmp_path)
