"""How far the scores of a reader study can be trusted, on simulated readers whose preference is known.

    python -m validation.readers --studies 500

A study has readers and cases that differ. Of each judgement two latent qualities are drawn, of the input and of the
dehazed picture; their difference is the effect, plus what the reader, the case and this very judgement add to it. The
reader chooses the better one, and rates both from 1 to 5, rounded. A row: how often the 95 % intervals of share and of
rating difference hold their true values, which are known in closed form; and how often each
test of the choice and of the rating has p <= 0.05, which is its size where the effect is 0 and its power elsewhere.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from usdehaze.study.answers import Judgements
from usdehaze.study.score import score
from validation.markdown import head, row

ALPHA = 0.05
LEVEL, OF_LEVEL = 3.0, 0.5  # mean quality of a case, and its deviation between cases


@dataclass(frozen=True)
class Setting:
    """Readers, cases, effect, and the deviations between readers, between cases and of single judgements."""

    n_readers: int
    n_cases: int
    effect: float
    of_readers: float
    of_cases: float
    of_judgements: float


SPREADS = ((0.0, 0.5, 1.0), (0.5, 0.0, 1.0), (0.4, 0.4, 0.8))
SETTINGS = [
    Setting(n_readers, n_cases, effect, *spread)
    for n_readers, n_cases in ((3, 20), (8, 30))
    for effect in (0.0, 0.5)
    for spread in SPREADS
]


def draw(setting: Setting, rng: np.random.Generator) -> Judgements:
    """One study of simulated readers, with a single rated item."""
    shape = setting.n_readers, setting.n_cases
    tendency = setting.effect + rng.normal(0, setting.of_readers, (shape[0], 1))
    tendency = tendency + rng.normal(0, setting.of_cases, (1, shape[1]))
    difference = tendency + rng.normal(0, setting.of_judgements, shape)
    level = LEVEL + rng.normal(0, OF_LEVEL, (1, shape[1]))
    ratings = np.stack([level - difference / 2, level + difference / 2])
    readers, cases = (tuple(map(str, range(n))) for n in shape)
    rated = {"chamber": np.clip(np.rint(ratings), 1, 5)}
    return Judgements(readers, cases, (difference > 0).astype(float), rated)


def true_values(setting: Setting) -> tuple[float, float]:
    """Share and rating difference that the setting has, in closed form."""
    variance = setting.of_readers**2 + setting.of_cases**2 + setting.of_judgements**2
    share = stats.norm.cdf(setting.effect / math.sqrt(variance))
    steps = np.arange(1.5, 5)  # a rating is 1 and one more for each of these that the quality exceeds
    deviation = math.sqrt(OF_LEVEL**2 + variance / 4)
    worse, better = (stats.norm.sf(steps, LEVEL + sign * setting.effect / 2, deviation).sum() for sign in (-1, 1))
    return float(share), float(better - worse)


def held(interval: tuple[float, float] | None, truth: float) -> bool:
    """Whether an interval holds the truth; none holds nothing."""
    return interval is not None and interval[0] <= truth <= interval[1]


def figures(setting: Setting, n_studies: int) -> list[float]:
    """Two coverages, and how often each of eight tests rejects."""
    share, difference = true_values(setting)
    rng = np.random.default_rng(0)
    found = []
    for study in range(n_studies):
        scores = score(draw(setting, rng), seed=study)
        choice, item = scores["choice"], scores["items"]["chamber"]
        tests = [
            (entry[unit][test] or 1.0) <= ALPHA
            for entry in (choice, item)
            for unit in ("by_case", "by_reader")
            for test in ("wilcoxon_p", "sign_p")
        ]
        found.append([held(choice["ci95"], share), held(item["ci95"], difference), *tests])
    return [float(value) for value in np.mean(found, axis=0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--studies", type=int, default=500, help="simulated studies a row (500)")
    n_studies = parser.parse_args().studies
    tests = [f"{entry} {unit}, {test}" for entry in ("choice", "rating") for unit in ("cases", "readers")
             for test in ("Wilcoxon", "sign")]  # fmt: skip
    columns = ["effect", "spread of readers, cases, judgements", "share held", "rating held", *tests]
    for line in head("readers x cases", columns):
        print(line)
    for setting in SETTINGS:
        spread = f"{setting.of_readers:g}, {setting.of_cases:g}, {setting.of_judgements:g}"
        cells = [f"{setting.effect:g}", spread, *(f"{value:.3f}" for value in figures(setting, n_studies))]
        print(row(f"{setting.n_readers} x {setting.n_cases}", cells), flush=True)


if __name__ == "__main__":
    main()
