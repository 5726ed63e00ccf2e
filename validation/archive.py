"""What ``usdehaze archive`` stands: growth, shapes, one and two workers, killed workers, a killed run.

    python -m validation.archive [--scans 10 100 1000 5000] [--only growth,shapes,killed,resumed] [--quick]

Small simulated scans under the shipped posterior, on a Ray of each run's own. Writes ARCHIVE.md and archive.json into
``results``, with ``--quick`` (8 and 16 scans) into ``runs``. Needs the extra ``archive``; two workers want a core each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdehaze.archive.manifest import Manifest
from usdehaze.archive.store import Store
from usdehaze.simulate import simulate_cine
from validation.markdown import head, row
from validation.paths import RESULTS, RUNS

PARTS = ("growth", "shapes", "killed", "resumed")
WORKER = b"ray::MapWorker(Map(Worker"  # what Ray calls the processes of the pool
TEN_MILLION = 10_000_000
SIDE = 64  # samples of a frame, depth and angle
LENGTHS, SIDES = (1, 10, 100, 1000, 10_000), (64, 128, 256, 512, 1024)  # frames of that side; sides, of four frames
DIFFERENT = 16  # cines; scans beyond so many are copies, which are read and dehazed all the same


class Archive:
    """Scans in a folder, and what becomes of them.

    Args:
        folder: for scans and results.
        shapes: of the scans, ``(T, depth, angle)``; those beyond `DIFFERENT` are copies of the first.
    """

    def __init__(self, folder: Path, shapes: list[tuple[int, int, int]]) -> None:
        self.scans, self.out, self.n_scans = folder / "in", folder / "out", len(shapes)
        for number, (n_frames, depth, angle) in enumerate(shapes):
            path = self.scans / f"{number // 100:04}" / f"{number:06}.h5"
            path.parent.mkdir(parents=True, exist_ok=True)
            if number >= DIFFERENT:
                shutil.copyfile(self.scans / "0000" / f"{number % DIFFERENT:06}.h5", path)
                continue
            cine = simulate_cine(min(n_frames, 4), 1_300_000_000 + number, n_depth=depth, n_angle=angle).cine
            levels = np.asarray((cine.frames + 60) / 60 * 255, np.uint8)
            with h5py.File(path, "w") as file:
                frames = file.create_dataset("cine", (n_frames, depth, angle), np.uint8)
                for first in range(0, n_frames, len(levels)):
                    frames[first : first + len(levels)] = levels[: n_frames - first]

    @staticmethod
    def alike(folder: Path, n_scans: int, n_frames: int) -> Archive:
        """So many scans of one shape."""
        return Archive(folder, [(n_frames, SIDE, SIDE)] * n_scans)

    def start(self, workers: int, preset: str) -> subprocess.Popen[str]:
        """The command, at work."""
        command = [sys.executable, "-m", "usdehaze", "archive", str(self.scans), "--out", str(self.out)]
        command += ["--workers", str(workers), "--device", "cpu", "--preset", preset, "--rectangle"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def results(self) -> dict[str, int]:
        """Every result, and when it was written, ns."""
        return {str(path.relative_to(self.out)): path.stat().st_mtime_ns for path in self.out.rglob("*.dehazed.h5")}

    def account(self) -> dict[str, Any]:
        """What the manifest says, held against the scans and the files."""
        rows = list(Manifest(Store(str(self.out))).rows())
        parts = list((self.out / "manifest").glob("*.parquet"))
        told = [name for row in rows for name in row.results]
        exact = sorted(told) == sorted(self.results()) and len({row.source for row in rows}) == len(rows)
        return {
            "outcomes": dict(Counter(row.outcome for row in rows)),
            "exact": exact and len(rows) == self.n_scans == len(told),
            "manifest_bytes": sum(part.stat().st_size for part in parts),
            "parts": len(parts),
            "work_s": sum(row.seconds for row in rows),
        }


def watched(process: subprocess.Popen[str], act: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Waits for a command to end, calls ``act`` meanwhile, and tells how long it took and what memory it held, MiB."""
    began, driver, worker = time.monotonic(), 0.0, 0.0
    while process.poll() is None:
        driver = max(driver, _mebibytes(process.pid))
        worker = max([worker, *(_mebibytes(pid) for pid in workers_of(process.pid))])
        act()
        time.sleep(0.2)
    seconds = time.monotonic() - began
    said, errors = process.communicate()
    return {
        "seconds": round(seconds, 2), "driver_mib": round(driver), "worker_mib": round(worker),
        "code": process.returncode, "said": said.strip(), "errors": errors.strip(),
    }  # fmt: skip


def workers_of(pid: int) -> list[int]:
    """Processes of the pool among those that a command started, the youngest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []).append(
                    int(entry.name)
                )
            except OSError:
                continue
    below = list(_descendants(pid, parents))
    return sorted((p for p in below if _title(p).startswith(WORKER)), reverse=True)


def bind(pid: int) -> None:
    """Gives each worker of a command, with all of its threads, one core alone; others may still work there."""
    for core, worker in zip(sorted(os.sched_getaffinity(0)), sorted(workers_of(pid)), strict=False):
        with suppress(OSError):  # it has just ended
            for thread in Path(f"/proc/{worker}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})


def growth(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Scans of several numbers under one and two workers, and each archive again once all of it is done."""
    found = []
    for n_scans in options.scans:
        for workers in (1, 2):
            archive = Archive.alike(folder / f"{n_scans}-{workers}", n_scans, options.frames)
            process = archive.start(workers, options.preset)
            run = watched(process, partial(bind, process.pid) if options.own_cores else lambda: None)
            again = watched(archive.start(workers, options.preset))
            found.append(
                {"scans": n_scans, "workers": workers, **run, "again_s": again["seconds"], **archive.account()}
            )
            _say("growth", found[-1])
            shutil.rmtree(folder / f"{n_scans}-{workers}")
    return found


def shapes(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Scans of growing length and size under one worker: seconds of each, reading and writing included."""
    lengths, sides = (LENGTHS[:2], SIDES[:2]) if options.quick else (LENGTHS, SIDES)
    wanted = [(n, SIDE, SIDE) for n in lengths] + [(4, side, side) for side in sides]
    archive = Archive(folder / "shapes", wanted)
    run = watched(archive.start(1, options.preset))
    rows = sorted(Manifest(Store(str(archive.out))).rows(), key=lambda row: row.source)
    each = [{"shape": shape, "seconds": row.seconds} for shape, row in zip(wanted, rows, strict=True)]
    record = {"scans": len(wanted), "workers": 1, **run, "each": each, **archive.account()}
    _say("shapes", record)
    return [record]


def killed(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Two workers, of which the youngest is killed whenever so many results have come."""
    n_scans = max(options.scans) if options.quick else options.kill_scans
    archive, kills = Archive.alike(folder / "killed", n_scans, options.frames), 0
    process = archive.start(2, options.preset)

    def act() -> None:
        nonlocal kills
        if kills < options.kills and len(archive.results()) >= (kills + 1) * n_scans / (options.kills + 1):
            for pid in workers_of(process.pid)[:1]:
                os.kill(pid, signal.SIGKILL)
                kills += 1

    record = {"scans": n_scans, "workers": 2, **watched(process, act), "kills": kills, **archive.account()}
    _say("killed", record)
    return [record]


def resumed(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The command itself killed at a third of the work, and started again."""
    n_scans = max(options.scans) if options.quick else options.kill_scans
    archive = Archive.alike(folder / "resumed", n_scans, options.frames)
    process = archive.start(2, options.preset)

    def act() -> None:
        if len(archive.results()) >= n_scans / 3:
            process.kill()

    watched(process, act)
    time.sleep(5)  # its workers end with it
    before = archive.results()
    run = watched(archive.start(2, options.preset))
    after = archive.results()
    repeated = sum(after.get(name) != when for name, when in before.items())
    record = {"scans": n_scans, "workers": 2, **run, "before": len(before), "repeated": repeated, **archive.account()}
    _say("resumed", record)
    return [record]


def model(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Least squares of ``seconds = start + scan * scans / workers``, and what ten million scans then come to.

    Beside it, the same for each number of workers alone: how many times as fast two take scan after scan.
    """
    if len({run["scans"] for run in runs}) < 2:
        return {}
    loads = np.array([run["scans"] / run["workers"] for run in runs])
    design = np.stack([np.ones_like(loads), loads], axis=1)
    (start, scan), *_ = np.linalg.lstsq(design, np.array([run["seconds"] for run in runs]), rcond=None)
    largest = max(runs, key=lambda run: run["scans"])
    one, two = (_slope([run for run in runs if run["workers"] == n]) for n in (1, 2))
    return {
        "start_s": round(float(start), 2),
        "scan_s": round(float(scan), 4),
        "two_workers_to_one": round(one / two, 2),
        "bytes_a_row": round(largest["manifest_bytes"] / largest["scans"], 1),
        "worker_hours_of_ten_million": round(float(scan) * TEN_MILLION / 3600, 1),
        "manifest_gb_of_ten_million": round(largest["manifest_bytes"] / largest["scans"] * TEN_MILLION / 1e9, 2),
    }


def _slope(runs: list[dict[str, Any]]) -> float:
    """Seconds a scan."""
    return float(np.polyfit([run["scans"] for run in runs], [run["seconds"] for run in runs], 1)[0])


def table(found: dict[str, Any]) -> str:
    """The record in Markdown."""
    names = ("scans", "workers", "seconds", "scans a minute", "again, s", "driver, worker MiB", "outcomes", "exact")
    lines = ["# Archives", "", f"`python -m validation.archive`, {found['machine']}.", "", *head("part", names)]
    for part in PARTS:
        for run in found.get(part, []):
            outcomes = ", ".join(f"{n} {outcome}" for outcome, n in run["outcomes"].items())
            outcomes += "".join(f"; {run[key]} {key}" for key in ("kills", "repeated") if key in run)
            lines.append(
                row(part, [
                    str(run["scans"]), str(run["workers"]), f"{run['seconds']:.1f}",
                    f"{60 * run['scans'] / run['seconds']:.1f}", f"{run['again_s']:.1f}" if "again_s" in run else "",
                    f"{run['driver_mib']}, {run['worker_mib']}", outcomes, "yes" if run["exact"] else "NO",
                ])
            )  # fmt: skip
    each = [scan for run in found.get("shapes", []) for scan in run["each"]]
    if each:
        lines += ["", *head("frames x depth x angle", ("seconds", "seconds a frame"))]
    for scan in each:
        seconds = scan["seconds"]
        lines.append(row(" x ".join(map(str, scan["shape"])), [f"{seconds:.2f}", f"{seconds / scan['shape'][0]:.3f}"]))
    lines += ["", *(f"- {name.replace('_', ' ')}: {value:g}" for name, value in found.get("model", {}).items())]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, nargs="+", default=[10, 100, 1000, 5000], help="numbers of scans")
    parser.add_argument("--kill-scans", type=int, default=2000, help="scans of the parts with kills")
    parser.add_argument("--kills", type=int, default=3, help="workers killed")
    parser.add_argument("--frames", type=int, default=1, help="of a scan")
    parser.add_argument("--preset", default="preview")
    parser.add_argument("--own-cores", action="store_true", help="growth: each worker bound to one core")
    parser.add_argument("--only", default=",".join(PARTS), help="parts")
    parser.add_argument("--quick", action="store_true", help="8 and 16 scans, one kill")
    options = parser.parse_args()
    if options.quick:
        options.scans, options.kills = [8, 16], 1
    found: dict[str, Any] = {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}",
        "settings": {"preset": options.preset, "frames": options.frames, "side": SIDE, "own cores": options.own_cores},
    }
    measure = {"growth": growth, "shapes": shapes, "killed": killed, "resumed": resumed}
    with tempfile.TemporaryDirectory(prefix="usdehaze-study-") as folder:
        for part in options.only.split(","):
            found[part] = measure[part](Path(folder), options)
            found["model"] = model(found.get("growth", []))
            where = RUNS if options.quick else RESULTS
            where.mkdir(parents=True, exist_ok=True)
            (where / "archive.json").write_text(json.dumps(found, indent=1) + "\n")
            (where / "ARCHIVE.md").write_text(table(found))
    print(table(found))


def _descendants(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    for child in children.get(pid, []):
        yield child
        yield from _descendants(child, children)


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _mebibytes(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 2**10
    except (OSError, IndexError):
        return 0.0


def _say(part: str, record: dict[str, Any]) -> None:
    print(part, json.dumps(record), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
