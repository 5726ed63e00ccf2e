"""Records of studies: each piece of work is kept under the hash of all that decides its figures."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import usdehaze
from usdehaze.choices import NETWORK_KINDS
from usdehaze.cine import Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.validation.evaluate import json_ready, write_json
from usdehaze.validation.scene import Scene

PACKAGE, STUDIES = Path(usdehaze.__file__).parent, Path(__file__).resolve().parent
SHOWS = ("cli", "preview", "review", "transforms", "tuning")  # rooms of the package that decide no figure


@dataclass(frozen=True)
class Records:
    """A folder of JSON files, one a piece of work; made where it is missing.

    Attributes:
        folder: of the records.
        measured_in: module of ``validation`` that measures.
    """

    folder: Path
    measured_in: str

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, part: str, name: str, by: dict[str, Any]) -> Path:
        """Where the record of a piece of work is, or would be; arguments as of `kept`."""
        digest = hashlib.sha256(json.dumps(self._key(part, name, by), sort_keys=True).encode()).hexdigest()[:20]
        return self.folder / f"{part.replace(' ', '-')}-{digest}.json"

    def found(self, part: str, name: str, by: dict[str, Any]) -> dict[str, Any] | None:
        """The record of a piece of work, None where there is none that depends on the very same."""
        path = self.path(part, name, by)
        return json.loads(path.read_text(encoding="utf-8"))["record"] if path.exists() else None

    def kept(self, part: str, name: str, by: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The record of a piece of work; measured where there is none that depends on the very same.

        Args:
            part: of the study.
            name: of the scan or simulation.
            by: all that it depends on, but for the code.
            measure: does the work.
        """
        stored = self.found(part, name, by)
        if stored is not None:
            return stored
        began = time.process_time()
        record = {"cine": name, **measure()}
        record["cpu_s"] = round(time.process_time() - began, 3)
        self.keep(part, name, by, record)
        print(f"{part} {name} {by.get('method', '')} {record['cpu_s']:.1f} s", file=sys.stderr, flush=True)
        return json_ready(record)

    def keep(self, part: str, name: str, by: dict[str, Any], record: dict[str, Any]) -> None:
        """Keeps a record that was measured together with others; arguments as of `kept`."""
        write_json(self.path(part, name, by), {"by": self._key(part, name, by), "record": record})

    def _key(self, part: str, name: str, by: dict[str, Any]) -> dict[str, Any]:
        """All that a record depends on, as JSON gives it back."""
        key = {"part": part, "name": name, "code": code_hash(self.measured_in)} | by
        return json.loads(json.dumps(json_ready(key), default=str))


def made_by(cine: Cine, dehazer: Dehazer) -> dict[str, Any]:
    """All that a dehazed cine depends on, but for the code."""
    geometry = {name: np.asarray(value).tolist() for name, value in asdict(cine.geometry).items()}
    return {
        "priors": priors_of(dehazer),
        "settings": asdict(dehazer.settings),
        "precision": dehazer.precision,
        "engine": dehazer.engine.name if dehazer.engine else "torch",
        "device": dehazer.device.type,
        "frames": digest_of(cine.frames, cine.tissue_mask),
        "first_frame": cine.source.first_frame,  # random streams are those of frames
        "dynamic_range_db": cine.dynamic_range_db,
        "geometry": hashlib.sha256(json.dumps(geometry).encode()).hexdigest()[:16],
    }


def priors_of(dehazer: Dehazer) -> dict[str, str]:
    """Name, with its hash, of every prior that a dehazer has, by kind."""
    return {kind: prior.name for kind in NETWORK_KINDS if (prior := getattr(dehazer, kind, None)) is not None}


def truth_of(scene: Scene) -> dict[str, str]:
    """Identity of all that is known of a scene."""
    return {"truth": digest_of(scene.clean.frames, scene.haze, scene.inside, scene.walls, scene.cavities)}


def digest_of(*arrays: np.ndarray | None) -> str:
    """Hash of arrays, one after another; None counts as none at all."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(b"none" if array is None else f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()[:16]


@lru_cache
def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@lru_cache
def code_hash(module: str) -> str:
    """Hash of all code that may decide what a module of ``validation`` measures.

    That is the package, without the rooms that decide no figure, the module, and every other of ``validation`` that it
    imports, or that those import; of ``usdehaze``, the package alone. Comments and docstrings change nothing.
    """
    files = [
        path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in SHOWS
    ]
    files += _imported(module, set())
    return hashlib.sha256("\n".join(map(bare, sorted(files))).encode()).hexdigest()[:16]


def _imported(module: str, seen: set[str]) -> Iterator[Path]:
    """Files of a module of ``validation`` and of all that it imports from there."""
    path = STUDIES.parent.joinpath(*module.split(".")).with_suffix(".py")
    if module in seen or not module.startswith(f"{STUDIES.name}.") or not path.exists():
        return
    seen.add(module)
    yield path
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                yield from _imported(name, seen)


def bare(path: Path) -> str:
    """What a Python file does, as text that no comment, docstring or layout changes."""
    return _bare(path.read_text(encoding="utf-8"))


@lru_cache(None)
def _bare(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(tree)
