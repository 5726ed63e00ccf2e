"""The paper's experiments: data, figures, and that every experiment runs from training to table and picture."""

import json
import re

import numpy as np
import pytest
import torch
from _images import write_images
from PIL import Image

from usdehaze.errors import InputError, UsdehazeError
from validation.paper import data, metrics, noises, report
from validation.paper.__main__ import main
from validation.paper.experiments import EXPERIMENTS, measured
from validation.paper.methods import METHODS
from validation.paper.study import wanted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def made_up_data(folder, monkeypatch):
    monkeypatch.setenv("USDEHAZE_DATA", str(folder))
    data._everything.cache_clear()
    yield
    data._everything.cache_clear()


def run(name, work, *words):
    main([name, "--quick", "--no-lpips", "--work", str(work), *words])


@pytest.mark.slow
def test_every_experiment_runs_from_training_to_table_and_picture(tmp_path, capsys):
    blends, others = ["input", "projection", "proximal, 20 steps"], ["projection", "dps alone", "flow", "gan"]
    of = {"faces-digits": None, "cs-faces": ["pigdm", *others, "lasso"], "cs-natural": ["dps alone"]}  # None: all
    ran: set[str] = set()
    for name in EXPERIMENTS.keys() - {"faces-kannada", "faces-omniglot"}:  # as the letters, in other files
        methods = of.get(name, blends if EXPERIMENTS[name].is_blend else others)
        run(name, tmp_path, *(["--methods", *methods] if methods else []))
        figures = json.loads((tmp_path / "results" / f"{name}.json").read_text())
        found = {r["method"]: r for r in figures["records"]}
        assert set(found) == set(wanted(EXPERIMENTS[name], methods))
        ran |= set(found)
        for method in found:
            told = found[method]
            assert "missing" in told or len(told["figures"]) == (1 if method == "bm3d" else 2), method
            assert all(np.isfinite(f["psnr_db"]) for f in told.get("figures", {}).values())
        assert Image.open(tmp_path / "sheets" / f"{name}.png").size[0] == 2 * 66
    assert ran == set(METHODS)
    results = (tmp_path / "RESULTS.md").read_text()
    assert "25.94 / 0.851 / 0.159" in results and "18.61 / 0.772 / 0.054" in results
    assert results.count("\n## ") == len(EXPERIMENTS)  # what was not run has its printed figures


def test_a_second_run_measures_only_what_is_new(tmp_path):
    few = ("--methods", "input", "proximal, 20 steps")
    run("faces-digits", tmp_path, *few)
    records = tmp_path / "records"
    before = {path: path.stat().st_mtime_ns for path in records.iterdir()}
    assert len(before) == 4  # two images, two methods
    assert "\nNot measured: pigdm; dps; projection; " in (tmp_path / "RESULTS.md").read_text()
    run("faces-digits", tmp_path, *few, "projection")
    after = {path: path.stat().st_mtime_ns for path in records.iterdir()}
    assert len(after) == 6 and before.items() <= after.items()


def test_tables_by_the_papers_network_stand_beside_the_others(tmp_path, monkeypatch):
    results, figures = tmp_path / "RESULTS.md", tmp_path / "figures"
    monkeypatch.setattr("validation.paper.__main__.RESULTS", results)
    monkeypatch.setattr("validation.paper.__main__.FIGURES", figures)
    plain = ["faces-digits", "--methods", "input", "--images", "2", "--no-lpips", "--work", str(tmp_path)]
    main(plain)
    before = (figures / "faces-digits.json").read_text()
    main([*plain, "--network", "ncsnv2"])
    assert (figures / "faces-digits.json").read_text() == before
    assert json.loads((figures / "faces-digits-ncsnv2.json").read_text())["records"]
    headings = re.findall(r"^## faces \+ digits.*$", results.read_text(), re.MULTILINE)
    assert headings == ["## faces + digits", "## faces + digits, NCSNv2"]


def test_figures_of_other_methods_stay_with_their_command(tmp_path):
    run("faces-digits", tmp_path, "--methods", "input", "proximal, 20 steps")
    path = tmp_path / "results" / "faces-digits.json"
    before = {r["method"]: r for r in json.loads(path.read_text())["records"]}
    run("faces-digits", tmp_path, "--methods", "projection", "--seed", "1")
    after = {r["method"]: r for r in json.loads(path.read_text())["records"]}
    assert after == before | {"projection": after["projection"]}
    table = (tmp_path / "RESULTS.md").read_text()
    assert "--methods input 'proximal, 20 steps' --no-lpips --quick --seed 0\n" in table
    assert "--methods projection --no-lpips --quick --seed 1\n" in table and "| input | 2 |" in table


def test_what_is_solved_together_changes_no_figure(tmp_path):
    for batch in (1, 2):
        run("faces-letters", tmp_path / str(batch), "--methods", "proximal, 20 steps", "dps", "--batch", str(batch))
    one, two = (
        json.loads((tmp_path / b / "results" / "faces-letters.json").read_text())["records"] for b in ("1", "2")
    )
    for a, b in zip(one, two, strict=True):
        for i in ("0", "1"):
            assert a["figures"][i]["psnr_db"] == pytest.approx(b["figures"][i]["psnr_db"], abs=1e-3)


def test_timing_names_machine_and_printed_times(tmp_path):
    run("timing", tmp_path, "--methods", "projection", "proximal, 20 steps")
    table = (tmp_path / "RESULTS.md").read_text()
    assert re.search(r"\| projection \| [\d.]+ \| [\d.]+ \| 5,605 \|", table) and "one thread of" in table


def test_tables_have_the_whole_command_that_they_are_of(tmp_path, monkeypatch, capsys):
    quick = "--methods projection=1 'proximal, 20 steps' --no-lpips --quick --seed 3"
    for name in ("timing", "faces-digits"):
        run(name, tmp_path, "--methods", "projection=1", "proximal, 20 steps", "--seed", "3")
        assert f"\n    python -m validation.paper {name} {quick}\n" in (tmp_path / "RESULTS.md").read_text()
    told = []
    monkeypatch.setattr("validation.paper.timing.run", lambda *given: told.append(given[-1]))
    words = "--signal-prior S.safetensors --prior-steps 2000 --train-steps 1000 --restarts 1 --steps 600 --seed 0"
    main(["timing", "--work", str(tmp_path), *words.replace("S.", "mine.").split()])
    assert told == [f"python -m validation.paper timing {words}"]


@pytest.mark.parametrize("name", ["faces-translated", "sine", "cs-faces", "rain"])
def test_a_measurement_is_the_same_whatever_else_is_measured(name):
    few, more = (measured(EXPERIMENTS[name], "test", n) for n in (2, 5))
    assert torch.equal(few.problem.y, more.problem.y[:2]) and few.problem.noise_std == more.problem.noise_std


def test_splits_share_no_image():
    every = [data.images("faces", split).flatten(1) for split in data.SPLITS]
    assert [len(x) for x in every] == [12, 1, 11]
    assert torch.cdist(every[0], torch.cat(every[1:])).min() > 0.1
    assert len(data.images("natural", "test")) == 4  # none is learned


def test_characters_are_light_on_black_and_equal_in_all_channels():
    for kind in ("digits", "letters", "translated"):
        x = data.images(kind, "test", 3)
        assert x.shape == (3, 3, 64, 64) and x.median() == 0 and x.max() > 0.99
        assert torch.equal(x[:, 0], x[:, 2])


def test_translation_moves_by_whole_pixels_and_brings_in_black():
    x = torch.rand(6, 1, 10, 10) + 0.1
    moved = data.translated(x, 1)
    for a, b in zip(x, moved, strict=True):
        rows, columns = (b[0].sum(dim).nonzero().flatten() for dim in (1, 0))
        inside = b[0, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        h, w = inside.shape
        assert min(h, w) >= 7
        top, left = (0 if at[-1] < 9 else 10 - n for at, n in ((rows, h), (columns, w)))
        top, left = (10 - h if rows[0] == 0 and h < 10 else 0), (10 - w if columns[0] == 0 and w < 10 else 0)
        assert torch.equal(inside, a[0, top : top + h, left : left + w])


def test_sine_noise_has_the_papers_deviations():
    profile = noises.sine_deviations(64, 0.2)
    assert profile.mean() == pytest.approx(0.2, abs=1e-6)
    assert profile[4] / profile[12] == pytest.approx(np.exp(2), rel=1e-5)  # crest over trough
    drawn = noises.sine_noise(4000, profile[:, None], (64, 3), 0)
    torch.testing.assert_close(drawn.std((0, 2)), profile, rtol=0.05, atol=0)
    assert noises.sine_prior(profile[:, None]).spread(1e6).shape == (1, 64, 1)


def test_measurements_of_the_sine_experiment_start_where_the_paper_does():
    every = measured(EXPERIMENTS["sine"], "test", 4)
    off = every.problem.y - every.signal
    assert -10 * np.log10(float(off.square().mean())) == pytest.approx(15.6, abs=0.3)


def test_intervals_and_paired_differences():
    assert metrics.interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.302653 / 3**0.5), rel=1e-5)
    ahead = metrics.paired({0: 3.0, 1: 5.0, 7: 9.0}, {0: 1.0, 1: 2.0, 2: 9.0})
    assert ahead is not None and ahead[0] == 2.5 and ahead[2] == 2
    assert metrics.paired({0: 1.0}, {0: 1.0}) is None


def test_the_best_joint_sampler_is_that_of_the_images_that_all_have():
    easy, hard = (
        {"psnr_db": 30.0, "wall_s": 0.0, "solve_cpu_s": 0.0},
        {"psnr_db": 20.0, "wall_s": 0.0, "solve_cpu_s": 0.0},
    )
    records = [
        {"method": "pigdm", "figures": {"0": easy, "1": easy}},
        {"method": "projection", "figures": {0: easy | {"psnr_db": 31.0}, 1: easy, 2: hard, 3: hard}},
        {"method": "flow", "figures": {0: easy | {"psnr_db": 40.0}}},  # no joint sampler
    ]
    best = report.best_joint(records)
    assert best is not None and best["method"] == "projection"
    assert report.best_joint(records[2:]) is None


def test_what_was_not_measured_says_so_beside_the_printed_figure():
    records = [{"method": "flow", "missing": "normflows is not installed"}]
    lines = report.table(EXPERIMENTS["faces-letters"], records)
    assert "| flow | 0 | not measured |  |  | 22.61 / 0.826 / 0.179 | normflows is not installed |  |" in lines


def test_wrong_folders_and_numbers_give_one_line(tmp_path, monkeypatch, folder):
    with pytest.raises(InputError, match=r"11 faces to test on.*ask for fewer with --images"):
        data.images("faces", "test", 12)
    (folder / "digits" / "X_kannada_MNIST_test-idx3-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="not a usable IDX file"):
        data.images("kannada", "test", 1)
    with pytest.raises(UsdehazeError, match=r"no method 'magic'; there are: input"):
        wanted(EXPERIMENTS["rain"], ["magic"])
    monkeypatch.setenv("USDEHAZE_DATA", str(tmp_path))
    data._everything.cache_clear()
    with pytest.raises(SystemExit, match=r"^validation.paper: .*no faces there.*USDEHAZE_DATA"):
        run("rain", tmp_path / "work", "--methods", "projection")
