"""How sure figures are: bias and intervals of gCNR on speckle whose gCNR is known, and paired statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import ndimage, stats

from usdehaze.validation import metrics
from usdehaze.validation.speckle import correlation_lag, design_effect, share_variances
from usdehaze.validation.uncertainty import (
    bootstrap_ci95,
    correct,
    gcnr_figures,
    paired_statistics,
    permutation_bias,
)


def speckle_db(shape: tuple[int, int], cell_px: float, rng: np.random.Generator) -> np.ndarray:
    """Fully developed speckle in dB, mean power 1; complex Gaussian noise, smoothed over ``cell_px`` pixels."""
    field = rng.normal(size=(2, *shape))
    if cell_px:
        field = np.stack([ndimage.gaussian_filter(part, cell_px, mode="wrap") for part in field])
    power = np.square(field).sum(axis=0)
    return 10 * np.log10(power / power.mean())


def two_regions(ratio: float, side: int, cell_px: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """A frame of two patches of independent speckle, powers ``ratio`` to 1, and the masks of squares in them."""
    frame = np.hstack([speckle_db((64, 64), cell_px, rng) for _ in range(2)])
    frame[:, :64] += 10 * math.log10(ratio)
    left, right = np.zeros((2, 64, 128), dtype=bool)
    left[4 : 4 + side, 4 : 4 + side], right[4 : 4 + side, 70 : 70 + side] = True, True
    return frame, left, right


@pytest.mark.parametrize("cell_px", [0.0, 1.0])
@pytest.mark.parametrize("ratio", [1.0, 2.0, 6.0, 30.0])
def test_corrected_gcnr_of_speckle_meets_theory_and_its_interval_covers_it(ratio: float, cell_px: float) -> None:
    rng = np.random.default_rng(1)
    theory = metrics.speckle_gcnr(ratio)
    covered, raw, corrected = 0, [], []
    n = 15
    for _ in range(n):
        frame, left, right = two_regions(ratio, 40, cell_px, rng)
        plain, freed = gcnr_figures(frame, frame, left, right)
        raw.append(plain["input"])
        corrected.append(freed["input"])
        low, high = freed["input_ci95"]
        assert low <= freed["input"] <= high and plain["input_ci95"][0] <= plain["input"] <= plain["input_ci95"][1]
        covered += low <= theory <= high
    assert covered >= 0.8 * n  # 95 % asked for; blocks of correlated speckle are few
    error = np.std(corrected) / math.sqrt(n)
    assert abs(np.mean(corrected) - theory) < 0.006 + 3 * error
    assert np.mean(raw) > np.mean(corrected)


@pytest.mark.parametrize("side, cell_px, n_pairs", [(20, 0.0, 100), (20, 1.0, 80), (40, 2.0, 60)])
def test_corrected_gcnr_of_identical_regions_is_zero_in_the_mean(side: int, cell_px: float, n_pairs: int) -> None:
    rng = np.random.default_rng(12)
    found = []
    for _ in range(n_pairs):
        frame, left, right = two_regions(1, side, cell_px, rng)
        found.append(gcnr_figures(frame, frame, left, right)[1]["input"])
    assert abs(np.mean(found)) < 0.02
    assert 0.3 < np.mean(np.array(found) < 0) < 0.7  # no more than chance is as frequent as more


@pytest.mark.parametrize("bins, score", [(None, 0.15), (256, 0.33)])
def test_bias_is_what_two_identical_regions_score(bins: int | None, score: float) -> None:
    rng = np.random.default_rng(2)
    figures = [
        gcnr_figures(frame, frame, *masks, bins) for frame, *masks in (two_regions(1, 20, 0, rng) for _ in range(20))
    ]
    bias = np.mean([raw["bias"]["input"] for raw, _ in figures])
    assert bias == pytest.approx(np.mean([raw["input"] for raw, _ in figures]), abs=0.012)
    assert bias == pytest.approx(score, abs=0.015)
    assert abs(np.mean([corrected["input"] for _, corrected in figures])) < 0.04


def test_correlated_speckle_has_a_larger_bias_and_a_wider_interval() -> None:
    def mean_figures(cell_px: float) -> tuple[float, float, float]:
        rng = np.random.default_rng(3)
        raws = [gcnr_figures(f, f, *m)[0] for f, *m in (two_regions(1, 40, cell_px, rng) for _ in range(12))]
        widths = [raw["input_ci95"][1] - raw["input_ci95"][0] for raw in raws]
        return np.mean([r["bias"]["input"] for r in raws]), np.mean([r["input"] for r in raws]), np.mean(widths)

    (bias, value, width), (bias_2, value_2, width_2) = mean_figures(0), mean_figures(2)
    assert (
        value_2 > 1.15 * value and bias_2 == pytest.approx(value_2, rel=0.1) and bias == pytest.approx(value, rel=0.1)
    )
    assert width_2 > 1.3 * width


def test_anatomy_counts_neither_as_correlated_speckle_nor_as_bias() -> None:
    frame, left, right = two_regions(3, 40, 1, np.random.default_rng(9))
    columns, rows = np.meshgrid(np.arange(128), np.arange(64))
    plain, _ = gcnr_figures(frame, frame, left, right)
    waved = frame + 4 * np.sin(rows / 10) + 4 * np.sin(columns / 12)
    slow, _ = gcnr_figures(waved, waved, left, right)
    assert slow["block_px"] == plain["block_px"]
    assert slow["bias"]["input"] == pytest.approx(plain["bias"]["input"], rel=0.2)


def test_permutation_bias_is_the_mean_over_shuffled_pixels() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 6, 120), rng.integers(2, 9, 80)
    pooled = np.concatenate([a, b])
    shuffled = []
    for _ in range(3000):
        rng.shuffle(pooled)
        shares = [np.bincount(part, minlength=9) / part.size for part in (pooled[:120], pooled[120:])]
        shuffled.append(1 - np.minimum(*shares).sum())
    counts = np.bincount(a, minlength=9), np.bincount(b, minlength=9)
    spread = np.std(shuffled) / math.sqrt(200)
    assert permutation_bias(*counts, np.random.default_rng(5)) == pytest.approx(np.mean(shuffled), abs=4 * spread)


def test_correction_takes_the_bias_off_in_quadrature_and_keeps_the_ends() -> None:
    assert correct(np.array([0.3, 0.5, 1.0]), 0.3) == pytest.approx([0, math.sqrt(0.16 / 0.91), 1])
    assert correct(0.4, 0.0) == 0.4
    assert correct(1.0, 1.0) == 0.0  # nothing can be said: two single pixels


def test_less_than_chance_is_below_zero_and_stays_there_when_corrected_again() -> None:
    assert correct(0.1, 0.3) == pytest.approx(-math.sqrt(0.08 / 0.91))
    assert correct(-0.1, 0.3) == pytest.approx(-math.sqrt(0.10 / 0.91))
    frame, left, right = two_regions(1, 20, 0, np.random.default_rng(13))
    raw, corrected = gcnr_figures(frame, frame, left, right)
    assert min(corrected["input_ci95"]) < 0 <= min(raw["input_ci95"])  # gCNR itself is a share


def test_design_effect_is_that_of_the_autocorrelation() -> None:
    rng = np.random.default_rng(14)
    mask = np.ones((200, 200), dtype=bool)
    twice = np.repeat(rng.integers(0, 2, size=(200, 100)), 2, axis=1)  # every pixel twice, side by side: effect 2
    variances = share_variances(mask, twice.ravel(), (1, 2), 2)
    assert design_effect(variances, variances) == pytest.approx(2, rel=0.05)
    alone = share_variances(mask, rng.integers(0, 9, size=40000), (1, 1), 9)
    assert design_effect(alone, alone) == pytest.approx(1, abs=0.02)
    assert alone[1].sum() == pytest.approx((8 / 9) / 40000, rel=0.01)  # sum of p (1 - p), over N
    line = np.zeros((3, 9), dtype=bool)
    line[1, 3] = True  # no pairs at all: as independent pixels
    assert design_effect(*[share_variances(line, np.array([0]), (1, 1), 2)] * 2) == 1


def test_gcnr_figures_are_unchanged_by_increasing_transforms_of_8_bit_data() -> None:
    rng = np.random.default_rng(6)
    frame, left, right = two_regions(3, 30, 1, rng)
    levels = np.clip(np.rint(4 * frame + 128), 0, 255).astype(np.uint8)
    raw, corrected = gcnr_figures(levels, levels, left, right)
    for transform in (lambda v: v / np.float32(4) - 60, lambda v: np.exp(v / 20.0), lambda v: v.astype(float) ** 3):
        assert gcnr_figures(transform(levels), transform(levels), left, right) == (raw, corrected)


def test_the_interval_of_a_change_is_paired() -> None:
    frame, left, right = two_regions(4, 40, 1, np.random.default_rng(7))
    darker = np.where(right, frame - 3, frame)
    raw, _ = gcnr_figures(frame, darker, left, right)
    low, high = raw["ci95"]
    assert 0 < low < raw["delta"] < high
    assert high - low < 0.8 * (raw["tissue_ci95"][1] - raw["tissue_ci95"][0])  # the same blocks before and after
    same, _ = gcnr_figures(frame, frame, left, right)
    assert same["delta"] == 0 and same["ci95"] == [0, 0]


def test_correlation_lag_is_where_the_autocorrelation_falls_below_one_over_e() -> None:
    rng = np.random.default_rng(8)
    field = ndimage.gaussian_filter(rng.normal(size=(300, 300)), (3, 1), mode="wrap")
    mask = np.ones(field.shape, dtype=bool)
    # exp(-lag^2 / (4 sigma^2)) falls below 1/e just after lag = 2 sigma
    assert correlation_lag(field, mask, 0) in (6, 7) and correlation_lag(field, mask, 1) in (2, 3)
    assert correlation_lag(rng.normal(size=(300, 300)), mask, 0) == 1
    assert correlation_lag(np.ones((9, 9)), np.ones((9, 9), dtype=bool), 0) == 1


def test_regions_of_a_pixel_each_or_of_one_value_give_figures_all_the_same() -> None:
    frame = np.array([[0.0, -10.0, -10.0], [0.0, -10.0, -10.0]])
    raw, corrected = gcnr_figures(frame, frame, frame == 0, frame == -10)
    assert raw["input"] == 1 and corrected["input"] == 1 and raw["input_ci95"] == [1, 1]
    one, other = np.zeros((2, 2, 3), dtype=bool)
    one[0, 0], other[0, 1] = True, True
    single = gcnr_figures(frame, frame, one, other)
    assert math.isfinite(single[1]["input"])
    assert {entry[key] for entry in single for key in ("ci95", "input_ci95", "tissue_ci95")} == {None}
    flat, _ = gcnr_figures(0 * frame, 0 * frame, frame == 0, frame == -10)
    assert flat["input"] == 0 and flat["bias"]["input"] == 0


def test_bootstrap_interval_of_independent_values_has_the_width_of_theory() -> None:
    values = np.random.default_rng(8).normal(2.0, 1.0, 400)
    low, high = bootstrap_ci95(values, np.arange(400), seed=0) or (0, 0)
    half = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert bootstrap_ci95(values, np.arange(400), seed=0) == (low, high)


def test_bootstrap_draws_the_frames_of_a_cine_together() -> None:
    cine_mean = np.random.default_rng(9).normal(0, 1, 10)
    values, cines = np.repeat(cine_mean, 30), np.repeat(np.arange(10), 30)
    low, high = bootstrap_ci95(values, cines) or (0, 0)
    frames = bootstrap_ci95(values, np.arange(300)) or (0, 0)
    assert high - low > 4 * (frames[1] - frames[0])  # sqrt(30) = 5.5 times
    assert bootstrap_ci95(values, np.zeros(300)) is None


def test_paired_statistics_equal_wilcoxon_of_the_cines_means() -> None:
    rng = np.random.default_rng(10)
    cines = np.repeat(np.arange(9), rng.integers(1, 30, 9))
    before = rng.normal(0.5, 0.1, cines.size)
    after = before + 0.05 + 0.06 * rng.normal(size=9)[cines]
    found = paired_statistics(before, after, cines)
    means = [float((after - before)[cines == c].mean()) for c in range(9)]
    expected = stats.wilcoxon(means)
    assert found["n_clusters"] == 9 and found["mean_difference"] == pytest.approx(np.mean(means))
    assert (found["wilcoxon_statistic"], found["wilcoxon_p"]) == (expected.statistic, expected.pvalue)
    low, high = found["ci95"]
    half = 1.96 * np.std(means) / 3
    assert (low, high) == pytest.approx((np.mean(means) - half, np.mean(means) + half), abs=0.012)


def test_paired_statistics_of_one_cine_or_of_no_difference_claim_nothing() -> None:
    one = paired_statistics([1.0, 2.0, math.nan], [2.0, 4.0, 1.0], ["a", "a", "b"])
    assert one == {
        "n_clusters": 1,
        "mean_difference": 1.5,
        "ci95": None,
        "wilcoxon_statistic": None,
        "wilcoxon_p": None,
    }
    same = paired_statistics([1.0, 2.0], [1.0, 2.0], ["a", "b"])
    assert same["wilcoxon_p"] is None and same["ci95"] == [0, 0]
    assert paired_statistics([math.nan], [1.0], ["a"])["mean_difference"] is None
