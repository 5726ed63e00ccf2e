"""``usdehaze tune``: the preset it writes, that ``process`` takes it, and what it refuses."""

import sys

import numpy as np
import pytest
from _scans import fan_frames, write
from _tiny_priors import write_tiny_priors
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.io import read_result, write_simulation
from usdehaze.simulate import simulate_cine

QUICK = ("--trials", 5, "--frames", 2, "--max-steps", 5, "--device", "cpu")


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A simulated scan and tiny priors."""
    path = tmp_path_factory.mktemp("tune")
    write_simulation(path / "scan.h5", simulate_cine(2, seed=1_200_000_000, n_depth=32, n_angle=32))
    write_tiny_priors(path)
    return path


def tuned(folder, out, *options):
    priors = (f"--{kind}-prior={folder / f'{kind}.safetensors'}" for kind in ("tissue", "haze"))
    return run("tune", folder / "scan.h5", "-o", out, *QUICK, *priors, *options)


def test_process_takes_the_preset_and_runs_its_settings(folder, tmp_path):
    done = tuned(folder, tmp_path / "p.yaml", "--guidance", "projection", "--seed", 3)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("\n") == 1 and "PSNR of tissue, dB: " in done.stdout and " on 2 frames" in done.stdout
    assert done.stderr == f"usdehaze: {tmp_path / 'p.yaml'} is a fit to 2 frames, not a test: " + (
        "measure it on others before you trust it\n"
    )
    text = (tmp_path / "p.yaml").read_text()
    assert "scan" not in text and str(folder) not in text.split("tissue-prior")[0]
    lines = dict(line.split(": ") for line in text.splitlines() if not line.startswith("#"))
    assert (lines["guidance"], lines["observation"], lines["seed"]) == ("projection", "additive", "3")

    assert run("process", folder / "scan.h5", "-o", tmp_path, "--config", tmp_path / "p.yaml").exit_code == 0
    attrs = read_result(tmp_path / "scan.dehazed.h5").attrs
    for name in ("preset", "guidance", "observation", "sampler", "steps", "strength", "seed"):
        assert str(attrs[name]) == lines[name]
    assert np.array_equal(attrs["scale"], [float(lines["lambda"]), float(lines["kappa"])])
    assert attrs["tissue_prior"].startswith("tiny-tissue")
    after = float(text.split(" before, ")[1].split(" after")[0])
    assert float(done.stdout.split(" -> ")[1].split(" ")[0]) == pytest.approx(after, abs=1e-3)


def test_the_same_seed_gives_the_same_preset(folder, tmp_path):
    for name in ("a.yaml", "b.yaml"):
        assert tuned(folder, tmp_path / name, "--quiet").output == ""
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()


def test_a_preset_that_exists_is_kept_unless_it_may_be_overwritten(folder, tmp_path):
    (tmp_path / "p.yaml").write_text("precious")
    done = tuned(folder, tmp_path / "p.yaml")
    assert done.exit_code == 1 and "p.yaml: exists already" in done.stderr and done.stderr.count("\n") == 1
    assert (tmp_path / "p.yaml").read_text() == "precious"
    assert tuned(folder, tmp_path / "p.yaml", "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 1, "scan.h5: its true tissue is not known; expected a file of usdehaze simulate; draw regions"),
        (("--roi", "auto"), 2, "nothing can be tuned on"),
        (("--roi", "nowhere.json"), 1, "nowhere.json: cannot be read"),
        (("--labels", "tissue=1 haze=2"), 2, "--labels and --margin are for --roi"),
        (("--trials", 0), 2, "'--trials': 0 is not in the range"),
        (("--guidance", "magic"), 2, "'magic' is not one of"),
        (("--dataset", "nothing"), 1, "nothing"),
    ],
)
def test_what_cannot_be_tuned_on_is_one_line(tmp_path, options, code, message):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    done = run("tune", scan, "-o", tmp_path / "p.yaml", *options)
    assert done.exit_code == code and message in done.stderr
    assert done.stderr.startswith("usdehaze: ") and done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["scan.h5"]


def test_the_preset_never_replaces_a_scan(tmp_path):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    before = scan.read_bytes()
    done = run("tune", scan, "-o", scan, "--overwrite")
    assert done.exit_code == 2 and "is a scan; choose another -o" in done.stderr and scan.read_bytes() == before


def test_the_preset_never_replaces_the_regions_that_it_is_tuned_on(tmp_path):
    scan, roi = write(tmp_path / "scan.h5", {"x": fan_frames()}), tmp_path / "r.json"
    roi.write_text("{}")
    done = run("tune", scan, "-o", roi, "--roi", roi, "--overwrite")
    assert done.exit_code == 1 and "r.json: would be replaced, and is what it is made from" in done.stderr
    assert roi.read_text() == "{}"


def test_without_optuna_one_line_says_what_to_install(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = tuned(folder, tmp_path / "p.yaml")
    assert done.exit_code == 1 and done.stderr == (
        'usdehaze: tuning needs Optuna; get it with: pip install "usdehaze[tune]"\n'
    )
