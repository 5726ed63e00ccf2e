"""The pipelines run, and do what their pages say."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from _scans import fan_frames, write
from _tiny_priors import write_tiny_priors
from monai.bundle import ConfigParser, run

from usdehaze import Dehazer, open_cine
from usdehaze.io import read_result

PIPELINES = Path(__file__).resolve().parents[1] / "pipelines"
CONFIG = PIPELINES / "dehaze" / "configs" / "inference.yaml"


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return write_tiny_priors(tmp_path_factory.mktemp("priors"))


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    for index in range(2):
        write(folder / f"scan-{index}.h5", {"cine": fan_frames(2, seed=index)})
    return folder


def check_results(out, scans, options):
    assert sorted(path.name for path in out.iterdir()) == ["scan-0.dehazed.h5", "scan-1.dehazed.h5"]
    dehazer = Dehazer.from_pretrained(**options)
    for path in sorted(out.iterdir()):
        stored = read_result(path)
        result = dehazer.dehaze(open_cine(scans / stored.attrs["source_name"]))
        assert np.array_equal(stored.tissue, result.tissue) and np.array_equal(stored.haze, result.haze)
        assert np.array_equal(stored.input, result.cine.frames)
        assert stored.attrs["seed"] == options.get("seed", 0) and stored.attrs["steps"] == 2


def test_the_bundle_dehazes_a_folder(tmp_path, scans, options, capsys):
    chosen = {**options, "seed": 4}
    run(config_file=str(CONFIG), dataset_dir=str(scans), output_dir=str(tmp_path / "out"), **chosen)
    check_results(tmp_path / "out", scans, chosen)
    assert f"scan-1.h5 -> {tmp_path / 'out' / 'scan-1.dehazed.h5'}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_bundle_runs_from_the_command_line(tmp_path, scans, options):
    pytest.importorskip("fire", reason="python -m monai.bundle needs fire")
    words = {"dataset_dir": scans, "output_dir": tmp_path / "out", **options}
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", str(CONFIG)]
    command += [word for key, value in words.items() for word in (f"--{key}", str(value))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check_results(tmp_path / "out", scans, options)


def test_the_bundles_options_are_those_it_hands_on():
    parser = ConfigParser()
    parser.read_config(str(CONFIG))
    steps = parser["preprocessing"]["transforms"]
    used = {str(value)[1:] for step in steps for value in step.values() if str(value).startswith("@")}
    plain = {key for key, value in parser.config.items() if not isinstance(value, dict | list) and key != "scans"}
    assert used == plain - {"bundle_root", "dataset_dir", "_meta_"}
    meta = json.loads((CONFIG.parent / "metadata.json").read_text())
    assert {"version", "monai_version", "pytorch_version", "numpy_version", "network_data_format"} <= set(meta)


def test_the_python_pipeline_dehazes_before_it_measures(scans, options):
    spec = importlib.util.spec_from_file_location("dehaze_then_segment", PIPELINES / "dehaze_then_segment.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scan = scans / "scan-0.h5"
    item = module.pipeline(**options)({"image": scan})
    tissue = Dehazer.from_pretrained(**options).dehaze(open_cine(scan)).tissue
    enlarged = np.clip(tissue / 60 + 1, 0, 1).repeat(2, axis=1).repeat(2, axis=2)  # 64 -> 128, mode "area"
    np.testing.assert_allclose(item["image"].numpy(), enlarged, atol=1e-6)
    shares = [float((frame < 0.25).mean()) for frame in enlarged]
    assert module.dark_share(item["bright"]) == pytest.approx(shares, abs=1e-3)
    assert 0.1 < shares[0] < 0.9
