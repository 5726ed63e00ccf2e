"""Oracles of the test bench: closed forms for even haze, and the limit of the grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Cine
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.validation.scene import Scene
from validation.oracles import GRID_LIMIT, ORACLES, level_expected, level_subtracted, oracle
from validation.scenes import add_haze

N = 128


def test_even_haze_is_subtracted_exactly() -> None:
    tissue, haze = np.full((2, 40, 40), [[[-30.0]], [[-25.0]]])
    seen = 10 * np.log10(10 ** (tissue / 10) + 10 ** (haze / 10))
    assert level_subtracted(seen, haze, -60) == pytest.approx(tissue, abs=1e-6)
    assert level_subtracted(haze - 1, haze, -60) == pytest.approx(-60)  # darker than the mean of the haze


def test_expected_tissue_under_haze_of_a_known_level() -> None:
    seen = np.full((9, 9), -20.0)
    assert level_expected(seen, seen - 60, -60.0) == pytest.approx(-20, abs=1e-6)  # no haze to speak of
    assert level_expected(seen, seen + 60, -60.0) == pytest.approx(-40, abs=0.01)  # any level alike: the middle
    found = level_expected(seen, seen, -60.0)[4, 4]
    power, level_db = 10 ** (np.linspace(-60, -20, 4001) / 10), np.linspace(-60, -20, 4001)
    weight = np.exp(-(10**-2 - power) / 10**-2)
    assert found == pytest.approx((weight * level_db).sum() / weight.sum(), abs=0.05)


@pytest.fixture
def scene() -> Scene:
    """Noise under even haze of -40 dB, on a frame of the model grid's shape."""
    true = np.random.default_rng(0).uniform(-55, -10, (1, N, N)).astype(np.float32)
    clean = Cine(true, Cartesian())
    haze, everywhere = np.full((1, N, N), -40, np.float32), np.ones((N, N), bool)
    hazy = replace(clean, frames=add_haze(true, haze, everywhere))
    return Scene(hazy, clean, haze, everywhere, true > -30)


def test_tissue_comes_back_where_the_grid_is_the_frames_own(scene: Scene) -> None:
    mapper = make_mapper(scene.hazy.geometry, (N, N), ModelGrid(N, N))
    for name in (GRID_LIMIT, "oracle: mean haze subtracted"):  # even haze is its own mean
        found = oracle(name, scene, mapper, scene.haze[0])
        assert found.tissue == pytest.approx(scene.clean.frames, abs=1e-3)


def test_no_oracle_brightens_a_pixel_or_leaves_the_range_of_the_frame(scene: Scene) -> None:
    mapper = make_mapper(scene.hazy.geometry, (N, N), ModelGrid(N, N))
    for name in ORACLES:
        tissue = oracle(name, scene, mapper, scene.haze[0] + 10).tissue  # told of more haze than there is
        assert (tissue <= scene.hazy.frames).all() and tissue.min() >= -60
