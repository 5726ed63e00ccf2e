"""Figures against closed forms, other implementations and values worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from _gcnr_pairs import pairs
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
    cuts = [np.float32, np.uint8, lambda v: 0.1 * v - 60, lambda v: np.exp(v / 20.0), lambda v: v.astype(float) ** 3]
    for transform in cuts:
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


def test_fixed_bin_gcnr_equals_what_zea_and_the_challenge_made_of_a_thousand_pairs() -> None:
    recorded = json.loads((Path(__file__).parent / "data" / "gcnr_256_bins.json").read_text())["gcnr"]
    found = [metrics.gcnr(a, b, bins=256) for a, b in pairs()]
    assert len(found) == len(recorded) == 1000
    exact = 1e-12 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 1e-5  # NumPy 1 rounds float32 edges otherwise
    assert np.abs(np.subtract(found, [zea for zea, _ in recorded])).max() < exact
    assert np.abs(np.subtract(found, [challenge for _, challenge in recorded])).max() < exact


def test_fixed_bin_gcnr_counts_a_pixel_on_an_edge_in_the_upper_bin_and_the_maximum_in_the_last() -> None:
    # Four bins of width 1 from 0 to 4: a fills them 1, 2, 0, 1, b 0, 1, 1, 2; overlap 0 + 1/4 + 0 + 1/4.
    assert metrics.gcnr([0.0, 1.0, 1.5, 4.0], [1.0, 2.0, 3.0, 3.5], bins=4) == pytest.approx(0.5, abs=1e-15)
    narrow = np.float32(-60) + np.array([0, 1], np.float32) * np.spacing(np.float32(-60))
    assert metrics.gcnr(narrow[:1], narrow[1:], bins=256) == 1.0  # float32 has no 256 bins between these two
    assert metrics.gcnr(narrow[:1], narrow[:1], bins=256) == 0.0


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
    dark = metrics.amplitude(np.full(104, -37.3))  # whose mean, rounded, is another than that of 100 of them
    assert metrics.cnr(dark, dark[:100]) == 0.0


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


def test_speckle_snr_is_that_of_rayleigh_amplitudes() -> None:
    rng = np.random.default_rng(11)
    theory = math.sqrt(math.pi / (4 - math.pi))  # 1.913
    for power in (1.0, 0.01):
        assert metrics.speckle_snr(speckle_db(200_000, power, rng)) == pytest.approx(theory, abs=0.015)
    assert metrics.speckle_snr([0.0, 20 * math.log10(3)]) == pytest.approx(2.0)  # amplitudes 1 and 3: mean 2, spread 1
    assert metrics.speckle_snr([-12.3, -12.3, -12.3]) == math.inf


def test_cnr_of_amplitudes_is_the_linear_one_and_zeas_is_20_log10_of_root_2_of_ours() -> None:
    a, b = 20 * np.log10([1.0, 3.0]), 20 * np.log10([0.1, 0.3])
    linear = metrics.cnr(metrics.amplitude(a), metrics.amplitude(b))
    assert linear == pytest.approx(1.8 / math.sqrt(1 + 0.01))
    in_db = 20 * math.log10(1.8 / math.sqrt((1 + 0.01) / 2))
    assert 20 * math.log10(math.sqrt(2) * linear) == pytest.approx(in_db)


def test_rmse_is_the_root_of_the_mean_square() -> None:
    assert metrics.rmse_db([1.0, -7.0], [0.0, 0.0]) == pytest.approx(5.0)
    with pytest.raises(ValueError, match="differ in shape"):
        metrics.rmse_db([1.0, 2.0], [0.0])


@pytest.mark.parametrize("a, b", [([], [1.0]), ([math.nan], [1.0]), ([1.0], [math.inf])])
def test_regions_that_are_empty_or_not_finite_are_refused(a: list[float], b: list[float]) -> None:
    for measure in (metrics.gcnr, metrics.cnr, metrics.contrast_db, metrics.ks):
        with pytest.raises(ValueError, match="region"):
            measure(a, b)


def test_structural_similarity_inside_an_image_is_the_mean_of_its_windows() -> None:
    """Two halves, one alike: the mask of a half gives that half's mean, and halves average to the whole."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(-60, 0, (40, 60))
    estimate = np.where(np.arange(60) < 30, truth, rng.uniform(-60, 0, (40, 60)))
    left = np.zeros((40, 60), bool)
    left[:, :25] = True  # no window reaches the other half
    assert metrics.ssim(estimate, truth, 60, left) == pytest.approx(1)
    parts = [metrics.ssim(estimate, truth, 60, mask) for mask in (left, ~left)]
    assert metrics.ssim(estimate, truth, 60) == pytest.approx((20 * parts[0] + 30 * parts[1]) / 50)  # windows of each
    with pytest.raises(ValueError, match="none in the mask"):
        metrics.ssim(estimate, truth, 60, np.zeros((40, 60), bool))
