"""Figures against closed forms, other implementations and values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from usdehaze.validation import metrics


def speckle_db(n: int, power: float, rng: np.random.Generator) -> np.ndarray:
    """Fully developed speckle: exponentially distributed power, in dB."""
    return 10 * np.log10(power * rng.exponential(size=n))


@pytest.mark.parametrize("bins", [None, 256])
@pytest.mark.parametrize("ratio", [2.0, 4.0, 10.0, 0.1, 100.0])
def test_gcnr_of_speckle_meets_the_closed_form(ratio: float, bins: int | None) -> None:
    rng = np.random.default_rng(1)
    n = 40_000
    values = [metrics.gcnr(speckle_db(n, ratio, rng), speckle_db(n, 1.0, rng), bins=bins) for _ in range(5)]
    theory = abs(ratio ** (-ratio / (ratio - 1)) - ratio ** (-1 / (ratio - 1)))
    p_d, p_f = max(ratio, 1 / ratio), 1.0  # one threshold separates the regions: the error is that of two proportions
    threshold = math.log(p_d) * p_d / (p_d - 1)
    q = [math.exp(-threshold / p_d), math.exp(-threshold / p_f)]
    error = math.sqrt(sum(x * (1 - x) for x in q) / n / len(values))
    assert abs(np.mean(values) - theory) < 3 * error + 0.004  # 0.004: bias of bins around the crossing
    assert metrics.speckle_gcnr(ratio) == pytest.approx(theory, abs=1e-15)
    assert metrics.speckle_gcnr(1 / ratio) == pytest.approx(theory, abs=1e-12)


def test_default_gcnr_is_unchanged_by_increasing_transforms_of_tied_data() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(40, 200, 700), rng.integers(0, 120, 2100)
    value = metrics.gcnr(a, b)
    assert 0.2 < value < 0.9
    for transform in (lambda v: 0.1 * v - 60, lambda v: np.exp(v / 20.0), lambda v: v.astype(float) ** 3):
        assert metrics.gcnr(transform(a), transform(b)) == value
    assert metrics.gcnr(np.exp(a / 20.0), np.exp(b / 20.0), bins=256) != metrics.gcnr(a, b, bins=256)


def test_default_gcnr_keeps_equal_values_in_one_bin() -> None:
    # Two grey levels, shares 3/4 and 1/4 against 1/4 and 3/4: overlap 1/2, whatever the bins.
    a, b = np.repeat([10, 20], [300, 100]), np.repeat([10, 20], [100, 300])
    assert metrics.gcnr(a, b) == pytest.approx(0.5, abs=1e-12)
    assert metrics.gcnr(np.full(50, 3), np.full(80, 3)) == 0.0
    assert metrics.gcnr(np.full(50, 3), np.full(80, 4)) == 1.0


def test_default_gcnr_shrugs_at_an_outlier_that_ruins_the_fixed_bin_one() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, 4000), rng.normal(3, 1, 4000)
    far = np.append(b, 4000.0)
    assert abs(metrics.gcnr(a, far) - metrics.gcnr(a, b)) < 0.01
    assert metrics.gcnr(a, far, bins=256) < 0.5 * metrics.gcnr(a, b, bins=256)


def test_fixed_bin_gcnr_is_the_common_histogram_formula() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        a, b = rng.normal(-30, 8, rng.integers(50, 900)), rng.normal(-40, 6, rng.integers(50, 900))
        _, edges = np.histogram(np.concatenate([a, b]), bins=256)
        f, _ = np.histogram(a, bins=edges, density=True)
        g, _ = np.histogram(b, bins=edges, density=True)
        expected = 1 - np.minimum(f / f.sum(), g / g.sum()).sum()
        assert metrics.gcnr(a, b, bins=256) == pytest.approx(expected, abs=1e-12)


def test_fixed_bin_gcnr_of_identical_small_regions_is_far_from_zero_and_the_default_less_so() -> None:
    rng = np.random.default_rng(5)
    pairs = [(speckle_db(400, 1, rng), speckle_db(400, 1, rng)) for _ in range(40)]
    fixed = np.mean([metrics.gcnr(a, b, bins=256) for a, b in pairs])
    default = np.mean([metrics.gcnr(a, b) for a, b in pairs])
    assert 0.3 < fixed < 0.45  # 0.37 in the literature's example
    assert default < 0.6 * fixed


def test_equiprobable_bins_follow_two_n_to_the_two_fifths() -> None:
    assert metrics.equiprobable_bins(1024) == 32  # 2 * 2^4 exactly
    assert metrics.equiprobable_bins(1000) == 32  # 31.7 rounded up


def test_cnr_and_contrast_equal_values_worked_out_by_hand() -> None:
    a, b = [-10.0, -20.0], [-30.0, -50.0]
    assert metrics.cnr(a, b) == pytest.approx(25 / math.sqrt(25 + 100))
    # Powers 0.1 and 0.01 average to 0.055; 0.001 and 0.00001 to 0.000505.
    assert metrics.contrast_db(a, b) == pytest.approx(10 * math.log10(0.055 / 0.000505))
    assert metrics.mean_shift_db(a, b) == pytest.approx(-25.0)
    assert metrics.cnr([1.0, 1.0], [1.0]) == 0.0
    assert metrics.cnr([1.0, 1.0], [2.0]) == math.inf


def test_ks_equals_scipy_with_ties_and_without() -> None:
    rng = np.random.default_rng(6)
    for a, b in [
        (rng.normal(size=300), rng.normal(0.3, 1, size=500)),
        (rng.integers(0, 9, 400), rng.integers(0, 7, 300)),
    ]:
        assert metrics.ks(a, b) == pytest.approx(stats.ks_2samp(a, b).statistic, abs=1e-14)


def test_psnr_of_a_constant_error_is_the_ratio_in_db() -> None:
    truth = np.linspace(-60, -10, 200).reshape(10, 20)
    assert metrics.psnr_db(truth + 6, truth, 60) == pytest.approx(20.0)
    assert metrics.psnr_db(truth, truth, 60) == math.inf


def test_ssim_equals_its_formula_on_one_window_and_on_constants() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.uniform(-60, 0, (2, 11, 11))
    u, v = 1 + x / 60, 1 + y / 60
    line = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    w = np.outer(line, line) / line.sum() ** 2
    mu, mv = (w * u).sum(), (w * v).sum()
    su, sv, suv = (w * (u - mu) ** 2).sum(), (w * (v - mv) ** 2).sum(), (w * (u - mu) * (v - mv)).sum()
    expected = (2 * mu * mv + 1e-4) * (2 * suv + 9e-4) / ((mu**2 + mv**2 + 1e-4) * (su + sv + 9e-4))
    assert metrics.ssim(x, y, 60) == pytest.approx(expected, abs=1e-10)
    assert metrics.ssim(x, x, 60) == pytest.approx(1.0)
    grey = metrics.ssim(np.full((20, 20), -30.0), np.full((20, 20), -45.0), 60)  # 0.5 and 0.25
    assert grey == pytest.approx((2 * 0.5 * 0.25 + 1e-4) / (0.25 + 0.0625 + 1e-4))


def test_bootstrap_interval_of_independent_values_has_the_width_of_theory() -> None:
    values = np.random.default_rng(8).normal(2.0, 1.0, 400)
    low, high = metrics.bootstrap_ci95(values, np.arange(400), seed=0) or (0, 0)
    half = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert metrics.bootstrap_ci95(values, np.arange(400), seed=0) == (low, high)


def test_bootstrap_draws_the_frames_of_a_cine_together() -> None:
    cine_mean = np.random.default_rng(9).normal(0, 1, 10)
    values, cines = np.repeat(cine_mean, 30), np.repeat(np.arange(10), 30)
    low, high = metrics.bootstrap_ci95(values, cines) or (0, 0)
    frames = metrics.bootstrap_ci95(values, np.arange(300)) or (0, 0)
    assert high - low > 4 * (frames[1] - frames[0])  # sqrt(30) = 5.5 times
    assert metrics.bootstrap_ci95(values, np.zeros(300)) is None


@pytest.mark.parametrize("a, b", [([], [1.0]), ([math.nan], [1.0]), ([1.0], [math.inf])])
def test_regions_that_are_empty_or_not_finite_are_refused(a: list[float], b: list[float]) -> None:
    for measure in (metrics.gcnr, metrics.cnr, metrics.contrast_db, metrics.ks):
        with pytest.raises(ValueError, match="region"):
            measure(a, b)
