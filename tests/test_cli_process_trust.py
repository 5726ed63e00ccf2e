"""``process`` may be killed, run out of disk, or meet another run: results stay whole, errors are one line."""

import json
import os
import subprocess
import sys

import pytest
from _scans import fan_frames, write
from _tiny_priors import write_tiny_priors
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.io import read_result
from usdehaze.io.atomic import PartFile

KILLS = """
import contextlib, io, json, os, random, signal, sys, time
import torch
torch.set_num_threads(1)
import usdehaze.dehazing.dehazer, usdehaze.preview, usdehaze.io.zea  # what a process would import is there already
from usdehaze.cli import main
from usdehaze.io import read_result
arguments, result, n_kills = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def start():
    pid = os.fork()
    if pid == 0:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            try:
                main(arguments)
            except SystemExit as end:
                os._exit(end.code or 0)
    return pid

began = time.monotonic()
assert os.waitpid(start(), 0)[1] == 0
whole_s = time.monotonic() - began
outcomes = {"none": 0, "whole": 0, "parts": 0}
for index in range(n_kills):
    with contextlib.suppress(FileNotFoundError):
        os.remove(result)
    pid = start()
    time.sleep(whole_s * random.Random(index).uniform(0.02, 1.1))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if os.path.exists(result):
        assert len(read_result(result).tissue) == 6
        outcomes["whole"] += 1
    else:
        outcomes["none"] += 1
    outcomes["parts"] += any(name.endswith(".part") for name in os.listdir(os.path.dirname(result)))
with contextlib.suppress(FileNotFoundError):
    os.remove(result)
assert os.waitpid(start(), 0)[1] == 0
print(json.dumps(outcomes))
"""


@pytest.fixture
def arguments(tmp_path):
    """Arguments of ``process`` with tiny priors; the scan is ``tmp_path/scan.h5``, results go to ``tmp_path/out``."""
    scan = write(tmp_path / "scan.h5", {"x": fan_frames(6)})
    options = write_tiny_priors(tmp_path)
    priors = [f"--{kind}-prior={options[f'{kind}_prior']}" for kind in ("tissue", "haze")]
    return ["process", str(scan), "-o", str(tmp_path / "out"), "--steps=2", "--device=cpu", *priors]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_at_20_random_moments_it_leaves_a_whole_result_or_none_and_the_next_run_succeeds(tmp_path, arguments):
    result = tmp_path / "out" / "scan.dehazed.h5"
    options = [*arguments, "--overwrite", "--preview=gif"]
    done = subprocess.run(
        [sys.executable, "-c", KILLS, json.dumps(options), str(result), "20"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes["none"] + outcomes["whole"] == 20 and outcomes["none"] >= 3
    assert outcomes["parts"] >= 1  # some were killed while they wrote
    assert sorted(os.listdir(tmp_path / "out")) == ["scan.dehazed.gif", "scan.dehazed.h5"]
    assert len(read_result(result).tissue) == 6


LIMITED = """
import json, os, resource, sys
from types import ModuleType, SimpleNamespace
import usdehaze.io.zea, usdehaze.preview
from usdehaze.cli import main
from usdehaze.result import Result

class Dehazer:  # what is written is what matters
    group = 1

    def dehaze(self, cine, progress=None):
        return Result(cine, cine.frames, cine.frames, None, {"seed": 0})

sys.modules["usdehaze.dehazing.dehazer"] = ModuleType("usdehaze.dehazing.dehazer")
sys.modules["usdehaze.dehazing.dehazer"].Dehazer = SimpleNamespace(from_pretrained=lambda **_: Dehazer())
for limit in map(int, sys.argv[2:]):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            main(json.loads(sys.argv[1]))
        except SystemExit as end:
            os._exit(end.code or 0)
    print(limit, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("extra", [[], ["--preview=gif"], ["--format=zea"]], ids=["result", "gif", "zea"])
def test_a_disk_that_fills_up_gives_one_line_and_leaves_nothing(tmp_path, arguments, extra):
    limits = [100, 1000, 5000, 20_000, 40_000, 60_000]
    command = [sys.executable, "-c", LIMITED, json.dumps([*arguments, *extra]), *map(str, limits)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(value) for limit in limits for value in (limit, 1)], done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(limits), done.stderr
    assert all(line.startswith("usdehaze: ") and "cannot be written (File too large)" in line for line in lines)
    assert not (tmp_path / "out").exists()


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_two_runs_on_one_output_are_one_line_for_the_second(tmp_path, arguments):
    other = PartFile(tmp_path / "out" / "scan.dehazed.h5")
    done = run(*arguments)
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert "scan.dehazed.h5: is being written by another run; wait for it, or write elsewhere with -o" in done.stderr
    assert other.path.exists()  # the first run's file is left alone
    other.discard()
    assert run(*arguments).exit_code == 0 and os.listdir(tmp_path / "out") == ["scan.dehazed.h5"]


def test_what_a_killed_run_left_behind_is_in_nobodys_way(tmp_path, arguments):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".scan.dehazed.h5.part").write_bytes(b"half of a result" * 1000)
    assert run(*arguments).exit_code == 0
    assert os.listdir(tmp_path / "out") == ["scan.dehazed.h5"]


def test_a_folder_without_permission_is_one_line_before_any_work(tmp_path, arguments, monkeypatch):
    (tmp_path / "out").mkdir()
    plain = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: plain(path, mode) and str(path) != str(tmp_path / "out"))
    done = run(*arguments)
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert f"no permission to write in {tmp_path / 'out'}" in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_line(tmp_path, arguments):
    (tmp_path / "out").mkdir(mode=0o500)
    done = run(*arguments)
    assert done.exit_code == 1 and "no permission to write" in done.stderr
