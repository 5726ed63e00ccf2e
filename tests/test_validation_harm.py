"""Figures of trust on constructed cases: closed forms, and dehazers that fail in a known way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from usdehaze.validation.harm import (
    flicker_ratio,
    harm_figures,
    harmless,
    leak_bits,
    leak_correlation,
    lost_share,
    mutual_information,
    removal_flicker,
)
from validation.bench.wide import visible_shift_db
from validation.figures import gain_step_db
from validation.trust.study import seed_spread

N = 128
RNG = np.random.default_rng(5)
TISSUE, HAZE, OTHER = RNG.normal(-30, 8, (3, N, N))  # uncorrelated, of equal spread


def clean_frame() -> tuple[np.ndarray, np.ndarray]:
    """Walls at -20 dB about cavities at -50 dB, and where the walls are."""
    frame = np.full((40, 40), -50.0, np.float32) + RNG.normal(0, 1, (40, 40)).astype(np.float32)
    walls = np.zeros((40, 40), bool)
    walls[:, :15] = True
    frame[walls] += 30
    return frame, walls


def test_frames_that_come_back_as_they_went_in_are_unharmed() -> None:
    frame, walls = clean_frame()
    figures = harm_figures(frame, frame.copy(), walls)
    assert figures == {"clean_rise_db": 0, "clean_shift_db": 0, "clean_change_db": 0}
    assert harmless(figures)


def test_dehazer_that_eats_anatomy_is_caught() -> None:
    frame, walls = clean_frame()
    figures = harm_figures(frame, np.where(walls, frame - 1.5, frame), walls)
    assert figures["clean_shift_db"] == pytest.approx(-1.5, abs=1e-5)
    assert figures["clean_change_db"] == pytest.approx(1.5, abs=1e-5)
    assert not harmless(figures)


def test_dehazer_that_brightens_one_pixel_is_caught() -> None:
    frame, walls = clean_frame()
    brightened = frame.copy()
    brightened[30, 30] += 0.01
    figures = harm_figures(frame, brightened, walls)
    assert figures["clean_shift_db"] == 0 and figures["clean_rise_db"] == pytest.approx(0.01, abs=1e-4)
    assert not harmless(figures)


def test_changes_that_cancel_in_the_mean_still_count_as_change() -> None:
    frame, walls = clean_frame()
    swapped = frame + np.where(np.arange(40) % 2 == 0, 3.0, -3.0)[:, None]
    figures = harm_figures(frame, swapped, walls)
    assert abs(figures["clean_shift_db"]) < 1e-5
    assert figures["clean_change_db"] == pytest.approx(3, abs=1e-5)


def test_tissue_lowered_by_exactly_one_decibel_is_within_the_rule() -> None:
    walls = np.ones((4, 4), bool)
    frame = np.full((4, 4), -20.0)
    assert harmless(harm_figures(frame, frame - 1.0, walls))
    assert not harmless(harm_figures(frame, frame - 1.01, walls))


def test_true_haze_leaks_nothing() -> None:
    assert leak_correlation(HAZE, TISSUE, HAZE) == pytest.approx(0, abs=1e-12)
    assert leak_correlation(0.5 * HAZE - 10, TISSUE, HAZE) == pytest.approx(0, abs=1e-12)
    assert leak_bits(HAZE, TISSUE, HAZE) == 0


def test_true_haze_leaks_nothing_even_where_tissue_and_haze_fade_together() -> None:
    fade = np.linspace(0, -40, N)[:, None]
    tissue, haze = TISSUE + fade, HAZE + fade
    assert np.corrcoef(tissue.ravel(), haze.ravel())[0, 1] > 0.6  # what a plain correlation would call a leak
    assert leak_correlation(haze, tissue, haze) == pytest.approx(0, abs=1e-12)
    assert leak_bits(haze, tissue, haze) == 0


def test_haze_of_another_scene_leaks_nothing_but_chance() -> None:
    assert abs(leak_correlation(OTHER, TISSUE, HAZE)) < 4 / N  # standard error of a correlation: 1 / N
    assert abs(leak_bits(OTHER, TISSUE, HAZE)) < 0.004


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0, -0.3])
def test_planted_leak_is_found_in_its_size(share: float) -> None:
    planted = HAZE + share * TISSUE
    correlation = share / math.sqrt(1 + share**2)
    assert leak_correlation(planted, TISSUE, HAZE) == pytest.approx(correlation, abs=0.02)
    bits = -0.5 * math.log2(1 - correlation**2)
    assert leak_bits(planted, TISSUE, HAZE) == pytest.approx(bits, rel=0.1, abs=0.004)


def test_hazy_frame_taken_for_haze_is_nearly_all_leak() -> None:
    tissue = np.where(np.arange(N) < N // 2, TISSUE, TISSUE - 25)
    faint = HAZE - 20
    hazy = 10 * np.log10(10 ** (tissue / 10) + 10 ** (faint / 10))
    assert leak_correlation(hazy, tissue, faint) > 0.9
    assert leak_bits(hazy, tissue, faint) > 1


def test_leak_that_is_not_linear_shows_in_bits() -> None:
    planted = HAZE + 2 * np.abs(TISSUE + 30)
    assert abs(leak_correlation(planted, TISSUE, HAZE)) < 0.05
    assert leak_bits(planted, TISSUE, HAZE) > 0.2


def test_empty_haze_says_nothing_of_the_tissue() -> None:
    floor = np.full((N, N), -60.0)
    assert leak_correlation(floor, TISSUE, HAZE) == 0
    assert mutual_information(floor, TISSUE) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("correlation", [0.3, 0.6, 0.9])
def test_mutual_information_of_gaussians_is_that_of_theory_less_what_binning_loses(correlation: float) -> None:
    other = correlation * TISSUE + math.sqrt(1 - correlation**2) * OTHER
    theory = -0.5 * math.log2(1 - correlation**2)
    assert 0.88 * theory < mutual_information(TISSUE, other) < 1.08 * theory + 0.01


def test_mutual_information_does_not_see_increasing_grey_level_curves() -> None:
    assert mutual_information(np.exp(TISSUE / 10), HAZE + TISSUE) == mutual_information(TISSUE, HAZE + TISSUE)


def test_image_tells_everything_of_itself() -> None:
    assert mutual_information(TISSUE, TISSUE) == pytest.approx(4, abs=1e-6)  # 16 equiprobable bins


def test_images_of_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        leak_correlation(HAZE, TISSUE[:-1], HAZE)
    with pytest.raises(ValueError, match="differ in size"):
        mutual_information(HAZE, TISSUE[:-1])


def test_removal_that_stays_the_same_does_not_flicker() -> None:
    frames = RNG.normal(-30, 5, (4, 8, 8))
    inside = np.ones((8, 8), bool)
    assert flicker_ratio(np.full_like(frames, 6.0), frames, inside) == 0
    assert flicker_ratio(frames, frames, inside) == 1


def test_removal_that_comes_and_goes_flickers_by_its_size() -> None:
    frames = np.zeros((4, 2, 2)) + np.array([0.0, 2.0, 0.0, 2.0])[:, None, None]
    removed = np.array([0.0, 5.0, 0.0, 5.0])[:, None, None] * np.array([[1, 0], [0, 0]])
    assert flicker_ratio(removed, frames, np.ones((2, 2), bool)) == pytest.approx(5 / 4 / 2)
    assert flicker_ratio(removed, frames, np.array([[1, 0], [0, 0]], bool)) == pytest.approx(2.5)


def test_flicker_of_a_frozen_input_is_no_number() -> None:
    still = np.zeros((3, 2, 2))
    assert math.isnan(flicker_ratio(still, still, np.ones((2, 2), bool)))


def test_flicker_of_one_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="two frames"):
        flicker_ratio(np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), np.ones((2, 2), bool))


def test_spread_over_seeds_is_that_of_the_draws() -> None:
    outputs = -30 + RNG.normal(0, 2, (5, 64, 64))
    inside = np.ones((64, 64), bool)
    assert seed_spread(outputs, inside) == pytest.approx(2, rel=0.03)
    assert seed_spread(np.stack([outputs[0]] * 3), inside) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="two seeds"):
        seed_spread(outputs[:1], inside)


def test_an_unsteady_removal_flickers_by_the_share_of_it_that_changes() -> None:
    frames = np.full((3, 4, 4), -20.0, np.float32)
    inside = np.ones((4, 4), bool)
    removed = np.array([4, 6, 4], np.float32)[:, None, None]
    assert removal_flicker(frames, frames - removed, inside, -60) == pytest.approx(2 / (14 / 3))
    assert removal_flicker(frames, frames - 5, inside, -60) == 0
    assert removal_flicker(frames, frames, inside, -60) == 0
    frames[1, :, 2:] = -60  # at the floor in one frame: neither change of these counts, nor that frame's removal
    expected = 2 / ((3 * 8 * 4 + 2 * 8 * 4 + 8 * 6 - 8 * 4) / 40)
    assert removal_flicker(frames, frames - removed, inside, -60) == pytest.approx(expected)
    with pytest.raises(ValueError, match="two frames"):
        removal_flicker(frames[:1], frames[:1], inside, -60)


def test_the_steps_of_a_gain_are_those_between_neighbours_that_count() -> None:
    ramp = np.tile(-0.5 * np.arange(20.0), (2, 10, 1))
    assert gain_step_db(ramp, np.ones((10, 20), bool)) == pytest.approx(0.5)
    assert gain_step_db(ramp.swapaxes(1, 2), np.ones((20, 10), bool)) == pytest.approx(0.5)
    cliff = np.where(np.arange(20) < 10, 0.0, -9.0) * np.ones((1, 10, 1))
    assert gain_step_db(cliff, np.ones((10, 20), bool)) == pytest.approx(9)  # 10 of 370 steps
    counts = np.ones((1, 10, 20), bool)
    counts[..., 10] = False
    assert gain_step_db(cliff, counts) == 0
    assert gain_step_db(cliff, np.zeros((10, 20), bool)) is None


def test_dim_pixels_are_lost_where_they_come_out_near_the_floor() -> None:
    before = np.array([-57.0, -54, -50, -45, -44, -54])
    after = np.array([-60.0, -57, -56.9, -60, -60, -60])
    counts = np.array([True, True, True, True, True, False])
    assert lost_share(before, after, counts, -60) == pytest.approx(2 / 3)  # dim: -54, -50 and -45
    assert lost_share(before, after, before > -40, -60) is None


def test_the_visible_shift_counts_bright_pixels_of_the_image() -> None:
    clean = np.array([[-20.0, -39, -40, -20]])
    inside = np.array([[True, True, True, False]])
    assert visible_shift_db(clean, clean - [[1, 2, 30, 30]], inside) == pytest.approx(-1.5)
    assert visible_shift_db(clean - 30, clean, inside) is None
