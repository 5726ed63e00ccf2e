"""The GPU script's dry run on the CPU, on a machine that has neither monai nor pydicom."""

import hashlib
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from usdehaze.priors.cards import WEIGHTS
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.simulate import simulate_cine
from usdehaze.training import data
from usdehaze.validation import benchmark
from validation.gpu import evaluation

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_dry_run_checks_measures_trains_and_evaluates_without_monai_and_pydicom(tmp_path):
    for name in ("monai", "pydicom", "click", "h5py", "yaml"):
        (tmp_path / "absent").mkdir(exist_ok=True)
        (tmp_path / "absent" / f"{name}.py").write_text(f"raise ImportError('{name} is not on this machine')\n")
    out = tmp_path / "out"
    command = [str(ROOT / "validation/gpu/run.sh"), "--minutes", "0.15", "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "absent")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((out / "results.json").read_text())
    assert results["broken"] == {}
    check_checks(results["checks"])
    assert [(row["preset"], row["guidance"]) for row in results["speed"]] == [
        ("fast", "learned"),
        ("quality", "learned"),
        ("preview", "learned"),
        ("fast", "proximal"),
    ]
    assert all(row["frames_per_s"] > 0 for row in results["speed"])
    (row,) = results["compiled"]
    assert row["eager_ms"] > 0 and row["compiled_ms"] > 0 and row["difference"] <= 1e-5
    for name in ("hearts", "quiet-hearts", "posterior", "tissue-ncsnv2", "haze-ncsnv2"):
        paper = name.endswith("ncsnv2")
        kind = name.partition("-")[0] if paper else "posterior"
        of_it = ("hearts", "quiet-hearts") if name == "posterior" else (name,)
        steps = sum(results["training"][each]["steps"] for each in of_it)
        assert steps >= len(of_it)
        weights, card = out / f"{name}.safetensors", json.loads((out / f"{name}.json").read_text())
        assert paper or 1e6 < weights.stat().st_size < 12 * 2**20  # the contract for shipped weights
        assert card["kind"] == kind and card["parametrisation"] == ("score" if paper else "posterior")
        assert card["training"]["steps"] == steps
        assert card["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    check_evaluation(results["evaluation"], out)


def check_checks(rows):
    """All is well, and nothing was left out."""
    assert all(row["ok"] for row in rows)
    names = [row["check"] for row in rows]
    assert len(set(names)) == len(names)
    for what, n in (
        ("posterior, means", 5), ("posterior, quantiles", 5), ("decided quantiles", 2), ("deviation", 2),
        ("denoiser", 3), ("Proximal with", 6), ("PiGDM with", 6), ("DPS with", 6),
        ("simulated pair, ", 3), ("simulated tissue", 1), ("simulated haze", 1),
        ("learned, same run twice", 1), ("learned, all at once against each alone", 1),
        ("proximal, same run twice", 1), ("proximal, all at once against each alone", 1),
    ):  # fmt: skip
        assert sum(name.startswith(what) for name in names) == n, what


def check_evaluation(found, out):
    """Of a posterior that goes on from the shipped one by a step or two: the card says how it did."""
    shipped, card = (json.loads((folder / "posterior.json").read_text()) for folder in (WEIGHTS, out))
    assert card["name"] == shipped["name"]
    assert card["fine_tuned_from"] == card["bench"]["against"] == LearnedPosterior.load("posterior").name
    hearts, of_trained = card["bench"]["simulated hearts"], found["figures"]["trained"]
    assert hearts["frames"] == found["hearts"] and set(hearts) == {"frames", *of_trained}
    assert hearts["psnr_gain_db"] == pytest.approx(of_trained["psnr_gain_db"], abs=1e-4)
    assert card["bench"]["difference"]["psnr_gain_db"] == pytest.approx(found["difference"]["psnr_gain_db"], abs=1e-4)
    assert found["difference"]["psnr_gain_db"]["mean"] == pytest.approx(
        of_trained["psnr_gain_db"] - found["figures"]["shipped"]["psnr_gain_db"]
    )
    assert found["loss"]["shipped"] != found["loss"]["trained"]
    before, after = (found["held_out"][which]["4"] for which in ("shipped", "trained"))
    assert before != after and after == pytest.approx(card["held_out"]["4"], rel=1e-2)  # same pairs, same noise
    assert set(after) == {"tissue", "haze", "inside"}
    assert LearnedPosterior.load(out / "posterior.safetensors").card["bench"] == card["bench"]


def test_hearts_of_the_evaluation_were_never_trained_on_nor_chosen_by():
    assert evaluation.FIRST_SEED >= benchmark.FIRST_SEED + 3000  # the presets have the first 1000 and some
    assert evaluation.FIRST_SEED + 1000 < data.SAMPLE_SEED < data.HELD_OUT_SEED


def test_figures_of_a_heart_tell_what_was_done_to_it():
    heart = simulate_cine(1, seed=evaluation.FIRST_SEED)
    true, walls, cavities = heart.tissue[0], heart.labels[0] == 1, heart.labels[0] == 2
    wrong = true - 2.0 * walls + 3.0 * cavities
    gain, haze, wall, cavity = evaluation.heart_figures(heart, wrong, heart.haze[0] + 6)
    was, now = (np.mean((frame - true) ** 2) for frame in (heart.hazy[0], wrong))
    assert gain == pytest.approx(10 * np.log10(was / now), abs=1e-4)
    assert haze == pytest.approx(20, abs=1e-4)  # 6 dB off everywhere, of 60
    assert (wall, cavity) == pytest.approx((-2, 3), abs=1e-4)
    blank = replace(heart, labels=np.zeros_like(heart.labels))
    assert np.isnan(evaluation.heart_figures(blank, wrong, heart.haze[0])[2:]).all()


def test_means_leave_out_hearts_without_a_figure():
    values = np.array([[1.0, 2.0, math.nan, math.nan], [3.0, 2.0, 5.0, math.nan], [5.0, 2.0, 7.0, math.nan]])
    assert list(evaluation.means(values).values()) == [3.0, 2.0, 6.0, None]
    assert evaluation.standard_error(values[:, 0]) == pytest.approx(2 / math.sqrt(3))
    assert evaluation.standard_error(values[:, 2]) == pytest.approx(1.0)
    assert evaluation.standard_error(values[:, 3]) is None
