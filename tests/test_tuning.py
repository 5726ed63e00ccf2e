"""Tuning: the search on figures that are known, the frames it is done on, the preset that it ends in."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from _scans import fan_frames, write
from _tiny_priors import write_tiny_priors

from usdehaze.cine import Cine, Polar
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.settings import PRESETS, WITH_RULES, Settings
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io import read_truth, write_simulation
from usdehaze.simulate import simulate_cine
from usdehaze.tuning import Example, Tried, Tuned, find_examples, preset_text, search, tune
from usdehaze.tuning.examples import allot, spread
from usdehaze.tuning.search import best_of
from usdehaze.validation import metrics

START = replace(WITH_RULES["fast"], scale=(1.0, 1.0))


def bowl(settings: Settings) -> tuple[float, float]:
    """Best at lambda 0.5, kappa 1.4, strength 0.7, whatever the steps; -1 a factor of e or a whole strength off."""
    off = np.log(settings.scale[0] / 0.5) ** 2 + np.log(settings.scale[1] / 1.4) ** 2 + (settings.strength - 0.7) ** 2
    return -float(off), 4.0 * settings.steps


@pytest.fixture(scope="module")
def simulated(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("scans") / "a.h5"
    write_simulation(path, simulate_cine(6, seed=1_200_000_000, n_depth=32, n_angle=32))
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Dehazer:
    return Dehazer.from_pretrained(**write_tiny_priors(tmp_path_factory.mktemp("priors")) | {"steps": 6})


def test_the_search_finds_a_known_optimum():
    tuned = search(bowl, START, 0.0, 120, 32)
    assert tuned.best.quality > -0.02 > tuned.start.quality
    assert tuned.best.settings.scale == pytest.approx((0.5, 1.4), rel=0.1)
    assert tuned.best.settings.strength == pytest.approx(0.7, abs=0.1)


def test_the_start_is_the_first_trial_and_the_best_is_the_best_of_those_tried():
    tuned = search(bowl, START, 0.0, 15, 32)
    assert tuned.start.settings == START and tuned.tried[0] == tuned.start
    assert tuned.best.quality == max(t.quality for t in tuned.tried) >= tuned.start.quality
    assert all(t.quality == bowl(t.settings)[0] for t in tuned.tried)


def test_of_the_learned_posterior_caution_is_searched():
    def valley(settings: Settings) -> tuple[float, float]:
        return -abs(settings.caution - 0.75) - abs(settings.strength - 0.7), float(settings.steps)

    tuned = search(valley, replace(PRESETS["fast"], steps=4), 0.0, 80, 4)
    assert tuned.best.settings.scale is None and {t.settings.scale for t in tuned.tried} == {None}
    assert tuned.best.settings.caution == pytest.approx(0.75, abs=0.06)
    examples = [
        Example(Cine(np.zeros((1, 2, 2), np.float32), Polar(np.arange(1.0, 3), np.arange(2.0))), np.zeros((2, 2)))
    ]
    lines = yaml.load(preset_text(tuned, examples, 80, {"posterior": "own"}), Loader=yaml.BaseLoader)
    assert {"caution", "posterior"} < set(lines) and not {"lambda", "kappa", "observation"} & set(lines)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("caution", "strength"), [(0.3, 1.0), (0.873, 0.97)])
def test_a_start_beside_what_is_searched_is_tried_as_it_is(caution, strength):
    start = replace(PRESETS["fast"], caution=caution, strength=strength)
    tuned = search(lambda settings: (float(settings == start), 2.0), start, 0.0, 5, 1)
    assert tuned.start.settings == tuned.best.settings == start and len(tuned.tried) > 2


def test_a_start_that_nothing_beats_stays():
    best = replace(START, scale=(0.5, 1.4), strength=0.7)
    assert search(bowl, best, 0.0, 12, 32).best.settings == best


def test_the_same_seed_gives_the_same_search_and_another_one_another():
    first, again = (search(bowl, START, 0.0, 12, 32).tried for _ in range(2))
    assert first == again
    other = search(bowl, replace(START, seed=2**63 - 1), 0.0, 12, 32).tried
    assert [t.settings.scale for t in other] != [t.settings.scale for t in first]


def test_steps_stay_within_their_bounds():
    tried = search(bowl, replace(START, steps=10), 0.0, 30, 10).tried
    assert {t.settings.steps for t in tried} <= set(range(4, 11))
    assert {t.settings.steps for t in search(bowl, replace(START, steps=2), 0.0, 5, 2).tried} == {2}


def test_settings_that_break_down_are_passed_over_but_not_the_start():
    def fragile(settings: Settings) -> tuple[float, float]:
        if settings.scale[0] > 0.5 and settings != START:
            raise UsdehazeError("sampling broke down")
        return bowl(settings)

    tuned = search(fragile, START, 0.0, 30, 32)
    assert 2 < len(tuned.tried) < 30 and all(t.settings.scale[0] <= 0.5 for t in tuned.tried[1:])

    def broken(settings: Settings) -> tuple[float, float]:
        raise UsdehazeError("sampling broke down at step 3")

    with pytest.raises(UsdehazeError, match="at step 3"):
        search(broken, START, 0.0, 3, 32)


def test_a_tie_goes_to_fewer_network_passes_but_never_below_the_start():
    start, best, near, poor = (
        Tried(replace(START, steps=n), q, 4 * n) for n, q in ((32, 10.0), (30, 10.5), (9, 10.4), (4, 9.9))
    )
    assert best_of([start, best, near, poor], 0.2) is near
    assert best_of([start, best, near, poor], 0.05) is best
    assert best_of([start, poor], 0.2) is start


@pytest.mark.parametrize(
    ("counts", "total", "given"),
    [([9, 9], 5, [3, 2]), ([1, 9, 9], 7, [1, 3, 3]), ([2, 1], 9, [2, 1]), ([5] * 6, 3, [0, 1, 0, 1, 0, 1])],
)
def test_frames_are_shared_out_among_the_scans(counts, total, given):
    assert allot(counts, total) == given


def test_frames_of_a_scan_are_spread_over_it():
    assert spread(100, 5) == [10, 30, 50, 70, 90]
    assert spread(3, 5) == [0, 1, 2] and spread(7, 1) == [3]


def test_frames_of_a_simulation_come_with_their_truth(simulated):
    examples = find_examples([simulated], 2)
    truth = read_truth(simulated)
    assert [e.cine.source.first_frame for e in examples] == [1, 4]
    for t, example in zip((1, 4), examples, strict=True):
        assert np.array_equal(example.cine.frames[0], truth.cine.frames[t])
        assert np.array_equal(example.truth, truth.tissue[t])
        assert example.quality(example.cine.frames[0]) == metrics.psnr_db(truth.cine.frames[t], truth.tissue[t], 60)


def test_a_scan_without_truth_needs_regions(tmp_path):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    with pytest.raises(InputError, match=r"scan\.h5: its true tissue is not known.*--roi"):
        find_examples([scan], 5)


def test_only_frames_with_regions_are_taken(tmp_path):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames(5)})
    polygons = {"tissue": [[20, 30], [30, 30], [30, 40], [20, 40]], "haze": [[34, 30], [44, 30], [44, 40], [34, 40]]}
    regions = [{"name": r, "role": r, "frames": [1, 3], "polygon": p} for r, p in polygons.items()]
    (tmp_path / "scan.rois.json").write_text(json.dumps({"regions": regions}))
    examples = find_examples([scan], 5, str(tmp_path))
    assert [e.cine.source.first_frame for e in examples] == [1, 3]
    in_tissue, in_haze = examples[0].regions
    assert in_tissue[35, 25] and not in_tissue[35, 38] and in_haze[35, 38] and not in_haze[35, 25]
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other" / "scan.h5", {"x": fan_frames(5)[::-1]})
    with pytest.raises(InputError, match=r"other/scan\.h5: its regions, .* are those of another scan of this name"):
        find_examples([scan, other], 5, str(tmp_path))


def test_the_figure_of_regions_is_contrast_less_what_the_tissue_lost():
    """Two uniform ramps: KS of a shift by a tenth of the ramp's length is a tenth."""
    ramp = np.linspace(-20.0, -10.0, 1000, dtype=np.float32)
    frame = np.stack([ramp, ramp - 1])  # tissue above, haze below
    rows = np.zeros((2, *frame.shape), bool)
    rows[0, 0] = rows[1, 1] = True
    cine = Cine(frame[None], Polar(np.array([0.01, 0.02]), np.linspace(-0.5, 0.5, 1000)))
    example = Example(cine, regions=(rows[0], rows[1]))
    kept = example.quality(np.stack([frame[0], frame[1] - 20]))  # haze gone: contrast 1, KS 0 and 1
    assert kept == pytest.approx(1 + 0.1, abs=0.03)  # one bin of gCNR straddles the gap
    eaten = example.quality(np.stack([frame[0] - 4, frame[1] - 20]))  # and tissue 4 dB down: KS 0.4
    assert eaten == pytest.approx(kept - 2 * (0.4 - 0.1), abs=1e-3)
    assert example.quality(frame) == pytest.approx(metrics.gcnr(frame[0], frame[1]))


def test_tuning_measures_what_the_dehazer_does(simulated, tiny):
    examples = find_examples([simulated], 2)
    told = []
    tuned = tune(tiny, examples, 6, progress=lambda *args: told.append(args))
    assert tuned.start.settings == replace(tiny.settings, scale=(1.0, 1.0))
    best = Dehazer(tiny.tissue, tiny.haze, tuned.best.settings, "cpu")
    results = [best.dehaze(example.cine) for example in examples]
    again = np.mean([e.quality(r.tissue[0]) for e, r in zip(examples, results, strict=True)])
    assert tuned.best.quality == again > tuned.start.quality
    assert tuned.best.evaluations == results[0].settings["evaluations"] == 4 * tuned.best.settings.steps
    assert [n for n, _ in told] == [1, 2, 3, 4, 5, 6] and told[0][1] == tuned.start.quality
    assert told[-1][1] == max(t.quality for t in tuned.tried)
    assert tune(tiny, examples, 6) == tuned


def test_never_more_steps_than_allowed(simulated, tiny):
    tuned = tune(tiny, find_examples([simulated], 1), 3, max_steps=3)
    assert [t.settings.steps for t in tuned.tried] == [3, 3, 3]


def test_the_preset_says_what_it_is_and_never_names_a_scan(simulated):
    examples = find_examples([simulated], 3)
    best = replace(START, scale=(0.512, 1.37), steps=9, strength=0.65, seed=7)
    before, after = Tried(START, 10.0, 128), Tried(best, 10.25, 36)
    text = preset_text(Tuned(before, after, (before, after)), examples, 40, {})
    assert yaml.load(text, Loader=yaml.BaseLoader) == {
        **{"preset": "fast", "guidance": "proximal", "observation": "log-power", "sampler": "stochastic"},
        **{"lambda": "0.512", "kappa": "1.37", "steps": "9", "strength": "0.65", "seed": "7"},
    }
    for said in ("3 frames", "40", "10.0000 before, 10.2500 after", "128 before, 36 after", "not a test", "PSNR"):
        assert said in text
    assert simulated.name not in text and str(simulated.parent) not in text


def test_without_optuna_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsdehazeError, match=r'pip install "usdehaze\[tune\]"'):
        search(bowl, START, 0.0, 1, 32)
