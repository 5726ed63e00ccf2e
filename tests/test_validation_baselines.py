"""Classical methods on frames for which their answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from usdehaze.cine import Cine, Polar
from usdehaze.dehazing.settings import PRESETS, PRIORS
from usdehaze.errors import UsdehazeError
from usdehaze.priors.prior import Prior
from usdehaze.validation.benchmark import OURS
from validation.baselines import (
    Method,
    classical,
    median_haze,
    methods,
    non_local_means,
    removed_power_db,
    svd_filter,
)

SHAPE = (128, 128)  # the model grid: nothing is resampled


def cine(frames: np.ndarray) -> Cine:
    geometry = Polar(np.linspace(0.001, 0.15, frames.shape[1]), np.linspace(-0.6, 0.6, frames.shape[2]))
    return Cine(frames.astype(np.float32), geometry)


def test_haze_that_every_beam_has_alike_is_taken_off_in_power() -> None:
    tissue = np.full((2, *SHAPE), -60.0)
    tissue[:, :, :50] = -20.0  # fewer than half of the beams: the median is haze
    haze = np.linspace(-10, -50, 128)[:, None] * np.ones((2, *SHAPE))
    hazy = 10 * np.log10(10 ** (tissue / 10) + 10 ** (haze / 10))
    result = classical(median_haze)(cine(hazy))
    inside = (slice(None), slice(None), slice(0, 50))
    # What the median holds besides haze is the floor, a millionth of full scale.
    assert np.abs(result.tissue[inside] - tissue[inside]).max() < 0.01
    assert result.tissue[:, :, 50:].max() == pytest.approx(-60, abs=1e-3)
    assert np.abs(result.haze[inside] - haze[inside]).max() < 0.5


def test_median_over_beams_eats_tissue_that_most_beams_share() -> None:
    layer = np.full((1, *SHAPE), -60.0)
    layer[:, 60:70] = -20.0
    assert classical(median_haze)(cine(layer)).tissue.max() == pytest.approx(-60)


def test_svd_filter_takes_off_what_never_moves_and_keeps_what_does() -> None:
    frames = np.full((8, *SHAPE), -60.0)
    frames[:, 20:60] = -10.0  # static haze
    for t in range(8):
        frames[t, 90 + t, 40:60] = -20.0  # moves by a row a frame
    result = classical(svd_filter)(cine(frames))
    assert result.tissue[:, 20:60].max() < -50
    moving = np.array([result.tissue[t, 90 + t, 40:60].mean() for t in range(8)])
    # Each pixel holds the echo in one frame of eight, and the static component holds that mean: 1/8 of it goes.
    assert moving == pytest.approx(-20 + 20 * np.log10(7 / 8), abs=0.2)


def test_svd_filter_refuses_a_single_frame() -> None:
    with pytest.raises(UsdehazeError, match="needs a cine"):
        classical(svd_filter)(cine(np.full((1, *SHAPE), -30.0)))


def test_non_local_means_smooths_noise_and_keeps_an_edge() -> None:
    pytest.importorskip("skimage")
    step = np.where(np.arange(64) < 32, -45.0, -15.0) * np.ones((1, 64, 64))
    noisy = np.clip(step + np.random.default_rng(0).normal(0, 4, step.shape), -60, 0)
    denoised = non_local_means(noisy, 60.0)
    assert np.abs(denoised - step).mean() < 0.4 * np.abs(noisy - step).mean()
    assert abs(denoised[0, :, 24].mean() + 45) < 2 and abs(denoised[0, :, 40].mean() + 15) < 2
    assert (denoised > noisy).any()  # it brightens, and nothing here hides that


def test_removed_power_is_the_difference_of_powers() -> None:
    before, after = np.array([-10.0, -10.0, -20.0]), np.array([-13.0, -10.0, -19.0])
    removed = removed_power_db(before, after, 60.0)
    assert removed[0] == pytest.approx(10 * np.log10(10**-1 - 10**-1.3), abs=1e-4)
    assert removed[1] == removed[2] == -60  # nothing was removed


def test_change_is_put_back_on_native_frames_and_brightening_is_not_hidden() -> None:
    frames = np.random.default_rng(1).uniform(-50, -10, (2, 200, 90))
    brighter = classical(lambda seen, span: seen + 5)(cine(frames))
    assert np.abs(brighter.tissue - (frames + 5)).max() < 1e-4
    assert brighter.haze.max() == -60


def test_every_method_of_the_comparison_has_a_row() -> None:
    table = methods(gaussian_steps=50)
    assert list(table)[-1] == OURS
    assert {"non-local means", "BM3D", "median over beams", "SVD over time"} < set(table)
    assert [name for name, method in table.items() if method.learned and name != OURS] == [
        "projection, Gaussian noise",
        "PiGDM, Gaussian noise",
        "DPS, Gaussian noise",
    ]
    assert "50 steps" in table["DPS, Gaussian noise"].what


def test_rows_without_a_haze_prior_have_the_tissue_prior_of_the_fast_preset_and_ours_is_learned() -> None:
    alone, ours = (methods(7)[name].make().__self__ for name in ("PiGDM, Gaussian noise", OURS))
    assert alone.tissue.name == Prior.load(PRIORS[0], "tissue").name and alone.haze is None
    assert (alone.settings.guidance, alone.settings.steps) == ("pigdm", 7)
    assert ours.posterior is not None and ours.settings == PRESETS["fast"]


def test_method_that_is_not_installed_says_so() -> None:
    assert not Method("", classical, needs="no_such_module").available
    assert Method("", classical, needs="numpy").available
