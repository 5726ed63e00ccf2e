"""The GPU script's dry run on the CPU, on a machine that has neither monai nor pydicom."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_dry_run_checks_measures_and_trains_without_monai_and_pydicom(tmp_path):
    for name in ("monai", "pydicom", "click", "h5py", "yaml"):
        (tmp_path / "absent").mkdir(exist_ok=True)
        (tmp_path / "absent" / f"{name}.py").write_text(f"raise ImportError('{name} is not on this machine')\n")
    out = tmp_path / "out"
    command = [str(ROOT / "validation/gpu/run.sh"), "--minutes", "1", "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "absent")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((out / "results.json").read_text())
    assert len(results["checks"]) >= 20 and all(row["ok"] for row in results["checks"])
    assert results["speed"] and all(row["frames_per_s"] > 0 for row in results["speed"])
    for name in ("tissue", "haze", "tissue-ncsnv2", "haze-ncsnv2"):
        kind, _, paper = name.partition("-")
        assert results["training"][name]["steps"] >= 1
        weights, card = out / f"{name}.safetensors", json.loads((out / f"{name}.json").read_text())
        assert paper or 1e6 < weights.stat().st_size < 12 * 2**20  # the contract for shipped weights
        assert card["kind"] == kind and card["parametrisation"] == ("score" if paper else "denoiser")
        assert card["training"]["steps"] == results["training"][name]["steps"]
