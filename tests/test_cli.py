"""The program as a whole: quick help, version, usage errors; info, simulate, validate; the progress bar."""

import errno
import io
import os
import shlex
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import click
import numpy as np
import pytest
from _scans import fan_frames, write
from click.testing import CliRunner
from test_io_result import POLAR, a_result

import usdehaze
from usdehaze.cli import main
from usdehaze.cli.progress import frame_progress
from usdehaze.io import read_truth, write_result

COMMANDS = ["info", "process", "simulate", "tune", "validate", "verify"]


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


@pytest.mark.parametrize("args", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_loads_nothing_heavy(args):
    script = (
        "import sys\nfrom usdehaze.cli import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'monai', 'numpy', 'scipy', 'h5py', 'pydicom', 'PIL', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'loaded {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usdehaze" in done.stdout


def test_the_package_knows_its_names_without_loading_them():
    script = (
        "import sys, usdehaze\n"
        "assert 'open_cine' in dir(usdehaze) and 'numpy' not in sys.modules\n"
        "usdehaze.open_cine, usdehaze.Cine\n"
        "assert 'h5py' in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="module 'usdehaze' has no attribute 'nonsense'"):
        usdehaze.nonsense  # noqa: B018


def test_version_is_that_of_the_package():
    assert run("--version").stdout == f"usdehaze {usdehaze.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ["bogus"],
        ["process"],
        ["info"],
        ["--bogus"],
        ["simulate", "a", "b"],
        ["info", "a.h5", "--max-memory", "nan"],
        ["node", "--max-object", "nan"],
        ["validate", "a.h5", "--roi", "r.json", "--margin", "nan"],
        ["validate", "a.h5", "--margin", "2"],
        ["review", "a.h5", "--labels", "tissue=2 haze=1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_exit_code_2(args):
    done = run(*args)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith("usdehaze: ") and done.stderr.count("\n") == 1 and "--help" in done.stderr


@pytest.mark.parametrize(
    "args", [["info", ""], ["process", "a.h5", "-o", ""], ["validate", "a.h5", "--roi="], [""]], ids=str
)
def test_an_empty_argument_is_never_the_current_folder(args):
    done = run(*args)
    assert done.exit_code == 2 and done.stderr.startswith("usdehaze: an argument is empty;")


def test_info_tells_what_is_in_a_file(tmp_path):
    scan = write(tmp_path / "scan.h5", {"g/cine": fan_frames(3), "g/other": fan_frames(3)})
    done = run("info", scan, "--dataset", "g/cine", "--dynamic-range", 50)
    assert done.exit_code == 0 and done.stderr == ""
    lines = dict(line.strip().split(": ", 1) for line in done.stdout.splitlines()[1:])
    lines = {key: value.strip() for key, value in lines.items()}
    assert lines["layout"] == "HDF5 dataset" and lines["dataset"] == "g/cine"
    assert (lines["frames"], lines["size"]) == ("3", "64 x 64 (rows x columns)")
    assert (lines["dynamic range"], lines["units"], lines["frame rate"]) == ("50 dB", "8-bit", "not in the file")


def test_info_says_when_a_frame_is_taken_as_a_rectangle(tmp_path):
    noise = np.random.default_rng(0).integers(100, 156, (1, 64, 64), dtype=np.uint8)
    done = run("info", write(tmp_path / "scan.h5", {"x": noise}))
    assert "rectangle, no sector" in done.stdout and "taken as a rectangle" in done.stdout


def test_info_on_a_result_tells_how_it_was_made(tmp_path):
    write_result(tmp_path / "scan.dehazed.h5", a_result())
    done = run("info", tmp_path / "scan.dehazed.h5")
    for part in ("usdehaze result", "scan.h5, g/cine", "proximal", "unet-tissue sha256:00ff", "0.2 x 0.3 mm"):
        assert part in done.stdout
    assert "column 31.3, row -3.9" in done.stdout  # apex_y -2.6 columns, rows 2/3 as far apart
    assert "-34.4 degrees to 35.0 degrees" in done.stdout


def test_info_on_a_folder_counts_what_it_could_not_read(tmp_path):
    write(tmp_path / "a.h5", {"x": fan_frames()})
    write(tmp_path / "b.h5", {"x": np.zeros((1, 32, 32), np.uint8)})
    done = run("info", tmp_path)
    assert done.exit_code == 1 and done.stderr.count("\n") == 1 and "b.h5" in done.stderr
    assert done.stdout.splitlines()[-1] == "2 scans, 1 of them unreadable"


@pytest.fixture
def simulator(monkeypatch):
    def simulate_cine(n_frames=8, seed=0):
        hazy, tissue, haze = np.random.default_rng(seed).uniform(-60, 0, (3, n_frames, 16, 12)).astype(np.float32)
        times, labels = np.arange(n_frames) / 50, np.full(hazy.shape, 2, np.uint8)
        return SimpleNamespace(
            hazy=hazy,
            tissue=tissue,
            haze=haze,
            labels=labels,
            geometry=POLAR,
            frame_times_s=times,
            dynamic_range_db=60.0,
            seed=seed,
        )

    monkeypatch.setattr("usdehaze.simulate.simulate_cine", simulate_cine, raising=False)


def test_simulate_writes_a_scan_with_its_truth_that_info_can_read(tmp_path, simulator):
    out = tmp_path / "new" / "s.h5"
    assert run("simulate", out, "--frames", 5, "--seed", 9).exit_code == 0
    truth = read_truth(out)
    assert (truth.tissue.shape, truth.seed) == ((5, 16, 12), 9)
    shown = run("info", out).stdout
    for part in ("usdehaze simulation", "polar, 5 to 150 mm, -37.2 degrees to 37.2 degrees", "50 frames/s"):
        assert part in shown


def test_simulate_keeps_a_file_that_exists(tmp_path, simulator):
    (tmp_path / "s.h5").write_bytes(b"precious")
    done = run("simulate", tmp_path / "s.h5")
    assert done.exit_code == 1 and done.stderr.count("\n") == 1 and "--overwrite" in done.stderr
    assert (tmp_path / "s.h5").read_bytes() == b"precious"
    assert run("simulate", tmp_path / "s.h5", "--overwrite", "--quiet").output == ""
    assert len(read_truth(tmp_path / "s.h5").haze) == 8


def test_simulate_names_a_folder_that_is_no_file(tmp_path, simulator, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("simulate", ".")
    assert done.exit_code == 1 and done.stderr == "usdehaze: .: is a folder; expected the name of a file\n"


def test_validate_hands_its_options_on_and_returns_the_exit_code(monkeypatch, tmp_path):
    asked = {}
    module = ModuleType("usdehaze.validation.command")

    def validate(results, gcnr, gcnr_bins, roi, json_path, report, quiet, echo, *others):
        asked.update(results=results, gcnr=gcnr, bins=gcnr_bins, roi=roi, json=json_path, report=report, quiet=quiet)
        echo("a table")
        return 1

    module.run = validate
    monkeypatch.setitem(sys.modules, "usdehaze.validation.command", module)
    one, roi = tmp_path / "a.h5", tmp_path / "r.json"
    done = run("--quiet", "validate", "--gcnr", one, "--roi", roi, "--json", "m.json", "--gcnr-bins", 256)
    assert (done.exit_code, done.stdout) == (1, "a table\n")
    assert (asked["results"], asked["gcnr"], asked["bins"], asked["roi"]) == ([one], True, 256, roi)
    assert (str(asked["json"]), asked["report"], asked["quiet"]) == ("m.json", None, True)
    assert run("validate").exit_code == 1 and (asked["results"], asked["gcnr"], asked["bins"]) == ([], False, None)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_frames_a_second_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with frame_progress("scan.h5", 10, quiet=False) as update:
        update(4, 10)
        update(10, 10)
    shown = sys.stderr.getvalue()
    assert "scan.h5" in shown and "4/10" in shown and "10/10" in shown and "frames/s" in shown


def test_progress_is_silent_without_a_terminal_and_when_quiet(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with frame_progress("scan.h5", 10, quiet=False) as update:
        assert update is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with frame_progress("scan.h5", 10, quiet=True) as update:
        assert update is None
    assert sys.stderr.getvalue() == ""


def test_nobody_reading_on_is_no_error(tmp_path):
    for index in range(6):
        write(tmp_path / f"{index:02d}.h5", {"x": fan_frames(1, 24, 24)})
    program = [sys.executable, "-c", "from usdehaze.cli import main; main()", "info", str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""


def test_a_full_disk_under_the_output_is_named(tmp_path, monkeypatch):
    real = click.echo

    def full(message, err=False):
        if not err:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(message, err=err)

    monkeypatch.setattr(click, "echo", full)
    done = run("info", write(tmp_path / "a.h5", {"x": fan_frames(1, 24, 24)}))
    assert done.exit_code == 1
    assert done.stderr == "usdehaze: standard output cannot be written (No space left on device)\n"


@pytest.mark.skipif(os.name == "nt", reason="the shell's way of closing a stream")
def test_streams_that_are_closed_or_lack_a_letter_stop_nothing(tmp_path):
    for name in ("a\u4e2d.h5", "b.h5"):
        write(tmp_path / name, {"x": fan_frames(1, 24, 24)})
    program = shlex.join([sys.executable, "-c", "from usdehaze.cli import main; main()", "info", str(tmp_path)])
    latin = {**os.environ, "PYTHONIOENCODING": "latin1"}
    told = subprocess.run(program, shell=True, capture_output=True, text=True, env=latin)
    assert told.returncode == 0 and "a\\u4e2d.h5" in told.stdout and "b.h5" in told.stdout and told.stderr == ""
    assert subprocess.run(program + " 2>&-", shell=True, capture_output=True).returncode == 0
