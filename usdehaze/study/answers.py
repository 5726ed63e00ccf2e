"""What readers answered, as arrays in the order of the key: the sides told apart, the blinding undone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.errors import InputError
from usdehaze.study.design import ARMS, ITEMS, SCALE, SIDES, Study, Trial, read_json

FORMAT = "usdehaze-study-answers"
FOLDER = "answers"
EXPECTED = "a file that a reader's page saved"


@dataclass(frozen=True)
class Judgements:
    """Answers of all readers.

    Attributes:
        readers, cases: codes, in the order of the rows and columns.
        choice: ``(R, C)``, 1 where the reader chose the dehazed picture, 0 where the other one; NaN without an answer.
        ratings: item to ``(2, R, C)``, of the input and of the dehazed picture, 1 to 5; NaN where it was not judged.
    """

    readers: tuple[str, ...]
    cases: tuple[str, ...]
    choice: np.ndarray
    ratings: dict[str, np.ndarray]


def answer_files(folder: Path) -> list[Path]:
    """Files of answers in the folder of a study: ``answers/*.json``, and ``answers-*.json`` beside the key."""
    return sorted([*(folder / FOLDER).glob("*.json"), *folder.glob("answers-*.json")])


def read_answers(folder: Path, study: Study) -> Judgements:
    """All answers in the folder of a study, see `answer_files`.

    Raises:
        InputError: there are none, two of one reader, or one that is no answer to this study.
    """
    paths = answer_files(folder)
    if not paths:
        raise InputError(folder, "no answers", f"files that readers' pages saved, in {FOLDER}")
    cases = tuple(case.case for case in study.cases)
    found: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]] = {}
    for path in paths:
        document = read_json(path, FORMAT, EXPECTED)
        if document.get("study") != study.study:
            raise InputError(path, "answers to another study", "answers to the one in this folder")
        reader = str(document.get("reader"))
        if reader not in study.readers:
            raise InputError(path, "answers of a reader that the study has not", ", ".join(study.readers))
        if reader in found:
            raise InputError(path, f"a second file of answers of {reader}", "one a reader")
        found[reader] = _of_reader(path, document.get("answers"), study.readers[reader], cases)
    readers = tuple(reader for reader in study.readers if reader in found)
    return Judgements(
        readers,
        cases,
        np.stack([found[reader][0] for reader in readers]),
        {item: np.stack([found[reader][1][item] for reader in readers], axis=1) for item in ITEMS},
    )


def _of_reader(
    path: Path, answers: Any, trials: tuple[Trial, ...], cases: tuple[str, ...]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Choices ``(C,)`` and ratings ``(2, C)`` of each item."""
    choice = np.full(len(cases), np.nan)
    ratings = {item: np.full((2, len(cases)), np.nan) for item in ITEMS}
    of_pair = {trial.pair: trial for trial in trials}
    seen: set[str] = set()
    if not isinstance(answers, list) or not answers:
        raise InputError(path, "no answers in it", EXPECTED)
    for entry in answers:
        answer = entry if isinstance(entry, dict) else {}
        trial = of_pair.get(str(answer.get("pair")))
        if trial is None or trial.pair in seen:
            raise InputError(path, "an answer to a pair that this reader was not shown, or a second one", EXPECTED)
        seen.add(trial.pair)
        column = cases.index(trial.case)
        if answer.get("choice") not in SIDES:
            raise InputError(path, f"a choice at pair {trial.pair} that is no side", '"left" or "right"')
        choice[column] = trial.arm(answer["choice"]) == "tissue"
        for side in SIDES:
            row = ARMS.index(trial.arm(side))
            for item, values in ratings.items():
                values[row, column] = _rating(path, trial.pair, answer, side, item)
    return choice, ratings


def _rating(path: Path, pair: str, answer: dict[str, Any], side: str, item: str) -> float:
    """One rating, NaN where there is none."""
    try:
        value = answer["ratings"][side].get(item)
    except (KeyError, TypeError, AttributeError):
        raise InputError(path, f"no ratings at pair {pair}", EXPECTED) from None
    if value is None:
        return float("nan")
    if type(value) is not int or not SCALE[0] <= value <= SCALE[1]:
        raise InputError(path, f"a rating of {item} at pair {pair} that is none", f"{SCALE[0]} to {SCALE[1]}, or null")
    return float(value)
