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

from usdehaze.priors import data
from usdehaze.priors.files import WEIGHTS
from usdehaze.priors.prior import Prior
from usdehaze.simulate import simulate_cine
from usdehaze.validation import benchmark

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def evaluation(monkeypatch):
    """The script's module."""
    monkeypatch.syspath_prepend(str(ROOT / "validation/gpu"))
    import evaluation

    return evaluation


@pytest.mark.slow
def test_dry_run_checks_measures_trains_and_evaluates_without_monai_and_pydicom(tmp_path):
    for name in ("monai", "pydicom", "click", "h5py", "yaml"):
        (tmp_path / "absent").mkdir(exist_ok=True)
        (tmp_path / "absent" / f"{name}.py").write_text(f"raise ImportError('{name} is not on this machine')\n")
    out = tmp_path / "out"
    command = [str(ROOT / "validation/gpu/run.sh"), "--minutes", "0.3", "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "absent")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((out / "results.json").read_text())
    assert results["broken"] == {}
    assert len(results["checks"]) >= 20 and all(row["ok"] for row in results["checks"])
    assert [row["preset"] for row in results["speed"]] == ["fast", "quality", "preview"]
    assert all(row["frames_per_s"] > 0 for row in results["speed"])
    for name in ("tissue", "haze", "tissue-ncsnv2", "haze-ncsnv2"):
        kind, _, paper = name.partition("-")
        assert results["training"][name]["steps"] >= 1
        weights, card = out / f"{name}.safetensors", json.loads((out / f"{name}.json").read_text())
        assert paper or 1e6 < weights.stat().st_size < 12 * 2**20  # the contract for shipped weights
        assert card["kind"] == kind and card["parametrisation"] == ("score" if paper else "denoiser")
        assert card["training"]["steps"] == results["training"][name]["steps"]
        assert card["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    check_evaluation(results["evaluation"], out)


def check_evaluation(found, out):
    """Of a pair that goes on from the shipped one by a step or two: little differs, and the cards say how it did."""
    shipped = {kind: json.loads((WEIGHTS / f"{kind}.json").read_text()) for kind in ("tissue", "haze")}
    cards = {kind: json.loads((out / f"{kind}.json").read_text()) for kind in ("tissue", "haze")}
    for kind, other in (("tissue", "haze"), ("haze", "tissue")):
        assert cards[kind]["name"] == shipped[kind]["name"]
        assert cards[kind]["fine_tuned_from"].endswith(shipped[kind]["sha256"])
        bench = cards[kind]["bench"]
        assert bench["beside"] == f"{shipped[other]['name']} sha256:{cards[other]['sha256']}"
        hearts = bench["simulated hearts"]
        assert hearts["frames"] == found["hearts"] and set(hearts) == {"frames", *found["figures"]["trained"]}
        assert hearts["psnr_gain_db"] == pytest.approx(found["figures"]["trained"]["psnr_gain_db"], abs=1e-4)
        losses = [found["held_out"][pair][kind] for pair in ("shipped", "trained")]
        assert losses[0] != losses[1] and losses[1]["0.3"] == pytest.approx(losses[0]["0.3"], rel=0.5)
        assert losses[1]["0.3"] == pytest.approx(cards[kind]["held_out"]["0.3"], rel=1e-3)  # same frames, same noise
        assert Prior.load(out / f"{kind}.safetensors", kind).card["bench"] == bench
    gains = [found["figures"][pair]["psnr_gain_db"] for pair in ("trained", "shipped")]
    assert found["difference"]["psnr_gain_db"]["mean"] == pytest.approx(gains[0] - gains[1])


def test_hearts_of_the_evaluation_were_never_trained_on_nor_chosen_by(evaluation):
    assert evaluation.FIRST_SEED >= benchmark.FIRST_SEED + 3000  # the presets have the first 1000 and some
    assert evaluation.FIRST_SEED + 1000 < data.SAMPLE_SEED < data.HELD_OUT_SEED
    assert (evaluation.MIN_REGION_PIXELS, evaluation.WALL, evaluation.CAVITY) == (
        benchmark.MIN_REGION_PIXELS,
        benchmark.WALL,
        benchmark.CAVITY,
    )


def test_figures_of_a_heart_tell_what_was_done_to_it(evaluation):
    heart = simulate_cine(1, seed=evaluation.FIRST_SEED + 1)
    true, walls, cavities = heart.tissue[0], heart.labels[0] == 1, heart.labels[0] == 2
    wrong = true - 2.0 * walls + 3.0 * cavities
    gain, haze, wall, cavity = evaluation.heart_figures(heart, wrong, heart.haze[0] + 6)
    was, now = (np.mean((frame - true) ** 2) for frame in (heart.hazy[0], wrong))
    assert gain == pytest.approx(10 * np.log10(was / now), abs=1e-4)
    assert haze == pytest.approx(20, abs=1e-4)  # 6 dB off everywhere, of 60
    assert (wall, cavity) == pytest.approx((-2, 3), abs=1e-4)
    blank = replace(heart, labels=np.zeros_like(heart.labels))
    assert np.isnan(evaluation.heart_figures(blank, wrong, heart.haze[0])[2:]).all()


def test_means_leave_out_hearts_without_a_figure(evaluation):
    values = np.array([[1.0, 2.0, math.nan, math.nan], [3.0, 2.0, 5.0, math.nan], [5.0, 2.0, 7.0, math.nan]])
    assert list(evaluation.means(values).values()) == [3.0, 2.0, 6.0, None]
    assert evaluation.standard_error(values[:, 0]) == pytest.approx(2 / math.sqrt(3))
    assert evaluation.standard_error(values[:, 2]) == pytest.approx(1.0)
    assert evaluation.standard_error(values[:, 3]) is None
