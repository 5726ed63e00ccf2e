"""Frames that start from the result of the frame before: bits, independence, drift."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from _tiny_priors import write_tiny_priors
from scipy import ndimage

from usdehaze.cine import Cine
from usdehaze.dehazer import Dehazer
from usdehaze.errors import UsdehazeError
from usdehaze.io.scan import CineScan
from usdehaze.settings import Settings
from usdehaze.simulate import simulate_cine

FRAMES, GROUP = 11, Settings().group


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return write_tiny_priors(tmp_path_factory.mktemp("priors")) | {"steps": 3}


@pytest.fixture(scope="module")
def cine() -> Cine:
    return simulate_cine(FRAMES, seed=1_100_000_000, n_depth=64, n_angle=48).cine


@pytest.fixture(scope="module")
def whole(options, cine):
    return Dehazer.from_pretrained(**options, warm_start=True).dehaze(cine)


@pytest.fixture(scope="module")
def independent(options, cine):
    return Dehazer.from_pretrained(**options, warm_start=False).dehaze(cine)


def part(cine: Cine, start: int, stop: int) -> Cine:
    return CineScan(cine).read(start, stop)


def same(a, b, frames=slice(None)):
    return all(np.array_equal(getattr(a, name), getattr(b, name)[frames]) for name in ("tissue", "haze"))


@pytest.mark.parametrize(("batch_size", "threads"), [(1, 1), (7, 2), (GROUP, 3), (100, 2)])
def test_neither_batch_size_nor_cores_change_a_bit(options, cine, whole, batch_size, threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        again = Dehazer.from_pretrained(**options, warm_start=True, batch_size=batch_size).dehaze(cine)
    finally:
        torch.set_num_threads(before)
    assert same(again, whole)


@pytest.mark.parametrize("chunk", [1, GROUP, 2 * GROUP + 1])
def test_chunks_of_a_scan_change_no_bit(options, cine, whole, chunk):
    dehazer = Dehazer.from_pretrained(**options, warm_start=True)
    results = [dehazer.dehaze(c) for c in CineScan(cine).chunks(chunk, dehazer.group)]
    for name in ("tissue", "haze"):
        assert np.array_equal(np.concatenate([getattr(r, name) for r in results]), getattr(whole, name))


def test_every_group_begins_afresh_and_the_others_do_not(cine, whole, independent):
    fresh = [np.array_equal(a, b) for a, b in zip(whole.tissue, independent.tissue, strict=True)]
    assert fresh == [i % GROUP == 0 for i in range(FRAMES)]


def test_a_frame_depends_on_the_frames_before_it_in_its_group_alone(options, cine, whole, independent):
    dehazer = Dehazer.from_pretrained(**options, warm_start=True)
    assert same(dehazer.dehaze(part(cine, GROUP, GROUP + 4)), whole, slice(GROUP, GROUP + 4))
    within = dehazer.dehaze(part(cine, 3, GROUP + 2))  # begins within a group: its first frame starts afresh
    assert np.array_equal(within.tissue[0], independent.tissue[3])
    assert np.array_equal(within.tissue[GROUP - 3 :], whole.tissue[GROUP : GROUP + 2])


def test_frames_that_are_asked_to_be_independent_are(options, cine, independent):
    assert same(Dehazer.from_pretrained(**options, warm_start=False).dehaze(part(cine, 5, 7)), independent, slice(5, 7))


def test_a_frame_unlike_the_one_before_starts_afresh(options, cine, whole, independent):
    frames = cine.frames.copy()
    frames[4:] = frames[4:, ::-1]  # a cut
    cut = replace(cine, frames=frames)
    one, other = (Dehazer.from_pretrained(**options, warm_start=on).dehaze(cut) for on in (True, False))
    assert np.array_equal(one.tissue[:4], whole.tissue[:4]) and np.array_equal(one.tissue[4], other.tissue[4])
    assert not np.array_equal(one.tissue[5], other.tissue[5])


def test_every_sample_goes_on_from_its_own(options):
    y = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0)).expand(3, -1, -1)
    split_one, split_two = (Dehazer.from_pretrained(**options, warm_start=True, samples=n).split for n in (1, 2))
    first = split_one(y, torch.ones(32, 32), [0, 1, 2])[0]
    mean, _, std = split_two(y, torch.ones(32, 32), [0, 1, 2])
    # Of two samples each lies their deviation over root 2 from their mean: the first is that of the single run.
    torch.testing.assert_close((first - mean).abs(), std / 2**0.5)
    assert all(s.max() > 0 for s in std)


def test_network_passes_are_counted_for_both_kinds_of_frame(options, cine, whole, independent):
    s = whole.settings
    assert s["warm_start"] and s["group"] == GROUP and s["warm_steps"] == 3  # never more than steps
    assert (s["evaluations"], s["warm_evaluations"]) == (2 * s["chains"] * 3, 2 * s["chains"] * s["warm_steps"])
    assert not independent.settings["warm_start"] and independent.settings["warm_evaluations"] is None


def test_samplers_that_start_from_noise_alone_leave_the_warm_start_out(options):
    assert not Dehazer.from_pretrained("paper", **options).settings.warm_start
    assert not Dehazer.from_pretrained(**options, sampler="euler-maruyama").settings.warm_start
    with pytest.raises(UsdehazeError, match="leave out the warm start"):
        Dehazer.from_pretrained(**options, sampler="euler-maruyama", warm_start=True)


@pytest.mark.parametrize("wrong", [{"warm_steps": 0}, {"group": 0}, {"warm_sigma": 0.0}, {"warm_share": 1.5}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(UsdehazeError, match="warm_steps and group must be at least 1, warm_sigma above 0"):
        Settings(**wrong)


@pytest.mark.slow
def test_a_warm_start_neither_drifts_nor_freezes():
    truth = simulate_cine(24, seed=1_100_000_001)
    results = {
        on: Dehazer.from_pretrained("preview", warm_start=on, device="cpu").dehaze(truth.cine) for on in (False, True)
    }
    gains = {on: [gain_db(truth, r.tissue, t) for t in range(24)] for on, r in results.items()}
    by_place = np.reshape(gains[True], (-1, GROUP)).mean(0) - np.reshape(gains[False], (-1, GROUP)).mean(0)
    assert by_place[0] == 0 and by_place.min() > -0.5  # dB; the last frames of a group are no worse than the others
    assert by_place[GROUP // 2 :].mean() > -0.2
    moved = {on: follows(truth.tissue, r.tissue) for on, r in results.items()}
    assert moved[True] > 0.2 and moved[True] > moved[False] - 0.05
    flicker = {on: np.abs(np.diff(truth.hazy - r.tissue, axis=0)).mean() for on, r in results.items()}
    assert flicker[True] < flicker[False]


def gain_db(truth, tissue, t):
    before, after = (np.mean((frames[t] - truth.tissue[t]) ** 2) for frames in (truth.hazy, tissue))
    return 10 * np.log10(before / after)


def follows(true_db, tissue_db):
    """Correlation of the change over four frames, speckle averaged."""
    moved, truly = (
        np.subtract(*(ndimage.uniform_filter(f, (0, 7, 7)) for f in (x[4:], x[:-4]))).ravel()
        for x in (tissue_db, true_db)
    )
    return np.corrcoef(moved, truly)[0, 1]
