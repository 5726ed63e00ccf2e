"""Runs of ``process`` that are killed, one after the other, in forks of one process; run as a script.

    python tests/_kills.py FOLDER KILLS TERMINATIONS [mp4]

A DICOM cine is dehazed with every kind of output, by something quick in the place of the dehazer. Runs are killed after
each rename and at random moments, over nothing and over the set of another run; a run that is left alone follows.
Prints what became of them as JSON, or fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
from _dicom import write_dicom
from _scans import fan_frames

from usdehaze.__main__ import main
from usdehaze.io import read_result
from usdehaze.io.runs import run_of
from usdehaze.result import Result
from usdehaze.stopping import at_once

N_FRAMES, REMOVED_DB = 12, {0: 1.0, 1: 2.0}  # by the seed


class Dehazer:
    """Takes off as many dB as the seed says."""

    group = 1

    def __init__(self, seed: int = 0, **_: object) -> None:
        self.seed = seed

    def dehaze(self, cine, progress=None):
        tissue = np.maximum(cine.frames - REMOVED_DB[self.seed], -60).astype(np.float32)
        time.sleep(0.01)
        return Result(cine, tissue, tissue, None, {"seed": self.seed})


module = sys.modules["usdehaze.dehazing.dehazer"] = ModuleType("usdehaze.dehazing.dehazer")
module.Dehazer = SimpleNamespace(from_pretrained=Dehazer)
for name in ("io.dicom", "io.hdf5", "io.zea", "preview", "review"):  # what a run would import is there already
    import_module(f"usdehaze.{name}")
import_module("usdehaze.cli.process").Worker._chunk = lambda *_: 2


class Runs:
    """Runs on one scan, whose results lie in ``folder/out``."""

    def __init__(self, folder: Path, preview: str) -> None:
        self.scan = write_dicom(folder / "scan.dcm", fan_frames(N_FRAMES))
        self.out, self.log = folder / "out", folder / "log.txt"
        kinds = ["h5", "dcm", "haze.dcm", "zea.hdf5", preview]
        self.files = sorted([*(self.out / f"scan.dehazed.{kind}" for kind in kinds), self.out / "scan.review.html"])
        self.options = ["--preview", preview, "--save-haze", "--format", "zea", "--review"]

    def start(self, seed: int, *more: str, renames: int | None = None) -> int:
        """Process ID of a run; it kills itself after so many renames."""
        pid = os.fork()
        if pid:
            return pid
        sys.argv = [
            "usdehaze",
            "process",
            str(self.scan),
            "-o",
            str(self.out),
            "--seed",
            str(seed),
            *self.options,
            *more,
        ]
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1), os.dup2(handle, 2)
        plain, done = os.replace, []

        def replace(*names):
            plain(*names)
            done.append(names)
            if len(done) == renames:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace
        try:
            main()
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        os._exit(1)

    def wait(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def told(self) -> str:
        return self.log.read_text()

    def left(self) -> list[Path]:
        return sorted(self.out.iterdir()) if self.out.is_dir() else []

    def runs(self) -> dict[str, str | None]:
        """The run that made each file that is there."""
        return {path.name: run_of(path) for path in self.files if path.exists()}

    def check_whole(self, seed: int) -> None:
        """Every file is there, of one run, and nothing else; the values are those of the seed."""
        assert self.left() == self.files, (self.left(), self.told())
        assert len(set(self.runs().values())) == 1 and None not in self.runs().values(), self.runs()
        result = read_result(self.files[self.files.index(self.out / "scan.dehazed.h5")])
        assert np.array_equal(result.tissue, np.maximum(result.input - REMOVED_DB[seed], -60).astype(np.float32))

    def begin(self, over: bool) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if over:
            assert self.wait(self.start(0)) == 0, self.told()
            self.check_whole(0)


def kill_and_rerun(runs: Runs, over: bool, renames: int | None, after_s: float, outcomes: Counter[str]) -> None:
    """One run of seed 1 that is killed, and one that follows."""
    runs.begin(over)
    options = ["--overwrite"] if over else []
    pid = runs.start(1, *options, renames=renames)
    if renames is None:
        time.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    code = runs.wait(pid)
    made = runs.runs()
    state = "whole" if len(made) == len(runs.files) and len(set(made.values())) == 1 else "mixed" if made else "none"
    if over and state == "whole" and set(made.values()) != {runs_of(runs, 1)}:
        state = "old"
    outcomes[f"{'killed' if code else 'done'}, {state}"] += 1
    assert len(made) == len(runs.files) or not over, made  # nothing that was there is lost
    left = [path for path in runs.left() if path.suffix == ".part"]
    outcomes["left parts"] += bool(left)
    listed = (runs.out / ".scan.dehazed.h5.set").exists()
    outcomes["between names"] += listed
    complete = listed or (state == "whole" and not over)
    again = runs.wait(runs.start(1, *options))
    if not over and complete and not listed:  # it was done
        assert again == 1 and "exists already" in runs.told(), runs.told()
    else:
        assert again == 0, runs.told()
        assert ("complete already" in runs.told()) == listed, runs.told()
        assert listed or bool(left) == ("removed what a killed run had begun" in runs.told()), (left, runs.told())
    runs.check_whole(1)


_known: dict[int, str] = {}


def runs_of(runs: Runs, seed: int) -> str:
    """The name of the run of a seed."""
    if seed not in _known:
        keep = runs.out.with_name("kept")
        runs.out.rename(keep)
        assert runs.wait(runs.start(seed)) == 0
        _known[seed] = next(iter(set(runs.runs().values())))
        shutil.rmtree(runs.out)
        keep.rename(runs.out)
    return _known[seed]


def terminate(runs: Runs, number: int, after_s: float, outcomes: Counter[str]) -> None:
    """One run that is told to stop."""
    runs.begin(False)
    pid = runs.start(1)
    time.sleep(after_s)
    os.kill(pid, number)
    code, told = runs.wait(pid), runs.told()
    outcomes[f"told to stop, {code}"] += 1
    assert code in (0, 128 + number), (code, told)
    assert "Traceback" not in told and "Exception" not in told, told
    if code:
        *before, last = told.splitlines()
        assert last == "usdehaze: stopped" and all(
            line.startswith("usdehaze: ") or " -> " in line for line in before
        ), told
        if runs.left():  # only just done, or in the middle of its names: the next run sees to it
            assert runs.left() == runs.files or (runs.out / ".scan.dehazed.h5.set").exists(), runs.left()
    else:
        runs.check_whole(1)


def run(folder: Path, n_kills: int, n_terms: int, preview: str = "gif") -> dict[str, int]:
    """Counts of what became of the runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, at_once)  # a fork is told to stop before it has begun, too
    runs, outcomes, rng = Runs(folder, preview), Counter[str](), random.Random(0)
    began = time.monotonic()
    assert runs.wait(runs.start(1)) == 0, runs.told()
    whole_s = time.monotonic() - began
    runs.check_whole(1)
    _known[1] = next(iter(set(runs.runs().values())))
    cases = [(over, renames) for over in (False, True) for renames in range(1, len(runs.files) + 1)]
    if n_kills < len(cases):
        cases = rng.sample(cases, n_kills)
    for over, renames in cases:
        kill_and_rerun(runs, over, renames, 0, outcomes)
    for index in range(n_kills - len(cases)):
        kill_and_rerun(runs, bool(index % 2), None, whole_s * rng.uniform(0, 1.1), outcomes)
    for index in range(n_terms):
        terminate(runs, (signal.SIGTERM, signal.SIGINT)[index % 2], whole_s * rng.uniform(0, 1.1), outcomes)
    return dict(outcomes)


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])))
