"""The sector finder on fans of known geometry, on what is no fan, and on real scans where they are at hand."""

import math
import os
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from usdehaze.cine import Sector
from usdehaze.geometry import find_sector, sector_mask
from usdehaze.geometry.sector import polar_coordinates

FLOOR = -60.0


def scan_convert(sector, shape, rng, frames=3, dropout=0.0):
    """Speckle with dark holes, made on a polar grid of its own and interpolated at the pixels of the fan."""
    speckle = 6 * ndimage.gaussian_filter(rng.normal(size=(frames, 400, 160)), (0, 1.0, 0.7))
    tissue = 40 * ndimage.gaussian_filter(rng.normal(size=(400, 160)), (30, 12)) / 0.1 * 0.12
    polar = -28 + speckle + tissue
    polar[:, 120:200, 50:90] = FLOOR  # a cavity
    if dropout:  # shadow along part of either edge
        polar[:, int(400 * (1 - dropout)) :, :30] = FLOOR
        polar[:, 150 : 150 + int(400 * dropout), -25:] = FLOOR
    radius, angle = polar_coordinates(sector, shape)
    d = (radius - sector.r_min) / (sector.r_max - sector.r_min) * 399
    a = (angle - sector.angle_min) / (sector.angle_max - sector.angle_min) * 159
    images = np.stack([ndimage.map_coordinates(frame, [d, a], order=1, mode="nearest") for frame in polar])
    return np.where(sector_mask(sector, shape), images, FLOOR).clip(FLOOR, 0).astype(np.float32)


def burn_in(frames, rng):
    """ECG trace across the bottom, a line of text, depth marks, a grey-scale bar, a vendor mark beside the apex."""
    _, h, w = frames.shape
    columns = np.arange(w)
    trace = (0.9 * h + 0.03 * h * np.sin(columns / 9.0)).astype(int)
    frames[:, trace, columns] = frames[:, trace - 1, columns] = -10
    for x in range(6, int(0.3 * w), 7):
        frames[:, 8:15, x : x + 4] = np.where(rng.random((7, 4)) > 0.4, -3, FLOOR)
    frames[:, 20 : h - 20 : h // 12, w - 14 : w - 11] = -5
    frames[:, h // 4 : h // 2, 4:9] = np.linspace(0, FLOOR, h // 2 - h // 4)[:, None]
    frames[:, 4:10, w // 2 + 18 : w // 2 + 24] = -8


def errors(found, truth):
    """Largest error of the apex (px), the angles (degrees), r_min (px) and r_max (px)."""
    assert found is not None
    return (
        math.hypot(found.apex_x - truth.apex_x, found.apex_y - truth.apex_y),
        math.degrees(max(abs(found.angle_min - truth.angle_min), abs(found.angle_max - truth.angle_max))),
        abs(found.r_min - truth.r_min),
        abs(found.r_max - truth.r_max),
    )


def random_phased(rng, shape):
    """A whole fan inside the frame, apex within it, tilted a little."""
    h, w = shape
    half = rng.uniform(0.45, 0.85)
    tilt = rng.uniform(-0.1, 0.1)
    depth = min(0.95 * h, 0.48 * w / math.sin(half + abs(tilt)))
    return Sector(w / 2 + rng.uniform(-5, 5), rng.uniform(1, 8), rng.uniform(0, 12), depth, tilt - half, tilt + half)


@pytest.mark.parametrize("seed", range(8))
def test_phased_array_with_everything_burned_in(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(230, 480)), int(rng.integers(280, 520)))
    truth = random_phased(rng, shape)
    frames = scan_convert(truth, shape, rng)
    burn_in(frames, rng)
    apex, angle, r_min, r_max = errors(find_sector(frames, FLOOR), truth)
    assert apex < 0.5
    assert angle < 0.1
    assert r_min < 1.5
    assert r_max < 1


@pytest.mark.parametrize("seed", range(5))
def test_curved_array_with_the_apex_above_the_frame(seed):
    rng = np.random.default_rng(100 + seed)
    shape = (400, 520)
    half = rng.uniform(0.4, 0.6)
    r_min = rng.uniform(100, 180)
    truth = Sector(260 + rng.uniform(-5, 5), 15 - r_min * math.cos(half), r_min, r_min + 270, -half, half)
    apex, angle, near, far = errors(find_sector(scan_convert(truth, shape, rng), FLOOR), truth)
    assert apex < 1
    assert angle < 0.15
    assert near < 1.5
    assert far < 1.5


@pytest.mark.parametrize("seed", range(5))
def test_fan_wider_and_deeper_than_the_frame(seed):
    rng = np.random.default_rng(200 + seed)
    half = rng.uniform(0.55, 0.8)
    truth = Sector(150 + rng.uniform(-5, 5), rng.uniform(-30, 2), 0.0, 420.0, -half, half)
    frames = scan_convert(truth, (290, 300), rng)
    found = find_sector(frames, FLOOR)
    apex, angle, _, _ = errors(found, truth)
    assert apex < 0.5
    assert angle < 0.1
    corner = max(math.hypot(150 - truth.apex_x, 290 - truth.apex_y), math.hypot(150, 289 - truth.apex_y))
    assert found.r_max == pytest.approx(corner, abs=10)  # the farthest image inside the frame


@pytest.mark.parametrize("seed", range(5))
def test_edges_partly_in_shadow(seed):
    rng = np.random.default_rng(300 + seed)
    shape = (360, 440)
    truth = random_phased(rng, shape)
    frames = scan_convert(truth, shape, rng, dropout=0.35)
    apex, angle, _, r_max = errors(find_sector(frames, FLOOR), truth)
    assert apex < 0.5
    assert angle < 0.15
    assert r_max < 1


@pytest.mark.parametrize("seed", range(4))
def test_black_that_is_not_quite_black(seed):
    rng = np.random.default_rng(400 + seed)
    shape = (300, 360)
    truth = random_phased(rng, shape)
    frames = scan_convert(truth, shape, rng)
    frames = np.maximum(frames, FLOOR + 2 + np.abs(rng.normal(0, 1.0, frames.shape))).astype(np.float32)
    apex, angle, _, r_max = errors(find_sector(frames, FLOOR), truth)
    assert apex < 1
    assert angle < 0.15
    assert r_max < 1.5


@pytest.mark.parametrize("aspect", [0.6, 1.7])
def test_pixels_that_are_not_square(aspect):
    rng = np.random.default_rng(7)
    shape = (int(330 / aspect), 420)
    truth = Sector(208.0, 6.0, 4.0, 300.0, -0.6, 0.65, aspect)
    found = find_sector(scan_convert(truth, shape, rng), FLOOR, aspect)
    apex, angle, r_min, r_max = errors(found, truth)
    assert found.aspect == aspect
    assert apex < 0.5
    assert angle < 0.1
    assert r_min < 2
    assert r_max < 1.5


def test_a_longer_cine_with_one_flash_of_text_everywhere():
    rng = np.random.default_rng(8)
    truth = Sector(150.0, 5.0, 3.0, 270.0, -0.6, 0.6)
    frames = scan_convert(truth, (290, 300), rng, frames=12)
    frames[3] = -5
    apex, angle, _, r_max = errors(find_sector(frames, FLOOR), truth)
    assert apex < 0.5
    assert angle < 0.1
    assert r_max < 1


def no_fans():
    rng = np.random.default_rng(9)
    speckle = np.clip(-30 + 8 * rng.normal(size=(2, 300, 300)), FLOOR, 0)
    box = np.full((2, 300, 400), FLOOR)
    box[:, 20:280, 60:340] = speckle[:, :260, :280]
    disc = np.where(np.hypot(*np.mgrid[-150:150, -150:150]) < 130, speckle, FLOOR)
    blobs = np.where(ndimage.gaussian_filter(rng.normal(size=(300, 300)), 15) > 0, speckle, FLOOR)
    fan = scan_convert(Sector(150.0, 5.0, 3.0, 270.0, -0.6, 0.6), (290, 300), rng)
    ramp = np.broadcast_to(np.linspace(FLOOR, 0, 300)[:, None], (2, 300, 300))
    trapezium = np.where(np.abs(np.arange(400) - 200) < 120 + 0.06 * np.arange(300)[:, None], -20, FLOOR)
    return {
        "full frame of speckle": speckle,
        "rectangle on black": box,
        "disc": disc,
        "blobs": blobs,
        "fan upside down": fan[:, ::-1],
        "fan on its side": fan.transpose(0, 2, 1),
        "half a fan": np.where(np.arange(300) < 150, fan, FLOOR),
        "ramp": ramp,
        "nearly upright trapezium": trapezium[None],
        "black": np.full((2, 200, 200), FLOOR),
        "white": np.zeros((2, 200, 200)),
        "uniform noise": rng.uniform(FLOOR, 0, (3, 200, 200)),
        "sparse noise": np.where(rng.random((3, 200, 200)) > 0.9, -10, FLOOR),
        "thumbnail": fan[:, ::8, ::8],
        "one pixel": np.zeros((1, 1, 1)),
    }


@pytest.mark.parametrize("name", no_fans())
def test_no_fan_gives_none(name):
    assert find_sector(no_fans()[name].astype(np.float32), FLOOR) is None


def test_arguments_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"\(T, H, W\)"):
        find_sector(np.zeros((64, 64), np.float32), FLOOR)
    with pytest.raises(ValueError, match="negative"):
        find_sector(np.zeros((1, 64, 64), np.float32), 0.0)
    with pytest.raises(ValueError, match="aspect"):
        find_sector(np.zeros((1, 64, 64), np.float32), FLOOR, aspect=0)


def test_sector_mask_on_a_fan_worked_out_by_hand():
    """A quarter turn about (2, 0), radius 1 to 2, rows twice as far apart as columns."""
    sector = Sector(2.0, 0.0, 1.0, 2.0, -math.pi / 4, math.pi / 4)
    rows = ["00000", "00100", "00100", "00000"]  # (1, 1) and (1, 3) lie at 45 degrees: see below
    expected = np.array([[c == "1" for c in row] for row in rows])
    assert np.array_equal(sector_mask(replace(sector, angle_min=-0.7, angle_max=0.7), (4, 5)), expected)
    assert sector_mask(replace(sector, angle_min=-0.8, angle_max=0.8), (4, 5))[1].tolist() == [
        False,
        *[True] * 3,
        False,
    ]
    assert sector_mask(replace(sector, aspect=2.0), (4, 5))[1].tolist() == [False, False, True, False, False]


DATA = Path(os.environ.get("USDEHAZE_DATA", Path(__file__).parents[1] / "../shared/data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no folder of real scans at {DATA}: set USDEHAZE_DATA")


def in_db(images):
    images = images if images.ndim == 3 else images[None]
    return (images.astype(np.float32) / 255 - 1) * 60


def dataset(path, name):
    with h5py.File(path) as file:
        return file[name][()]


def still(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("L"))


@needs_data
def test_camus_fans_hold_the_image_and_their_apex_is_at_the_top():
    """CAMUS frames are cropped to the fan, so the frame itself says where the fan ends."""
    for path in sorted((DATA / "camus").glob("*.h5"))[::10]:
        image = dataset(path, "image")
        h, w = image.shape[1:]
        sector = find_sector(in_db(image), FLOOR)
        assert sector is not None, path.name
        assert abs(sector.apex_y) < 2, path.name
        assert abs(sector.apex_x - (w - 1) / 2) < 2, path.name
        assert abs(sector.apex_y + sector.r_max - (h - 0.5)) < 2, path.name
        assert abs(sector.apex_x + sector.r_max * math.sin(sector.angle_max) - (w - 0.5)) < 2.5, path.name
        inside = sector_mask(sector, (h, w))
        assert (image[:, ~inside] > 8).mean() < 0.002, path.name


@needs_data
def test_hazy_challenge_clips_have_the_fan_seen_by_eye():
    """All six come from one kind of scanner: apex within 4 px of the top, 67.5 degrees, arc at the bottom border."""
    for path in sorted((DATA / "echo-haze").glob("*.h5")):
        sector = find_sector(in_db(dataset(path, "cine")), FLOOR)
        assert sector is not None, path.name
        assert abs(sector.apex_y + 2) < 2, path.name
        assert abs(math.degrees(sector.angle_min) + 33.7) < 0.6, path.name
        assert abs(math.degrees(sector.angle_max) - 33.7) < 0.6, path.name
        assert abs(sector.apex_y + sector.r_max - 255.5) < 4, path.name


@needs_data
def test_clean_cines_leave_no_image_outside_their_fan():
    for path in sorted((DATA / "clean-cines").glob("*.h5"))[::8]:
        image = dataset(path, "bmode/frames")
        sector = find_sector(in_db(image), FLOOR)
        assert sector is not None, path.name
        outside = ~sector_mask(replace(sector, r_max=sector.r_max + 20, r_min=sector.r_min - 4), image.shape[1:])
        assert (np.median(image, axis=0)[outside] > 30).mean() < 0.01, path.name  # depth marks are left


@needs_data
@pytest.mark.parametrize("kind", ["breast", "carotid", "muscle"])
def test_linear_arrays_have_no_fan(kind):
    for path in sorted((DATA / "organs" / kind).iterdir()):
        assert find_sector(in_db(still(path)), FLOOR) is None, path.name


@needs_data
def test_most_curved_array_livers_have_a_fan():
    paths = sorted((DATA / "organs" / "liver").iterdir())
    found = [find_sector(in_db(still(path)), FLOOR) for path in paths]
    assert sum(sector is not None for sector in found) >= 7
    assert all(s.r_min > 80 and s.r_max - s.r_min > 280 for s in found if s is not None)  # never a phased array


@needs_data
def test_photographs_have_no_fan():
    found = [
        path.name for path in sorted((DATA / "natural").glob("*.jpg"))[::4] if find_sector(in_db(still(path)), FLOOR)
    ]
    assert len(found) == 0, found
