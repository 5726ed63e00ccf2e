"""Coverage and recalibration on Gaussian errors whose spread is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from validation.calibration import calibrate, coverage, fit_factor, interval_coverage, interval_of

N = 10_000


def draw(seed: int, too_small: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimate, stated std and truth; the errors are Gaussian, ``too_small`` times as wide as stated."""
    rng = np.random.default_rng(seed)
    std = rng.uniform(0.5, 4, N)
    truth = rng.uniform(-50, -10, N)
    return truth + too_small * std * rng.normal(size=N), std, truth


def test_honest_deviations_cover_what_they_say() -> None:
    found = coverage(*draw(0))
    assert found == {p: pytest.approx(p, abs=0.015) for p in (0.5, 0.8, 0.95)}


def test_deviations_that_are_too_small_show_in_the_coverage() -> None:
    found = coverage(*draw(0, too_small=2.5))
    # P(|z| <= z_p / 2.5) of a standard normal
    assert found[0.5] == pytest.approx(0.2127, abs=0.015)
    assert found[0.8] == pytest.approx(0.3918, abs=0.015)
    assert found[0.95] == pytest.approx(0.5669, abs=0.015)


def test_factor_is_that_by_which_the_deviation_was_too_small() -> None:
    assert fit_factor(*draw(1, too_small=2.5)) == pytest.approx(2.5, rel=0.05)
    assert fit_factor(*draw(1, too_small=0.5)) == pytest.approx(0.5, rel=0.05)


def test_recalibration_restores_coverage_on_other_scenes() -> None:
    fit, test = [draw(1, 2.5), draw(2, 2.5)], [draw(3, 2.5)]
    found = calibrate(fit, test)
    assert found["before"]["95"] < 0.6
    assert found["after"] == {level: pytest.approx(int(level) / 100, abs=0.02) for level in ("50", "80", "95")}
    assert found["factors"] == [pytest.approx(2.5, rel=0.05)] * 3
    assert found["n_fit"] == 2 and found["n_test"] == 1 and found["n_pixels"] == N


def test_a_factor_that_does_not_suit_every_scene_shows_in_the_coverage_of_each() -> None:
    found = calibrate([draw(1, 2.5)], [draw(3, 2.5), draw(8, 5.0)])
    narrow, narrower = (scene["95"] for scene in found["scenes_before"])
    assert narrow == pytest.approx(2 * stats.norm.cdf(1.96 / 2.5) - 1, abs=0.02)
    assert narrower == pytest.approx(2 * stats.norm.cdf(1.96 / 5) - 1, abs=0.02)
    right, still_narrow = (scene["95"] for scene in found["scenes_after"])
    assert right == pytest.approx(0.95, abs=0.02)
    assert still_narrow == pytest.approx(2 * stats.norm.cdf(1.96 / 2) - 1, abs=0.02)


def test_pixels_whose_samples_agree_count_in_the_coverage_of_all_but_not_in_the_factor() -> None:
    estimate, std, truth = draw(4)
    std[: N // 2] = 0
    found = calibrate([(estimate, std, truth)], [(estimate, std, truth)])
    assert found["factor"] == pytest.approx(1, rel=0.05)
    assert found["doubtful"] == pytest.approx(0.5)
    assert found["after"]["80"] == pytest.approx(0.8, abs=0.02)
    assert found["all_after"]["80"] == pytest.approx(0.4, abs=0.02)


def test_deviation_that_knows_nothing_of_the_error_has_no_rank_correlation() -> None:
    estimate, std, truth = draw(5)
    blind = np.random.default_rng(6).permutation(std)
    known, unknown = (calibrate([draw(7)], [(estimate, s, truth)])["rank_correlations"][0] for s in (std, blind))
    assert known > 0.35
    assert abs(unknown) < 0.04  # standard error 0.01


def test_nothing_to_fit_is_refused() -> None:
    estimate, std, truth = draw(0)
    with pytest.raises(ValueError, match="several samples"):
        fit_factor(estimate, 0 * std, truth)
    with pytest.raises(ValueError, match="shapes differ"):
        coverage(estimate, std[1:], truth)
    with pytest.raises(ValueError, match="negative"):
        coverage(estimate, -std, truth)


def test_an_interval_comes_from_the_result_or_from_its_deviation() -> None:
    tissue, std = np.full((1, 2, 2), -20.0), np.full((1, 2, 2), 2.0)
    low, high = interval_of(SimpleNamespace(tissue=tissue, std=std))
    assert (low == -20 - 3.92).all() and (high == -20 + 3.92).all()
    low, high = interval_of(SimpleNamespace(tissue=tissue, std=std, interval=np.stack([tissue - 9, tissue])))
    assert (low == -29).all() and (high == -20).all()
    assert interval_of(SimpleNamespace(tissue=tissue, std=None)) is None


def test_coverage_of_gains_counts_where_there_is_doubt_and_everywhere() -> None:
    """Pixels: held; held by the slack; outside; truth above the input is no gain, held; no doubt, outside; no image."""
    seen = np.full((1, 6), -20.0)
    truth = np.array([[-23.0, -25.5, -25.6, -15, -30, -30]])
    haze = np.array([[-30.0, -30, -30, -35, -51, -30]])
    interval = np.full((1, 6), -25.0), np.full((1, 6), -20.2)
    inside = np.array([[True] * 5 + [False]])
    covered = interval_coverage(interval, seen, truth, haze, inside)
    assert covered == {"coverage": pytest.approx(3 / 4), "coverage_all": pytest.approx(3 / 5)}
    assert interval_coverage(interval, seen, truth, haze, inside, floor_db=-35)["coverage"] == pytest.approx(2 / 3)
    assert interval_coverage(interval, seen, truth, haze - 30, inside) == {"coverage_all": pytest.approx(3 / 5)}
