"""Scoring a reader study: from its answers to figures with intervals, tests and agreement."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.study.answers import Judgements, read_answers
from usdehaze.study.design import FORMAT_VERSION, ITEMS, SCALE, WORSE_WHEN_HIGHER, read_study
from usdehaze.study.statistics import category_counts, crossed_interval, fleiss_kappa, gwet_ac1, paired_test

FORMAT = "usdehaze-study-scores"
ESTIMATORS = {
    "choice": "share of judgements that chose the dehazed picture",
    "difference": "mean rating of the dehazed picture minus that of the input, of the same reader and case",
    "ci95": "95 % interval: readers and cases both drawn anew, 2000 draws, widened for few of them; null where no two "
    "judgements differ",
    "by_case": "two-sided tests on the means of the cases over their readers: of other cases, for these readers",
    "by_reader": "two-sided tests on the means of the readers over their cases: of other readers; p is at least "
    "2 / 2^n, n readers",
    "fleiss_kappa": "agreement of readers beyond chance: on the choice; of ratings on worse, same, better",
    "gwet_ac1": "the same, with a chance that does not grow where nearly all judgements are alike",
}


def score_study(folder: Path, seed: int = 0) -> dict[str, Any]:
    """The scores of a study as a document for JSON.

    Args:
        folder: as `usdehaze.study.make_study` wrote it, with the readers' answers.
        seed: of the bootstrap.

    Raises:
        InputError: no study, no answers, or answers that do not belong to it.
    """
    study = read_study(folder)
    judged = read_answers(folder, study)
    scores = score(judged, seed)
    scores["settings"]["warnings"] = _warnings(judged, len(study.readers))
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "study": study.study, **scores}


def score(judged: Judgements, seed: int = 0) -> dict[str, Any]:
    """Choice, items and settings of the scores.

    Returns:
        ``choice``: ``share``, ``ci95``, ``by_reader_share``, tests against one half, agreement. ``items``: of each
        ``input``, ``tissue``, ``difference``, ``ci95``, tests against 0, agreement. An item that nobody rated on both
        sides is left out.
    """
    shares = crossed_interval(judged.choice, seed, (0, 1))
    choice: dict[str, Any] = {
        "share": shares.mean,
        "ci95": shares.ci95,
        "by_reader_share": {
            reader: float(np.nanmean(row)) for reader, row in zip(judged.readers, judged.choice, strict=True)
        },
        **_tested(judged.choice - 0.5),
        **_agreement(judged.choice),
    }
    items = {}
    for item, ratings in judged.ratings.items():
        difference = ratings[1] - ratings[0]
        both = np.isfinite(difference)
        if not both.any():
            continue
        found = crossed_interval(difference, seed, (SCALE[0] - SCALE[1], SCALE[1] - SCALE[0]))
        items[item] = {
            "input": float(ratings[0][both].mean()),
            "tissue": float(ratings[1][both].mean()),
            "difference": found.mean,
            "ci95": found.ci95,
            "n": int(both.sum()),
            "better": "lower" if item in WORSE_WHEN_HIGHER else "higher",
            **_tested(difference),
            **_agreement(np.sign(difference)),
        }
    settings = {
        "n_readers": len(judged.readers),
        "n_cases": int(np.isfinite(judged.choice).any(axis=0).sum()),
        "n_judgements": int(np.isfinite(judged.choice).sum()),
        "estimators": ESTIMATORS,
        "questions": ITEMS,
        "seed": seed,
    }
    return {"choice": choice, "items": items, "settings": settings}


def _tested(values: np.ndarray) -> dict[str, Any]:
    """Tests of ``(R, C)`` values against 0, by case and by reader."""
    return {name: asdict(paired_test(_means(values, axis))) for name, axis in (("by_case", 0), ("by_reader", 1))}


def _means(values: np.ndarray, axis: int) -> np.ndarray:
    """Means along an axis of what there is, without those of nothing."""
    there = np.isfinite(values).sum(axis=axis)
    return np.asarray(np.nansum(values, axis=axis)[there > 0] / there[there > 0])


def _agreement(labels: np.ndarray) -> dict[str, float | None]:
    counts = category_counts(labels)
    return {"fleiss_kappa": fleiss_kappa(counts), "gwet_ac1": gwet_ac1(counts)}


def _warnings(judged: Judgements, n_invited: int) -> list[str]:
    """What makes the scores less sure than they look, one sentence each."""
    found = ["p values are not adjusted for the number of questions; the choice is the first of them"]
    if len(judged.readers) < n_invited:
        found.append(f"answers of {len(judged.readers)} of {n_invited} readers")
    for reader, row in zip(judged.readers, judged.choice, strict=True):
        if not np.isfinite(row).all():
            found.append(f"{reader} judged {int(np.isfinite(row).sum())} of {row.size} pairs")
    if min(judged.choice.shape) == 1:
        found.append("one reader or one case: intervals and tests say nothing of others")
    return found
