"""Design of a reader study: which reader sees which case when, and on which side the dehazed picture is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.budget import read_text
from usdehaze.errors import InputError

FORMAT, FORMAT_VERSION = "usdehaze-study", 1
KEY = "study.json"
SIDES, ARMS = ("left", "right"), ("input", "tissue")
LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # none that is taken for another
CODE_LENGTH = 5
SCALE = (1, 5)
ITEMS = {
    "septum": "Septum: how well is it seen?",
    "lateral_wall": "Lateral wall: how well is it seen?",
    "apex": "Apex: how well is it seen?",
    "right_ventricle": "Right ventricle: how well is it seen?",
    "chamber": "Chamber: how clear is it?",
    "artefacts": "Artefacts: how much looks artificial?",
    "confidence": "Diagnosis: how confident would you be?",
}
WORSE_WHEN_HIGHER = ("artefacts",)
CHOICE = "Which of the two would you rather read?"


@dataclass(frozen=True)
class Case:
    """One result: its code in the study, the name of its file, and the SHA-256 of its source."""

    case: str
    result: str
    source_sha256: str


@dataclass(frozen=True)
class Trial:
    """One pair that a reader judges: its code on the page, the case, and what is on the left, "input" or "tissue"."""

    pair: str
    case: str
    left: str

    def arm(self, side: str) -> str:
        """What is on a side, "left" or "right"."""
        return self.left if side == "left" else ARMS[1 - ARMS.index(self.left)]


@dataclass(frozen=True)
class Study:
    """The key of a study.

    Attributes:
        study: its code, drawn from all that makes it.
        seed: of the randomisation.
        cases: in the order that they were named.
        readers: code of a reader to the trials, in the order shown.
    """

    study: str
    seed: int
    cases: tuple[Case, ...]
    readers: dict[str, tuple[Trial, ...]]


def draw_study(named: Sequence[tuple[str, str]], n_readers: int, seed: int, shown: str = "") -> Study:
    """Randomises: the order of the cases anew for every reader, the dehazed picture on the left in half of them.

    Args:
        named: file name and source's SHA-256 of each result.
        n_readers: at least 1.
        seed: the same seed, cases, readers and pictures give the same study.
        shown: hash of the pictures: answers to others are answers to another study.
    """
    cases = tuple(Case(f"case-{i:03d}", name, sha256) for i, (name, sha256) in enumerate(named, 1))
    told = json.dumps([seed, n_readers, *(asdict(case) for case in cases), shown])
    digest = hashlib.sha256(told.encode()).digest()
    rng = np.random.default_rng([seed, *digest])
    codes = _codes(n_readers * len(cases), rng)
    readers = {}
    for r in range(n_readers):
        order = rng.permutation(len(cases))
        left = rng.permutation(np.arange(len(cases)) + rng.integers(2)) % 2
        trials = (Trial(next(codes), cases[c].case, ARMS[side]) for c, side in zip(order, left, strict=True))
        readers[f"reader-{r + 1:02d}"] = tuple(trials)
    return Study(digest.hex()[:16], seed, cases, readers)


def key_of(study: Study) -> dict[str, Any]:
    """A study as JSON."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "study": study.study,
        "seed": study.seed,
        "cases": [asdict(case) for case in study.cases],
        "readers": {reader: [asdict(trial) for trial in trials] for reader, trials in study.readers.items()},
    }


def read_study(folder: Path) -> Study:
    """The key in the folder of a study.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = folder / KEY
    document = read_json(path, FORMAT, "the folder that usdehaze study make wrote")
    try:
        study = Study(
            str(document["study"]),
            int(document["seed"]),
            tuple(Case(**case) for case in document["cases"]),
            {reader: tuple(Trial(**trial) for trial in trials) for reader, trials in document["readers"].items()},
        )
        shown = {(trial.case, trial.left) for trials in study.readers.values() for trial in trials}
        if not shown <= {(case.case, arm) for case in study.cases for arm in ARMS}:
            raise ValueError("a trial of no case, or of no arm")
        return study
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(path, "a damaged key of a study", "the file that usdehaze study make wrote") from None


def read_json(path: Path, expected_format: str, expected: str) -> dict[str, Any]:
    """A JSON object of ours.

    Raises:
        InputError: it cannot be read, or is of another format or version.
    """
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise InputError(path, "not valid JSON", expected) from None
    if not isinstance(document, dict) or document.get("format") != expected_format:
        raise InputError(path, f"no {expected_format} file", expected)
    if document.get("format_version") != FORMAT_VERSION:
        raise InputError(path, "written by another version", f"format_version {FORMAT_VERSION}")
    return document


def _codes(n: int, rng: np.random.Generator) -> Any:
    """``n`` different codes of pairs."""
    codes: dict[str, None] = {}
    while len(codes) < n:
        codes["".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=CODE_LENGTH))] = None
    return iter(codes)
