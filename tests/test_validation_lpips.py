"""LPIPS: a network whose answer can be worked out by hand, and values that the published package gives."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from usdehaze.errors import InputError
from validation.lpips import CUTS, HEADS_FILE, TRUNK_FILE, Lpips, squeezenet_features

# seed, height, width, and the distance that lpips 0.1.4 (net="squeeze", its own heads) gives for `noisy` and `striped`
NOISY = [(0, 64, 64, 0.03158624842762947), (1, 97, 130, 0.029133114963769913), (2, 256, 200, 0.03130893409252167)]
STRIPED = [(0, 64, 64, 0.8066348433494568), (1, 97, 130, 0.9225775599479675), (2, 256, 200, 1.0042439699172974)]


def noisy(seed: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Even noise over 60 dB, and the same with a normal error of 10 dB."""
    rng = np.random.default_rng(seed)
    frame = rng.uniform(-60, 0, (height, width)).astype(np.float32)
    return frame, np.clip(frame + rng.normal(0, 10, (height, width)), -60, 0).astype(np.float32)


def striped(seed: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth pattern, and the same with a normal error of 3 dB."""
    rng = np.random.default_rng(seed)
    row, column = np.mgrid[:height, :width]
    frame = (-30 + 25 * np.sin(row / 7 + seed) * np.cos(column / 11)).astype(np.float32)
    return frame, np.clip(frame + rng.normal(0, 3, (height, width)), -60, 0).astype(np.float32)


@pytest.fixture(scope="module")
def published(data_dir: Path) -> Lpips:
    return Lpips(data_dir / "lpips")


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """Weights of which only the first layer counts: channel 0 is the red pixel plus 1, channel 1 is 2 everywhere."""
    trunk = {name: np.zeros(value.shape) for name, value in squeezenet_features().state_dict().items()}
    trunk["0.weight"][0, 0, 1, 1] = 1
    trunk["0.bias"][:2] = 1, 2
    np.savez(tmp_path / TRUNK_FILE, **{f"features.{name}": value for name, value in trunk.items()})
    heads = {f"lin{i}.model.1.weight": np.zeros((1, n, 1, 1)) for i, n in enumerate((64, 128, 256, 384, 384, 512, 512))}
    heads["lin0.model.1.weight"][0, :2, 0, 0] = 0.7, 0.4
    np.savez(tmp_path / HEADS_FILE, **heads)
    return tmp_path


def test_one_layer_follows_the_formula(by_hand: Path) -> None:
    features = []
    for level_db in (-15.0, -45.0):  # grey 0.5 and -0.5
        red = (2 * level_db / 60 + 1 + 0.030) / 0.458 + 1
        length = math.hypot(max(red, 0), 2)
        features.append((max(red, 0) / length, 2 / length))
    (r0, c0), (r1, c1) = features
    expected = 0.7 * (r0 - r1) ** 2 + 0.4 * (c0 - c1) ** 2
    frames = [np.full((33, 40), level_db, np.float32) for level_db in (-15.0, -45.0)]
    assert Lpips(by_hand).distance(*frames, 60.0) == pytest.approx(expected, rel=1e-5)


def test_what_lies_far_away_counts_by_its_share_of_the_frame(by_hand: Path) -> None:
    """Windows of 3 x 3 at every second pixel: of 16 x 16 of them, 4 columns see the other level at their centres."""
    lpips = Lpips(by_hand)
    bright, dark = np.full((33, 33), -15.0, np.float32), np.full((33, 33), -45.0, np.float32)
    part = bright.copy()
    part[:, :8] = -45.0  # centres at columns 1, 3, 5, 7
    assert lpips.distance(bright, part, 60.0) == pytest.approx(lpips.distance(bright, dark, 60.0) * 4 / 16, rel=1e-5)


@pytest.mark.parametrize("pair", [noisy, striped])
def test_values_are_those_of_the_published_package(published: Lpips, pair) -> None:
    for seed, height, width, expected in NOISY if pair is noisy else STRIPED:
        frame, other = pair(seed, height, width)
        assert published.distance(frame, other, 60.0) == pytest.approx(expected, rel=2e-5)


def test_equal_frames_have_no_distance_and_order_does_not_matter(published: Lpips) -> None:
    frame, other = striped(3, 80, 90)
    assert published.distance(frame, frame, 60.0) == 0
    assert published.distance(frame, other, 60.0) == pytest.approx(published.distance(other, frame, 60.0), rel=1e-6)


def test_the_cuts_lie_after_every_change_of_the_channels() -> None:
    assert len(squeezenet_features()) == CUTS[-1]


def test_weights_that_are_missing_or_not_plain_arrays_are_named(by_hand: Path) -> None:
    np.savez(by_hand / TRUNK_FILE, **{"features.0.weight": np.array([{}], dtype=object)})
    with pytest.raises(InputError, match=TRUNK_FILE):
        Lpips(by_hand)
    (by_hand / TRUNK_FILE).unlink()
    with pytest.raises(InputError, match=TRUNK_FILE):
        Lpips(by_hand)


def test_weights_of_another_network_are_refused(by_hand: Path) -> None:
    np.savez(by_hand / TRUNK_FILE, **{"features.0.weight": np.zeros((96, 3, 7, 7))})
    with pytest.raises(InputError, match="do not fit"):
        Lpips(by_hand)
