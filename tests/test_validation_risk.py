"""Structure at risk, on simulated scans whose truth says which walls a result has eaten."""

import numpy as np
import pytest
from _hearts import thin_walls
from scipy import ndimage

from usdehaze.simulate import simulate_cine
from usdehaze.validation.risk import REASONS, SCALES_PX, StructureRisk, along_lines, connected

REMOVED, SAMPLES, FRAMES = (1 << bit for bit in range(len(REASONS)))
SEEDS = (100, 104, 113)  # the first hearts with walls between chambers that haze does not hide


def marks(input_db, tissue_db, std_db=None):
    """Of every frame, ``(T, H, W)``."""
    risk = StructureRisk(60.0)
    stds = [None] * len(input_db) if std_db is None else std_db
    return np.array([risk.add(*frame) for frame in zip(input_db, tissue_db, stds, strict=True)])


@pytest.fixture(scope="module", params=SEEDS)
def heart(request):
    """A hazy frame, its true tissue, and the walls in it that stand out by 3 dB."""
    cine = simulate_cine(n_frames=1, seed=request.param)
    contrasts = [along_lines((cine.hazy[0],), scale)[0][1] for scale in SCALES_PX]
    walls = connected(thin_walls(cine), 10) & (np.max(contrasts, axis=0) >= 3)
    assert walls.sum() >= 60
    return cine.hazy[0], np.minimum(cine.tissue[0], cine.hazy[0]), walls


def lowered(true, walls, by_db):
    return np.where(ndimage.binary_dilation(walls, iterations=2), np.maximum(true - by_db, -60), true)


def share_marked(marked, walls):
    """Of the walls, within two pixels of a mark."""
    return (ndimage.binary_dilation(marked > 0, iterations=2) & walls).sum() / walls.sum()


def test_no_wall_of_the_true_tissue_is_marked_and_those_that_a_result_lowers_are(heart):
    hazy, true, walls = heart
    assert (marks([hazy], [true])[0] > 0)[walls].sum() == 0
    eaten = marks([hazy], [lowered(true, walls, 25)])[0]
    assert share_marked(eaten & REMOVED, walls) > 0.5
    assert not (eaten & (SAMPLES | FRAMES)).any()


def test_walls_that_the_samples_doubt_are_marked_only_where_they_lose_contrast_too(heart):
    hazy, true, walls = heart
    unsure, sure = np.full(hazy.shape, 7, np.float32), np.full(hazy.shape, 3, np.float32)
    eaten = lowered(true, walls, 25)
    assert share_marked(marks([hazy], [eaten], [unsure])[0] & SAMPLES, walls) > 0.5
    assert not (marks([hazy], [eaten], [sure])[0] & SAMPLES).any()
    assert not marks([hazy], [hazy], [unsure]).any()


def test_a_wall_that_stays_in_one_frame_and_goes_in_the_next_is_marked_in_the_second(heart):
    hazy, true, walls = heart
    first, second, third = marks([hazy] * 3, [true, *[lowered(true, walls, 25)] * 2])
    assert share_marked(second & FRAMES, walls) > 0.5 and not (first & FRAMES).any() and not (third & FRAMES).any()


def test_a_result_that_removes_nothing_has_no_marks_whatever_is_in_the_frame():
    cine = simulate_cine(n_frames=2, seed=SEEDS[0])
    assert not marks(cine.hazy, cine.hazy).any()


def test_walls_of_larger_frames_are_marked_at_their_own_size(heart):
    hazy, true, walls = heart
    large = [image.repeat(2, axis=0).repeat(3, axis=1)[:250, :380] for image in (hazy, lowered(true, walls, 25))]
    marked = marks(*([image] for image in large))[0]
    assert marked.shape == (250, 380)
    small = marks([hazy], [lowered(true, walls, 25)])[0].repeat(2, axis=0).repeat(3, axis=1)[:250, :380]
    assert (marked != small)[:240, :370].mean() < 0.005 and marked.any()


def test_parts_count_from_twelve_pixels_on_and_only_when_long_enough():
    mask = np.zeros((30, 30), bool)
    mask[2, 2:13] = mask[10:14, 2:5] = mask[20:22, 2:8] = True  # 11 pixels; 12, but 4 long; 12, 6 long
    assert np.array_equal(np.argwhere(connected(mask, 6)).min(axis=0), [20, 2]) and connected(mask, 6).sum() == 12
