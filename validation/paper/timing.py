"""Seconds an image of every method, alone on one thread, beside those that are printed."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from usdehaze.errors import UsdehazeError
from validation.markdown import head, row
from validation.paper.experiments import EXPERIMENTS, measured
from validation.paper.methods import METHODS, TUNED
from validation.paper.report import MARK, write_section
from validation.paper.study import Options, prepared, priors_for, wanted

ON = "faces-digits"
PRINTED_MS = {  # one RTX 3080 Ti, T = 600
    "projection": 5605, "dps": 16818, "pigdm": 16094, "flow": 61853, "gan": 59, "bm3d": 29,
}  # fmt: skip


def run(methods: list[str] | None, options: Options, results: Path, command: str) -> None:
    """Times one image of each method and writes the table, under the command that it is of."""
    experiment = EXPERIMENTS[ON]
    names = [name for name in wanted(experiment, methods) if name != "input" and not name.endswith(TUNED)]
    priors: Any = priors_for(experiment, names, options)
    every = measured(experiment, "test", 1)
    lines = head("method", ["CPU s an image", "wall s", "printed, ms"])
    for name in names:
        printed = f"{PRINTED_MS[name]:,}" if name in PRINTED_MS else ""
        try:
            system = METHODS[name].make(priors, options.steps)
            prepared(system, name, experiment, options)
            if options.device.type == "cuda":
                system.solve(every.problem, options.seed)  # kernels are chosen
            wall, cpu = time.monotonic(), time.process_time()
            system.solve(every.problem, options.seed)  # ends on the CPU
            taken = [f"{time.process_time() - cpu:.2f}", f"{time.monotonic() - wall:.2f}"]
        except UsdehazeError as error:
            taken = [str(error), ""]
        lines.append(row(name, [*taken, printed]))
        print(lines[-1], flush=True)
    text = [
        MARK.format(f"timing{options.beside}"),
        "## Time, NCSNv2" if options.beside else "## Time",
        "",
        f"    {command}",
        "",
        f"One image of 64 x 64 in colour, T = {options.steps}, {_machine(options.device)}; printed: one RTX 3080 Ti.",
        "",
        *lines,
        MARK.format(f"/timing{options.beside}"),
    ]
    write_section(results, f"timing{options.beside}", "\n".join(text))


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return f"one thread of {name} ({os.cpu_count()} cores)"
