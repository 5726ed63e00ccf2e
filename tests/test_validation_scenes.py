"""Scenes with known truth: powers add, regions lie where labels say, and figures measure what they name."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy import ndimage

from usdehaze.geometry import ModelGrid
from usdehaze.simulate import simulate_cine
from usdehaze.validation.scene import Scene, Split, clean_figures, hazy_figures, removed_flicker, wall_error
from validation.baselines import Method
from validation.calibration import counted_pixels
from validation.scenes import CAMUS_LABELS, add_haze, real_scene, simulated_haze, simulated_scene
from validation.trust.study import chance_figures, dehaze_first


@pytest.fixture(scope="module")
def scene() -> Scene:
    return simulated_scene(1_000_000_000, 2)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A rectangular clean frame in 8 bit, with a label image: wall 170, cavity 85."""
    rng = np.random.default_rng(0)
    label = np.full((2, 150, 140), 0, np.uint8)
    label[:, 20:80, 20:70], label[:, 20:80, 80:130] = 170, 85
    image = np.where(label == 170, 180, 30) + rng.integers(0, 20, label.shape)
    path = tmp_path / "clean.h5"
    with h5py.File(path, "w") as file:
        file["image"], file["label"] = image.astype(np.uint8), label
    return path


def test_powers_add_before_log_compression() -> None:
    tissue = np.array([[[-20.0, -20.0, -50.0, -1.0]]], np.float32)
    haze = np.array([[[-20.0, -60.0, -30.0, -1.0]]], np.float32)
    hazy = add_haze(tissue, haze, np.ones((1, 4), bool))[0, 0]
    assert hazy == pytest.approx([-16.9897, -19.99957, -29.95679, 0.0], abs=1e-4)
    assert hazy[3] == 0  # full scale


def test_pixels_outside_the_image_keep_their_bits() -> None:
    tissue = np.full((1, 2, 2), -60.0, np.float32)
    hazy = add_haze(tissue, np.full_like(tissue, -20), np.array([[True, False], [False, False]]))
    assert hazy[0, 0, 0] > -21
    assert (hazy[0] == tissue[0]).sum() == 3


def test_simulated_scene_is_the_simulators_own(scene: Scene) -> None:
    truth = simulate_cine(2, 1_000_000_000)
    assert np.array_equal(scene.hazy.frames, truth.hazy) and np.array_equal(scene.clean.frames, truth.tissue)
    assert np.array_equal(scene.walls, truth.labels == 1) and np.array_equal(scene.cavities, truth.labels == 2)


def test_simulated_haze_keeps_its_level_renews_its_speckle_and_depends_on_its_seed() -> None:
    first, again, other = (simulated_haze(2, seed, ModelGrid(), 60.0) for seed in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    above = (first > -55).all(axis=0)
    level = ndimage.gaussian_filter(first, (0, 6, 6))
    assert np.abs(np.diff(level, axis=0))[:, above].mean() < 2.0
    grain = (first - level)[:, above]
    assert 0.23 <= np.corrcoef(*grain)[0, 1] <= 0.72  # in ventricles of real cines


def test_real_scene_lies_under_haze_and_takes_its_regions_from_the_labels(labelled: Path) -> None:
    scene = real_scene(labelled, 5, n_frames=1, dataset="image", labels=CAMUS_LABELS, margin_px=3)
    assert scene.clean.frames.shape == (1, 150, 140)
    added = 10 ** (scene.hazy.frames / 10) - 10 ** (scene.clean.frames / 10) - 10 ** (scene.haze / 10)
    below = scene.inside & (scene.hazy.frames < 0)
    assert np.abs(added[below]).max() < 1e-6
    assert scene.walls[0, 50, 45] and not scene.walls[0, 50, 105] and not scene.walls[0, 21, 45]
    assert scene.cavities is not None and scene.cavities[0, 50, 105]


def test_walls_without_labels_are_what_is_bright_without_haze(labelled: Path) -> None:
    scene = real_scene(labelled, 5, n_frames=2, dataset="image")
    assert scene.cavities is None
    assert np.array_equal(scene.walls, (scene.clean.frames > -30) & scene.inside)
    record = hazy_figures(scene, Split(scene.hazy.frames, scene.haze))
    assert "gcnr" not in record and record["rmse_tissue_db"]["tissue"] == record["rmse_tissue_db"]["input"]


def test_truth_given_back_has_no_error_and_no_leak(scene: Scene) -> None:
    record = hazy_figures(scene, scene.truth) | wall_error(scene, scene.truth.tissue[0])
    assert record["rmse_tissue_db"]["tissue"] == record["wall_error_db"]["tissue"] == 0
    assert record["wall_error_db"]["input"] > 0
    assert record["leak_correlation"]["tissue"] == pytest.approx(0, abs=1e-9)
    assert record["leak_bits"]["tissue"] == 0
    assert record["leak_correlation"]["input"] > 0.05
    assert {"gcnr", "ks_tissue", "tissue_shift_db"} < record.keys()


def test_tissue_printed_into_the_haze_is_seen_above_chance(scene: Scene) -> None:
    printed = np.maximum(scene.haze, scene.clean.frames)
    record = hazy_figures(scene, Split(scene.clean.frames, printed))
    chance = chance_figures(scene)
    assert record["leak_correlation"]["tissue"] > abs(chance["leak_correlation"]) + 0.1
    assert record["leak_bits"]["tissue"] > chance["leak_bits"] + 0.2


def test_clean_frames_that_lose_their_walls_break_the_rule(scene: Scene) -> None:
    eaten = np.where(scene.walls, scene.clean.frames - 4, scene.clean.frames)
    record = clean_figures(scene.clean.frames[0], eaten[0], scene.walls[0])
    assert record["clean_shift_db"]["tissue"] == pytest.approx(-4, abs=1e-4)


def test_flicker_of_an_even_removal_is_none(scene: Scene) -> None:
    assert removed_flicker(scene, scene.clean.frames) > 0
    assert removed_flicker(scene, scene.hazy.frames - 3) == pytest.approx(0, abs=1e-5)


def test_temporal_methods_see_the_whole_cine_and_others_the_frames_that_count(scene: Scene) -> None:
    def spy(cine):
        seen.append(len(cine.frames))
        return Split(cine.frames, cine.frames)

    for temporal, expected in ((True, 2), (False, 1)):
        seen: list[int] = []
        split = dehaze_first(Method("spy", lambda: spy, temporal), scene.hazy, 1)
        assert seen == [expected] and len(split.tissue) == 1


def test_pixels_on_the_floor_do_not_count_in_the_calibration(scene: Scene) -> None:
    std = np.ones_like(scene.hazy.frames)
    estimate, _, truth = counted_pixels(scene, Split(scene.hazy.frames, scene.haze, std))
    assert estimate.size == (scene.hazy.frames[0] > -60).sum() and (estimate > -60).all()
    assert truth.size == estimate.size
    with pytest.raises(ValueError, match="2 samples"):
        counted_pixels(scene, Split(scene.hazy.frames, scene.haze))


@pytest.mark.parametrize(("folder", "dataset"), [("camus", "image"), ("clean-cines", None)])
def test_clean_real_frames_get_haze_inside_the_sector_only(data_dir: Path, folder: str, dataset: str | None) -> None:
    path = sorted((data_dir / folder).glob("*.h5"))[0]
    scene = real_scene(path, 1, n_frames=1, dataset=dataset)
    change = scene.hazy.frames[0] - scene.clean.frames[0]
    assert (change[~scene.inside] == 0).all() and (change >= 0).all()
    assert (change[scene.inside] > 3).mean() > 0.02
