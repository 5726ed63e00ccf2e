"""Figures of a scene whose errors are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Cine
from usdehaze.validation.scene import Scene, error_figures, hazy_figures, labelled_scene, wall_error


@pytest.fixture
def scene() -> Scene:
    """4 dB of haze on even tissue, walls in one half of 30 x 30 pixels and cavities in the other."""
    true = np.full((1, 30, 30), -30.0, np.float32)
    labels = np.where(np.arange(30) < 15, 1, 2)[None, :, None] * np.ones_like(true, np.uint8)
    return labelled_scene(Cine(true + 4, Cartesian()), true, true - 10, labels)


def test_errors_on_walls_have_a_sign_and_those_in_cavities_a_size(scene: Scene) -> None:
    tissue = scene.clean.frames[0] + np.where(scene.walls[0], np.float32(-1), np.float32(2))
    tissue[15:, ::2] -= 4
    figures = error_figures(scene, tissue)
    assert wall_error(scene, tissue) == {"wall_error_db": {"input": 4, "tissue": -1, "delta": -5}}
    assert figures["rmse_tissue_db"]["tissue"] == 1 and figures["rmse_haze_db"]["tissue"] == pytest.approx(2)
    assert figures["psnr_db"]["input"] == pytest.approx(20 * math.log10(60 / 4))
    assert figures["psnr_db"]["tissue"] == pytest.approx(10 * math.log10(60**2 / 2.5))


def test_regions_that_are_too_small_have_no_figures(scene: Scene) -> None:
    few = replace(scene, cavities=scene.cavities & (np.arange(30) < 13))  # 195 pixels
    assert few.regions(0)[1] is None and "rmse_haze_db" not in error_figures(few, few.clean.frames[0])
    record = hazy_figures(few, few.truth)
    assert "gcnr" not in record and record["rmse_tissue_db"]["input"] == 4
    none = replace(scene, walls=scene.walls & False)
    assert none.regions(0) == (None, None) and wall_error(none, none.clean.frames[0]) == {}
    assert not {"rmse_tissue_db", "rmse_haze_db"} & set(error_figures(none, none.clean.frames[0]))
