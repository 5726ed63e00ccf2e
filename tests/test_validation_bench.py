"""The test bench for priors as a command: what it writes, that it goes on where it stopped, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from _bench import Lowers, write_second_simulator
from _scans import fan_frames, write, write_hazy_clip
from _tiny_priors import write_tiny_posterior, write_tiny_priors
from PIL import Image

from usdehaze.dehazing.settings import PRESETS
from usdehaze.priors.prior import Prior
from validation.bench import __main__ as bench
from validation.bench import card, methods, parts, wide
from validation.bench.tables import lowest_cell
from validation.paths import PATIENTS


@pytest.fixture(scope="module")
def made_up(tmp_path_factory) -> Path:
    """Scans made up under the names of the first ones of each share, and tiny priors; no weights of LPIPS."""
    folder = tmp_path_factory.mktemp("made-up")
    for name in ("camus", "clean-cines"):
        (folder / name).mkdir()
    frames = fan_frames(2, 96, 96)
    label = np.zeros_like(frames)
    label[:, 28:66, 35:48], label[:, 28:66, 50:63] = 170, 85
    dark = np.where(label == 85, frames // 8, frames)
    names = json.loads(PATIENTS.read_text())
    for share, n in (("tuning", 5), ("held-out", 1)):
        pairs = zip(names["camus"][share][:n], names["clean-cines"][share][:n], strict=True)
        for seed, (patient, cine) in enumerate(pairs):
            with h5py.File(folder / "camus" / f"{patient}.h5", "w") as file:
                file["image"], file["label"] = frames if seed == 1 else dark, label  # the second has haze of its own
            with h5py.File(folder / "clean-cines" / f"{cine}.h5", "w") as file:
                file["bmode/frames"] = fan_frames(4, 96, 96, seed=seed)
    write_hazy_clip(folder / "echo-haze")
    write_second_simulator(folder / "second-simulator")
    write_tiny_priors(folder)
    return folder


@pytest.fixture
def folder(made_up: Path, tmp_path: Path, monkeypatch) -> Path:
    """A copy of these, where the scans are looked for."""
    shutil.copytree(made_up, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("USDEHAZE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def lowers(monkeypatch) -> None:
    """The bench measures `Lowers` instead of the dehazer."""
    for module in (methods, parts):
        monkeypatch.setattr(module, "Dehazer", Lowers)


def arguments(folder: Path, *more: str) -> list[str]:
    priors = ["--tissue-prior", str(folder / "tissue.safetensors"), "--haze-prior", str(folder / "haze.safetensors")]
    return [*priors, "--steps", "2", "--device", "cpu", "--limit", "2", "--out", str(folder / "out"), *more]


def test_every_part_is_measured_once_and_found_again(folder: Path, capsys) -> None:
    bench.main(arguments(folder, "--seeds", "0", "1"))
    first = capsys.readouterr()
    (path,) = (folder / "out").glob("*.json")
    document = json.loads(path.read_text())
    assert [record["cine"] for record in document["a"]["records"]] == ["simulation-1000000000", "simulation-1000000001"]
    ours = [record for record in document["b"]["records"] if record["method"] == "ours"]
    assert [record["cine"] for record in ours] == ["patient0001.h5", "cine-01.h5"]
    assert [(record["level"], record["extent"]) for record in ours] == [("light", "near"), ("light", "half")]
    gains = [record["psnr_db"]["tissue"] - record["psnr_db"]["input"] for record in ours]
    assert document["b"]["methods"]["ours"]["psnr_db"]["delta"] == pytest.approx(np.mean(gains))
    assert document["b"]["cells"]["ours"]["light/near"]["delta"] == pytest.approx(gains[0])
    assert "gcnr" in ours[0] and "gcnr" not in ours[1]  # labels of one of them
    assert [record["seed"] for record in document["c"]["records"]] == [0, 1]
    assert len(document["d"]["records"]) == 2
    assert set(document["e"]["tissue"]) == {"camus", "clean-cines"} and len(document["e"]["haze"]) == 5
    with Image.open(path.with_suffix(".png")) as sheet:
        assert sheet.mode == "L"
    assert {half: summary["psnr_db"]["input"] for half, summary in document["g"]["summary"].items()} == {
        "free haze": pytest.approx(20 * np.log10(60 / 3), abs=1e-4),
        "reverberation": pytest.approx(20 * np.log10(60 / 3), abs=1e-4),
    }
    assert [(record["cine"], record["frame"]) for record in document["h"]["records"]] == [
        ("patient0001.h5", 0),
        ("patient0001.h5", 1),
        ("patient0241.h5", 0),  # with haze of its own
        ("patient0241.h5", 1),
    ]
    assert [record["cine"] for record in document["i"]["records"]] == ["clip-01.h5"]
    assert [record["cine"] for record in document["j"]["records"]] == ["cine-01.h5", "cine-21.h5"]
    counts = {"simulated": 2, "hazed by four methods": 2 * 4, "seeds": 2, "harm": 2, "g": 2, "h": 4, "i": 1, "j": 2}
    assert first.err.count("\n") == sum(counts.values())

    bench.main(arguments(folder, "--seeds", "0", "1"))
    again = capsys.readouterr()
    assert again.err == ""
    assert again.out == first.out


def test_what_is_known_of_a_method_that_lowers_everything(lowers, folder: Path, monkeypatch, capsys) -> None:
    frames = fan_frames(12, 96, 96, seed=5)
    frames[:, 78:95, 20:60] = 0
    frames[:, 86, 20:60] = 200  # a trace where the fan is black
    write(folder / "echo-haze" / "clip-02.h5", {"cine": frames})
    write(folder / "lateral.h5", {"cine": fan_frames(9, 240, 400, seed=6)})
    monkeypatch.setattr(wide, "LATERAL_CINE", Path("lateral.h5"))
    more = ["--only", "g,h,i,j", "--limit", "4", "--methods", "learned", "--set", "drop_db=0.5,2"]
    bench.main(arguments(folder, *more, "--cine-frames", "3"))
    printed = capsys.readouterr().out
    half, two = (json.loads(path.read_text()) for path in sorted((folder / "out").glob("*.json")))
    assert (half["settings"]["drop_db"], two["settings"]["drop_db"]) == (0.5, 2)
    assert two["settings"]["posterior_prior"] == Lowers.posterior.name and "tissue_prior" not in two["settings"]

    summary = two["g"]["summary"]["reverberation"]  # 3 dB of haze
    assert summary["psnr_db"]["delta"] == pytest.approx(20 * np.log10(3), abs=1e-3)
    assert summary["wall_error_db"]["input"] == pytest.approx(3) and summary["wall_error_db"]["tissue"] == 1
    assert summary["rmse_haze_db"]["tissue"] == pytest.approx(1)
    assert summary["coverage"]["tissue"] == summary["coverage_all"]["tissue"] == 1  # to 0.5 dB and the slack
    assert half["g"]["summary"]["reverberation"]["coverage"]["tissue"] == 0

    assert two["h"]["summary"]["tissue_shift_db"]["tissue"] == pytest.approx(-2, abs=1e-5)
    assert (half["h"]["kept"], two["h"]["kept"]) == (1, 0)
    assert two["h"]["worst_shift_db"] == pytest.approx(-2, abs=1e-5)
    assert two["h"]["summary"]["gcnr"]["delta"] == pytest.approx(0, abs=1e-6)

    clips = {record["cine"]: record for record in two["i"]["records"]}
    assert "trace" not in clips["clip-01.h5"]
    trace = clips["clip-02.h5"]["trace"]
    assert trace["pixels"] == trace["lowered"] == 40 and trace["largest_db"] == pytest.approx(2, abs=1e-5)
    assert next(r for r in half["i"]["records"] if "trace" in r)["trace"]["lowered"] == 0
    assert two["i"]["summary"]["flicker"]["tissue"] == pytest.approx(0, abs=1e-5)
    assert two["i"]["summary"]["step_db"]["tissue"] == pytest.approx(0, abs=1e-4)
    assert len(two["i"]["lateral_wall"]["removed_db"]) == 3
    assert two["i"]["lateral_wall"]["max_db"] == pytest.approx(2, abs=1e-5)
    assert two["j"]["worst_shift_db"] == pytest.approx(-2, abs=1e-5)

    rows = [line.split(" | ") for line in printed.splitlines()]
    (head,) = (row for row in rows if row[0] == "| headline figures")
    assert head[1:] == ["wanted", "learned, drop_db 0.5", "learned, drop_db 2 |"]
    table = {row[0].removeprefix("| "): row[1:] for row in rows[rows.index(head) :]}
    assert table["h. shift of the myocardium, dB"] == [">= -1", "-0.500", "-2.000 ! |"]
    assert table["i. pixels of ECG traces lowered by more than 1 dB"][1:] == ["0", "40 ! |"]
    assert table["g. reverberation: mean error on walls, dB"] == ["-1.5 to 1.5", "2.500 !", "1.000 |"]
    assert not any(what.startswith("b. ") for what in table)


def test_losses_and_sheets_leave_out_priors_that_there_are_not(lowers, folder: Path) -> None:
    bench.main(arguments(folder, "--only", "a,b,e,f", "--limit", "1"))
    (path,) = (folder / "out").glob("*.json")
    document = json.loads(path.read_text())
    assert document["e"]["tissue"] == {} and "haze" not in document["e"]
    assert path.name == "tuning-01234567-fast-steps2-limit1-abef.json"
    with Image.open(path.with_suffix(".png")) as sheet:
        assert sheet.height == 2 * (32 + 4)
    assert 0 <= document["b"]["methods"]["ours"]["coverage"]["tissue"] <= 1


def test_intervals_are_judged_where_there_are_several_samples(folder: Path, capsys) -> None:
    bench.main(arguments(folder, "--only", "a,b", "--limit", "1", "--samples", "1"))
    assert "coverage" not in capsys.readouterr().out
    bench.main(arguments(folder, "--only", "a,b", "--limit", "1", "--samples", "2"))
    printed = capsys.readouterr().out
    for what in ("a. coverage where in doubt", "b. CAMUS: coverage where in doubt"):
        assert f"| {what} |" in printed
    assert "Lowest cell: light/near" in printed


def test_the_lowest_cell_is_sought_among_those_named() -> None:
    gains = {"all/all": -9, "light/near": 2, "light/whole": 1, "heavy/near": 0.5, "heavy/whole": -3, "camus/near": -8}
    cells = {name: {"delta": gain} for name, gain in gains.items()}
    assert lowest_cell(cells) == "heavy/whole"
    assert lowest_cell(cells, levels=("light",), extents=("near",)) == "heavy/near"
    assert lowest_cell(cells, levels=("light",)) == "light/whole"
    assert lowest_cell({"all/all": {"delta": 1}}) is None


def test_scans_with_haze_of_their_own_do_not_count_as_clean(folder: Path) -> None:
    bench.main(arguments(folder, "--only", "d", "--limit", "5"))
    (path,) = (folder / "out").glob("*.json")
    names = json.loads(PATIENTS.read_text())["camus"]["tuning"]
    measured = [record["cine"] for record in json.loads(path.read_text())["d"]["records"]]
    assert [cine for cine in measured if cine.startswith("patient")] == [f"{names[i]}.h5" for i in (0, 2, 3)]


def test_other_settings_are_measured_anew(folder: Path, capsys) -> None:
    bench.main(arguments(folder, "--only", "d"))
    bench.main(arguments(folder, "--only", "d"))
    assert capsys.readouterr().err.count("\n") == 2
    bench.main(arguments(folder, "--only", "d", "--samples", "3"))
    assert capsys.readouterr().err.count("\n") == 2
    assert len(list((folder / "out").glob("*samples3-limit2-d.json"))) == 1


def test_without_a_haze_prior_there_are_five_more_rows(folder: Path, capsys) -> None:
    bench.main(arguments(folder, "--only", "b", "--limit", "1", "--baselines", "--gaussian-steps", "2"))
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    for name in ("median over beams", "same sampler, Gaussian noise", "projection", "PiGDM", "DPS"):
        assert sum(line.startswith(f"| {name}") for line in rows) == 1


def test_the_oracle_that_knows_the_tissue_is_the_best_row(folder: Path, capsys) -> None:
    bench.main(arguments(folder, "--only", "b"))
    (path,) = (folder / "out").glob("*.json")
    methods = json.loads(path.read_text())["b"]["methods"]
    psnr = {name: summary["psnr_db"]["tissue"] for name, summary in methods.items()}
    assert max(psnr, key=psnr.get) == "oracle: tissue known on the grid"


def test_scores_of_held_out_scans_go_onto_the_cards_and_nothing_else_changes(folder: Path, capsys) -> None:
    paths = [folder / f"{kind}.json" for kind in ("tissue", "haze")]
    before = [json.loads(path.read_text()) for path in paths]
    weights = [path.with_suffix(".safetensors").read_bytes() for path in paths]
    for _ in range(2):  # the second time in place of the first
        bench.main(arguments(folder, "--patients", "held-out", "--only", "b,c,d,e", "--seeds", "0", "--card"))
    assert capsys.readouterr().out.count("card: ") == 4
    (path,) = (folder / "out").glob("*.json")
    document = json.loads(path.read_text())
    after = [json.loads(path.read_text()) for path in paths]
    scores = [card.pop("bench") for card in after]
    assert after == before
    assert [path.with_suffix(".safetensors").read_bytes() for path in paths] == weights
    names = [Prior.load(path.with_suffix(".safetensors"), path.stem).name for path in paths]
    assert [score["beside"] for score in scores] == names[::-1]
    psnr = document["b"]["methods"]["ours"]["psnr_db"]
    for score in scores:
        hazed = score["real tissue under simulated haze"]
        assert hazed["frames"] == 2 and hazed["psnr_db"] == pytest.approx([psnr["input"], psnr["tissue"]], abs=1e-4)
        shift = document["d"]["summary"]["clean_shift_db"]["tissue"]
        assert score["clean real frames"]["clean_shift_db"] == pytest.approx(shift, abs=1e-4)
        assert score["real hazy clips"]["frames"] == 1 and (score["patients"], score["steps"]) == ("held-out", 2)
    assert set(scores[0]["denoising loss"]) == {"camus", "clean-cines"}
    losses = document["e"]
    assert scores[1]["denoising loss"]["hazes"]["0.3"] == pytest.approx(
        losses["haze"][losses["sigmas"].index(0.3)], abs=1e-5
    )


def test_scores_of_the_learned_posterior_go_onto_its_card(folder: Path, capsys) -> None:
    path = folder / "posterior.safetensors"
    write_tiny_posterior(path)
    before = json.loads(path.with_suffix(".json").read_text())
    of_part = ["--patients", "held-out", "--only", "b,c,d,e", "--seeds", "0", "--limit", "1", "--device", "cpu"]
    bench.main([*of_part, "--set", f"posterior={path}", "--baselines", "--gaussian-steps", "2", "--card",
                "--out", str(folder / "out")])  # fmt: skip
    assert f"card: {path.with_suffix('.json')}" in capsys.readouterr().out
    (figures,) = (folder / "out").glob("*.json")
    document = json.loads(figures.read_text())
    after = json.loads(path.with_suffix(".json").read_text())
    score = after.pop("bench")
    assert after == before
    psnr = document["b"]["methods"]["ours"]["psnr_db"]
    hazed = score["real tissue under simulated haze"]
    assert hazed["frames"] == 1 and hazed["psnr_db"] == pytest.approx([psnr["input"], psnr["tissue"]], abs=1e-4)
    assert score["real hazy clips"]["frames"] == score["clean real frames"]["frames"] == 1
    assert (score["preset"], score["steps"], score["patients"]) == ("fast", PRESETS["fast"].steps, "held-out")
    assert not {"beside", "denoising loss"} & set(score)


def test_the_networks_whose_cards_are_meant(folder: Path) -> None:
    def networks(*words: str) -> dict[str, str]:
        args = bench.parser().parse_args([*words, "--device", "cpu"])
        ((_, options),) = bench.chosen_methods(args).items()
        return bench.networks_of(bench.make_bench(args, options, folder))

    assert networks("--out", str(folder)) == {"posterior": "posterior"}
    assert networks("--out", str(folder), "--methods", "dps") == {"tissue": "tissue", "haze": "haze"}
    own = str(folder / "tissue.safetensors")
    both = networks("--out", str(folder), "--tissue-prior", own, "--haze-prior", str(folder / "haze.safetensors"))
    assert both == {"tissue": own, "haze": str(folder / "haze.safetensors")}


def test_a_shipped_prior_is_named_and_its_card_found(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "tissue.json").write_text('{"kind": "tissue"}')
    monkeypatch.setattr(card, "WEIGHTS", tmp_path)
    monkeypatch.setattr(card, "scores", lambda document, kind, beside: {"kind": kind, "beside": beside})
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mist.json").write_text("{}")
    document = {"settings": {"tissue_prior": "t", "haze_prior": "h"}}
    named = {"tissue": "tissue", "haze": str(tmp_path / "own" / "mist.safetensors")}
    paths = card.write_cards(document, named)
    assert paths == [tmp_path / "tissue.json", tmp_path / "own" / "mist.json"]
    assert json.loads(paths[0].read_text()) == {"kind": "tissue", "bench": {"kind": "tissue", "beside": "h"}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--only", "x"], "no such part"),
        (["--tissue-prior", "nowhere.safetensors"], "nowhere.safetensors: no such prior"),
        (["--steps", "0", "--only", "d"], "steps"),
        (["--set", "caution"], "--set takes NAME=VALUE"),
        (["--set", "colour=red"], "--set knows no setting 'colour'"),
        (["--set", "seed=1"], "--set knows no setting 'seed'"),
        (["--methods", "proximal", "guesswork"], "no guidance 'guesswork'"),
        (["--cine-frames", "0"], "--cine-frames must be at least 1"),
        (["--card", "--methods", "proximal", "dps"], "--card takes one method, found proximal; dps"),
        (["--card"], "--card takes --patients held-out and parts b,c,d,e; found tuning"),
        (["--card", "--patients", "held-out", "--only", "b"], "--card takes --patients held-out and parts b,c,d,e"),
    ],
)
def test_what_cannot_be_done_ends_in_one_line(folder: Path, more: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.main(arguments(folder, *more))
    assert said in str(stopped.value) and "\n" not in str(stopped.value)


def test_without_real_scans_only_simulated_hearts_can_be_measured(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("USDEHAZE_DATA", str(folder / "nowhere"))
    with pytest.raises(SystemExit, match="set USDEHAZE_DATA"):
        bench.main(arguments(folder))
    bench.main(arguments(folder, "--only", "a", "--limit", "1"))
    assert "a. simulated hearts (1)" in capsys.readouterr().out
