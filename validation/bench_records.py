"""Records of ``validation/bench.py``: each piece of work is kept under the hash of all that it depends on."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import usdehaze
from usdehaze.cine import Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.validation.evaluate import json_ready, write_json

CODE = ("*.py", "diffusion/*.py", "geometry/*.py", "priors/*.py")
FIGURES = (
    *("metrics", "lpips", "prior_bench", "oracles", "trust", "trust_study", "realhaze", "evaluate", "baselines"),
    *("calibration", "traces"),
)
KINDS = ("tissue", "haze", "posterior")  # of the priors that a dehazer may have


@dataclass(eq=False)
class Records:
    """A folder of JSON files, one a piece of work."""

    folder: Path

    @cached_property
    def code(self) -> str:
        """Hash of the package's own code that a figure may depend on, without comments and docstrings."""
        root = Path(usdehaze.__file__).parent
        patterns = (*CODE, *(f"validation/{name}.py" for name in FIGURES))
        files = sorted(path for pattern in patterns for path in root.glob(pattern))
        return hashlib.sha256("\n".join(map(bare, files)).encode()).hexdigest()[:16]

    def kept(self, part: str, name: str, by: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The record of a piece of work; measured where there is none that depends on the very same.

        Args:
            part: letter of the part of the bench.
            name: of the scan or simulation.
            by: all that it depends on, but for the code.
            measure: does the work.
        """
        by = json.loads(json.dumps(json_ready({"part": part, "name": name, "code": self.code} | by), default=str))
        digest = hashlib.sha256(json.dumps(by, sort_keys=True).encode()).hexdigest()[:20]
        path = self.folder / f"{part}-{digest}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))["record"]
        began = time.process_time()
        record = {"cine": name, **measure()}
        record["cpu_s"] = round(time.process_time() - began, 3)
        write_json(path, {"by": by, "record": record})
        print(f"{part} {name} {by.get('method', '')} {record['cpu_s']:.1f} s", file=sys.stderr, flush=True)
        return json_ready(record)


def made_by(cine: Cine, dehazer: Dehazer) -> dict[str, Any]:
    """All that a dehazed cine depends on, but for the code."""
    return {
        "priors": priors_of(dehazer),
        "settings": asdict(dehazer.settings),
        "precision": dehazer.precision,
        "frames": digest_of(cine.frames),
        "device": dehazer.device.type,
    }


def priors_of(dehazer: Dehazer) -> dict[str, str]:
    """Name, with its hash, of every prior that a dehazer has, by kind."""
    return {kind: prior.name for kind in KINDS if (prior := getattr(dehazer, kind, None)) is not None}


def digest_of(frames: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(frames)).hexdigest()[:16]


def bare(path: Path) -> str:
    """What a Python file does, as text that no comment, docstring or layout changes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(tree)
