from dataclasses import replace

import numpy as np
import pytest
import torch

from usdehaze.simulate import SETUPS, simulate_cine, training_frames, training_pairs
from usdehaze.simulate.anatomy import Hearts
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.graphics import overlay
from usdehaze.simulate.haze import HazeScene
from usdehaze.simulate.leaves import Leaves
from usdehaze.simulate.scanner import Scanner
from usdehaze.simulate.speckle import PointSpread, compress
from usdehaze.simulate.tissue import CAVITY, WALL, TissueScene


def power(db):
    return 10 ** (db / 10)


def test_same_seed_gives_the_same_cine_and_another_seed_another():
    a, b, c = simulate_cine(2, 5), simulate_cine(2, 5), simulate_cine(2, 6)
    assert np.array_equal(a.hazy, b.hazy) and np.array_equal(a.labels, b.labels)
    assert np.abs(a.hazy - c.hazy).mean() > 3


def test_hazy_power_is_tissue_plus_haze_plus_interference():
    # |t + h|^2 = |t|^2 + |h|^2 + 2 Re(t h*): never outside (|t| - |h|)^2 .. (|t| + |h|)^2, and equal on average.
    cine = simulate_cine(4, 3, dynamic_range_db=110.0)
    t, h, y = (np.sqrt(power(f.astype(np.float64))) for f in (cine.tissue, cine.haze, cine.hazy))
    above = (y < 0.999) & (t < 0.999) & (h < 0.999)  # clear of full scale
    assert np.all(y[above] <= (t + h)[above] * 1.0001 + 1e-5)
    assert np.all(y[above] >= np.abs(t - h)[above] * 0.9999 - 1e-5)
    assert (y**2)[above].sum() == pytest.approx((t**2 + h**2)[above].sum(), rel=0.05)


def test_a_heart_that_is_turned_turns_as_one():
    """The long axis of the first chamber points to the second where a heart has these two alone."""
    hearts = Hearts.random(Draw(2000, torch.Generator().manual_seed(0)), (0.02, 0.04)).chambers
    x, z, width, length, tilt = (
        t[:, :, 0, 0] for t in (hearts.x, hearts.z, hearts.half_width, hearts.half_length, hearts.tilt)
    )
    two = ((width > 0) == torch.tensor([True, True, False, False])).all(1) & (length[:, 0] > width[:, 0])
    towards = torch.atan2(x[:, 0] - x[:, 1], z[:, 1] - z[:, 0])[two]
    off = torch.rad2deg(towards - tilt[two, 0]).abs()
    assert int(two.sum()) > 300 and float(off.median()) < 8 and float(off.quantile(0.9)) < 20


def test_point_spread_keeps_power_and_widens_speckle():
    draw = Draw(4, torch.Generator().manual_seed(0))
    one = torch.ones(4, 1, 1)
    iq = PointSpread((128, 128), 0.8 * one, 2.5 * one)(draw.white(128, 128))
    assert float(iq.abs().square().mean()) == pytest.approx(1.0, abs=0.05)

    def correlation(shift, axis):
        return float((iq * iq.roll(shift, axis).conj()).mean().abs())

    # White noise through a Gaussian of deviation s decorrelates as exp(-d^2 / (4 s^2)).
    assert correlation(3, 2) == pytest.approx(np.exp(-9 / (4 * 2.5**2)), abs=0.06)
    assert correlation(1, 1) == pytest.approx(np.exp(-1 / (4 * 0.8**2)), abs=0.06)


def test_fully_developed_speckle_has_rayleigh_envelope():
    draw = Draw(8, torch.Generator().manual_seed(1))
    one = torch.ones(8, 1, 1)
    envelope = PointSpread((128, 128), 0.6 * one, 0.8 * one)(draw.white(128, 128)).abs()
    assert float(envelope.mean() / envelope.std()) == pytest.approx(1.913, abs=0.04)  # sqrt(pi / (4 - pi))


def test_compression_is_twenty_log_ten_and_stays_in_range():
    iq = torch.tensor([1.0, 0.1, 10.0, 0.0]) * torch.exp(torch.tensor(0.7j))
    assert compress(iq, 60.0).tolist() == pytest.approx([0.0, -20.0, 0.0, -60.0], abs=1e-4)


def test_walls_are_brighter_than_cavities_and_haze_fills_cavities():
    rises, contrasts = [], []
    for seed in range(12):
        cine = simulate_cine(1, 100 + seed)
        wall, cavity = cine.labels == WALL, cine.labels == CAVITY
        if min(wall.sum(), cavity.sum()) < 100:
            continue
        contrasts.append(cine.tissue[wall].mean() - cine.tissue[cavity].mean())
        rises.append(cine.hazy[cavity].mean() - cine.tissue[cavity].mean())
    assert len(contrasts) >= 8 and np.mean(contrasts) > 10 and np.mean(rises) > 5


def test_speckle_follows_the_moving_tissue():
    draw = Draw(1, torch.Generator().manual_seed(4))
    scene = TissueScene(draw, cardiac=1.0)
    scene.noise_db = scene.noise_db - 80
    dark = torch.zeros_like(scene.electronics)
    rest, _ = scene.moved(0.0, (0.0, 0.0), dark)
    again, _ = scene.still()
    assert float((rest.abs() - again.abs()).abs().mean() / again.abs().mean()) < 0.02
    shifted, _ = scene.moved(0.0, (0.03, 0.0), dark)
    a, b = (compress(f, 60.0)[0] for f in (rest, shifted))

    def match(shift):
        pair = a[:, 20:108].flatten(), b.roll(-shift, 1)[:, 20:108].flatten()
        return float(torch.corrcoef(torch.stack(pair))[0, 1])

    assert max(match(s) for s in range(1, 12)) > match(0)  # the picture has moved to the right


def test_haze_renews_its_speckle_as_real_haze_does_and_keeps_its_level():
    # Correlation of the speckle between frames 1, 2 and 5 apart, as measured in the ventricles of real apical cines.
    draw = Draw(12, torch.Generator().manual_seed(3))
    scene = HazeScene(draw, clear=0.0, plain=True)
    frames = torch.stack([compress(iq / scene.amplitude.clamp_min(1e-9), 60.0) for iq in scene.moving(6)])

    def correlation(apart):
        # Scenes differ in how bright their grains are, and so in their mean level in dB.
        a, b = (f - f.mean((0, 2, 3), keepdim=True) for f in (frames[:-apart], frames[apart:]))
        return float((a * b).mean() / (a.square().mean() * b.square().mean()).sqrt())

    for apart, low, high in ((1, 0.23, 0.72), (2, 0.16, 0.53), (5, 0.10, 0.28)):
        assert low <= correlation(apart) <= high, apart
    means = simulate_cine(6, 8, haze_level_db=(-25.0, -20.0)).haze[:, :40].mean((1, 2))
    assert np.ptp(means) < 1.0


def test_leaves_cover_one_another_from_back_to_front():
    one = torch.ones(1, 2, 1, 1)
    leaves = Leaves(0 * one, 0.5 * one, 0.3 * one, 0.3 * one, 0 * one, one, 0.01 * one, 0 * one)
    leaves.level_db = torch.tensor([-10.0, -40.0]).reshape(1, 2, 1, 1)
    leaves.long = leaves.short = torch.tensor([0.3, 0.1]).reshape(1, 2, 1, 1)
    x = torch.tensor([[[0.0, 0.2, 0.5]]])
    levels = leaves.paint(x, torch.full_like(x, 0.5), torch.full_like(x, -60.0))
    assert levels.flatten().tolist() == pytest.approx([-40, -10, -60], abs=0.01)


def test_one_scanner_sees_tissue_haze_and_their_sum_alike():
    draw = Draw(2, torch.Generator().manual_seed(6))
    scanner = Scanner(draw, (128, 128), 60.0)
    x = TissueScene(draw).still()[0][None]
    assert torch.equal(scanner.develop(x), scanner.develop(x + 0 * x))
    louder, silent = scanner.develop(2 * x), scanner.develop(0 * x)
    assert float((louder - scanner.develop(x)).min()) > -0.02 and float(silent.max()) == 0


def test_pairs_without_haze_are_their_tissue_and_hazy_frames_hold_both():
    pairs = training_pairs(48, torch.Generator().manual_seed(12))
    x, n, y = pairs.unbind(1)
    clear = n.flatten(1).amax(1) == 0
    assert 2 <= int(clear.sum()) <= 30 and torch.equal(x[clear], y[clear])
    louder = torch.maximum(x, n)
    assert float((y - louder).clamp(max=0).mean()) > -0.03  # destructive interference only
    hazy = (n > 0.5) & (x < 0.1)
    assert float((y - n)[hazy].abs().mean()) < 0.02


def test_graphics_are_in_tissue_and_frame_and_not_in_haze():
    draw = Draw(64, torch.Generator().manual_seed(2))
    scene = TissueScene(draw)
    drawn = overlay(draw, scene.x, scene.z)
    share = (drawn > 0.2).float().mean((1, 2))
    assert 5 <= int((share > 0).sum()) <= 40 and float(share.max()) < 0.1


def test_setups_of_the_default_hold_what_they_are_named_for():
    hearts, quiet = (replace(SETUPS[name], by_eye=0.0, span=(1.0, 1.0)) for name in ("hearts", "quiet-hearts"))

    def pairs(setup, **other):
        return training_pairs(24, torch.Generator().manual_seed(3), 64, 64, setup=replace(setup, **other)).unbind(1)

    (x, h, y), (quiet_x, quiet_h, _) = pairs(hearts), pairs(quiet)
    deep = slice(48, None)  # where haze of the probe has faded, a receiver's noise has not
    assert float(x[:, deep].mean()) > float(quiet_x[:, deep].mean()) + 0.02
    assert float(quiet_h[:, deep].mean()) > float(h[:, deep].mean()) + 0.02
    # The same scenes, shown over more of the dynamic range.
    assert float(pairs(hearts, span=(1.7, 1.8))[2].mean()) > float(y.mean()) + 0.1


def test_gain_by_eye_makes_some_of_most_frames_black_and_one_floor_for_all_three():
    setup = SETUPS["hearts"]
    before, after = (
        training_pairs(32, torch.Generator().manual_seed(4), 64, 64, setup=replace(setup, by_eye=p)) for p in (0.0, 1.0)
    )
    black = [(pairs[:, 2] == 0).float().mean((1, 2)) for pairs in (before, after)]
    assert float(black[1].max()) < max(0.5, float(black[0].max()) + 0.01)
    assert float((black[1] >= black[0]).float().mean()) == 1 and float(black[1].mean()) > float(black[0].mean()) + 0.05
    assert bool((after <= before + 1e-6).all())
    for was, now in zip(before, after, strict=True):
        if float((now[2] == 0).float().mean()) > 0:
            assert float(was[now == 0].max()) <= float(was[now > 0].min()) + 1e-6  # a level parts them


def test_haze_is_strongest_near_the_probe_on_average():
    haze = HazeScene(Draw(64, torch.Generator().manual_seed(2)), clear=0.0, plain=True)
    level = haze.amplitude.square().mean((0, 2))
    assert float(level[10:40].mean()) > 3 * float(level[88:].mean())


@pytest.mark.parametrize("kind", ["tissue", "haze"])
def test_training_frames_are_model_units_and_seeded(kind):
    a, b = (training_frames(kind, 16, torch.Generator().manual_seed(9)) for _ in range(2))
    assert torch.equal(a, b) and a.shape == (16, 1, 128, 128)
    assert 0 <= float(a.min()) and float(a.max()) <= 1 and float(a.std()) > 0.1


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="n_frames"):
        simulate_cine(0)
    with pytest.raises(ValueError, match="kind"):
        training_frames("fog", 1, torch.Generator())
