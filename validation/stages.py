"""Where the time of ``usdehaze process`` goes, CPU seconds over all threads: ``python -m validation.stages``.

A row is a step, without the steps inside it; "the rest" is the whole less the rows. Start-up and imports are left out.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import h5py
import torch
from click.testing import CliRunner

from usdehaze.cli import main as usdehaze
from usdehaze.cli.process import Worker
from usdehaze.dehazing import chain, dehazer
from usdehaze.engines.onnxruntime import OnnxRuntimeEngine
from usdehaze.engines.openvino import OpenVinoEngine
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import grid
from usdehaze.io import result as results
from usdehaze.io import scan as scans
from usdehaze.priors.posterior import LearnedPosterior

# Each step, and the functions that are its own work.
STEPS: tuple[tuple[str, tuple[tuple[Any, str], ...]], ...] = (
    ("open the scan", ((Worker, "_open"),)),
    ("load the networks", ((Worker, "load"),)),
    ("read frames", ((scans.Scan, "read"),)),
    ("sector and maps", ((dehazer, "make_mapper"),)),
    ("to the model grid", ((grid.Mapper, "to_model"),)),
    ("network", ((LearnedPosterior, "forward"), (OnnxRuntimeEngine, "__call__"), (OpenVinoEngine, "__call__"))),
    ("samples around it", ((chain.LearnedChain, "sample"),)),
    ("decision", ((dehazer.Dehazer, "_decide"),)),
    ("back to native pixels", ((grid.Mapper, "from_model"), (grid.Mapper, "apply_gain"))),
    ("result file", ((results.ResultWriter, "_append"), (results.ResultWriter, "_close"))),
)


class Clock:
    """CPU seconds by step, over all threads."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = threading.local()
        self._lock = threading.Lock()

    def timed(self, step: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; its time, but for that of timed ones inside, counts for the step."""

        @wraps(work)
        def run(*args: Any, **options: Any) -> Any:
            outer, self._inner.spent = getattr(self._inner, "spent", 0.0), 0.0
            began = time.thread_time()
            try:
                return work(*args, **options)
            finally:
                whole = time.thread_time() - began
                with self._lock:
                    self.seconds[step] += whole - self._inner.spent
                self._inner.spent = outer + whole

        return run


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scan", nargs="?", type=Path, help="a scan of one's own (simulated, 256 x 256 pixels)")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--engine", default="torch")
    args = parser.parse_args()
    torch.set_num_threads(1)  # a thread's own clock sees the whole of a pass
    with tempfile.TemporaryDirectory() as folder:
        scan = args.scan or simulated(Path(folder) / "scan.h5", args.frames)
        options = ["--preset", args.preset, "--engine", args.engine, "--frames", f"0:{args.frames}", "--overwrite"]
        print("\n".join(table(*measured([str(scan), "-o", folder, *options]), args.frames)))


def simulated(path: Path, n_frames: int) -> Path:
    """A simulated cine as polar frames of 256 x 256."""
    from usdehaze.simulate import simulate_cine

    cine = simulate_cine(n_frames, seed=3, n_depth=256, n_angle=256)
    with h5py.File(path, "w") as file:
        file["frames"] = cine.hazy
    return path


def measured(arguments: list[str]) -> tuple[dict[str, float], float]:
    """CPU seconds by step, and in all, of ``usdehaze process`` with these arguments; networks are loaded twice.

    Raises:
        UsdehazeError: the command failed.
    """
    runner = CliRunner()

    def run() -> None:
        told = runner.invoke(usdehaze, ["process", *arguments])
        if told.exit_code:
            raise UsdehazeError(told.output.strip().splitlines()[-1] if told.output.strip() else str(told.exception))

    run()  # imports, and whatever is slow only once
    clock = Clock()
    with ExitStack() as stack:
        for step, functions in STEPS:
            for owner, name in functions:
                stack.enter_context(patch.object(owner, name, clock.timed(step, getattr(owner, name))))
        began = time.process_time()
        run()
        whole = time.process_time() - began
    return {step: clock.seconds[step] for step, _ in STEPS}, whole


def table(seconds: dict[str, float], whole: float, n_frames: int) -> list[str]:
    """Markdown lines: ms of CPU a frame and share of the whole, by step."""
    rows = {**seconds, "the rest": whole - sum(seconds.values()), "all": whole}
    lines = ["| step | ms a frame | share |", "|---|---|---|"]
    return lines + [f"| {step} | {1000 * s / n_frames:.2f} | {100 * s / whole:.1f} % |" for step, s in rows.items()]


if __name__ == "__main__":
    main()
