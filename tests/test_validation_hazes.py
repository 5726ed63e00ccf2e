"""The fixed hazes: what is measured of one, which cell it falls into, and what is stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from usdehaze.errors import InputError
from validation.hazes import (
    EXTENTS,
    FLOOR_DB,
    LEVELS_DB,
    cell_of,
    draw_hazes,
    load_hazes,
    measure_haze,
    save_hazes,
)
from validation.paths import HAZES


def test_level_reach_and_width_of_a_block_of_haze() -> None:
    power = np.full((100, 50), 1e-8)
    power[:40, :30] = 1e-2
    level_db, reach, width = measure_haze(power)
    assert level_db == pytest.approx(-20 + 10 * np.log10(0.6), abs=1e-3)  # three fifths of the beams
    assert (reach, width) == (0.4, 0.6)


def test_haze_that_fades_slowly_ends_where_it_has_lost_15_db() -> None:
    power = 10 ** (-np.linspace(0, 30, 301)[:, None] / 10) * np.ones((1, 8))
    level_db, reach, width = measure_haze(power)
    assert reach == pytest.approx((15 - level_db) / 30, abs=1 / 300)
    assert width == 1


@pytest.mark.parametrize(
    ("measured", "cell"),
    [
        ((-30.0, 0.4, 1.0), ("light", "near")),
        ((-28.0, 0.5, 1.0), ("medium", "near")),
        ((-14.1, 1.0, 0.95), ("heavy", "whole")),
        ((-14.1, 1.0, 0.5), None),  # deep, but not wide
        ((-20.1, 0.6, 0.3), ("medium", "half")),
        ((-30.0, 0.8, 1.0), None),
        ((-40.0, 0.4, 1.0), None),
    ],
)
def test_cells_of_the_design(measured, cell) -> None:
    assert cell_of(*measured) == cell


def test_every_cell_is_drawn_and_holds_what_it_says() -> None:
    hazes = draw_hazes(1)
    assert [(haze.level, haze.extent) for haze in hazes] == [
        (level, extent) for level in LEVELS_DB for extent in EXTENTS
    ]
    for haze in hazes:
        near_db = 10 * np.log10((10 ** (haze.frame_db[:26] / 10)).mean())  # the first fifth, with speckle
        low, high = LEVELS_DB[haze.level]
        assert low - 4 < near_db < high + 4
        deep_db = 10 * np.log10((10 ** (haze.frame_db[-13:] / 10)).mean())
        assert deep_db > near_db - 25 if haze.extent == "whole" else deep_db < near_db - 12


def test_stored_hazes_come_back_within_half_a_level(tmp_path: Path) -> None:
    hazes = draw_hazes(1, 32, 16)
    save_hazes(tmp_path / "hazes.npz", hazes)
    again = load_hazes(tmp_path / "hazes.npz")
    for haze, stored in zip(hazes, again, strict=True):
        assert (stored.level, stored.extent, stored.seed) == (haze.level, haze.extent, haze.seed)
        assert np.abs(stored.frame_db - haze.frame_db).max() <= -FLOOR_DB / 255 / 2 + 1e-4


def test_the_repository_holds_four_hazes_of_each_cell_in_rounds() -> None:
    hazes = load_hazes(HAZES)
    cells = [(haze.level, haze.extent) for haze in hazes]
    assert set(Counter(cells).values()) == {4} and len(set(cells)) == 9
    assert cells == cells[:9] * 4
    assert len({haze.seed for haze in hazes}) == len(hazes) == 36
    assert hazes[0].frame_db.shape == (128, 128)


@pytest.mark.parametrize("content", [b"not an archive", None])
def test_a_file_without_hazes_is_named(tmp_path: Path, content) -> None:
    path = tmp_path / "hazes.npz"
    if content:
        path.write_bytes(content)
    else:
        np.savez(path, frames=np.zeros((1, 4, 4), np.uint8))
    with pytest.raises(InputError, match="not a set of hazes"):
        load_hazes(path)
