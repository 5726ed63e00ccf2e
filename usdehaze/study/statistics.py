"""Statistics of readers who judge the same cases: intervals over both, agreement, paired tests.

Judgements are ``(R, C)`` float64, a row a reader and a column a case, NaN where there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special, stats

N_RESAMPLES = 2000
LEVEL = 0.95
MOST_TIED = 13  # means with ties of their sizes, up to which the signed-rank test is exact


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; None where there is one judgement, or no two differ."""

    mean: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class Test:
    """Two-sided p values of paired tests on means that differ from 0 or not, None where none differs.

    Attributes:
        n: means tested, ties left out.
        wilcoxon_p: signed-rank test, exact up to 50 values, or 13 with ties of their sizes.
        sign_p: sign test, exact.
    """

    n: int
    wilcoxon_p: float | None
    sign_p: float | None


def crossed_interval(
    values: np.ndarray, seed: int = 0, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """Mean of all judgements, with an interval that speaks of other readers and other cases.

    Cluster bootstrap in both directions: readers and cases are each drawn with replacement, and a judgement counts as
    often as its reader times its case was drawn. A handful of readers draws too little spread, so the deviations of the
    draws from the mean are widened by ``t(df) / z sqrt(n / (n - 1))``, n the smaller of R and C, df by Satterthwaite
    from the spread of the readers' and of the cases' means. With one reader the cases alone are drawn, and the interval
    speaks of that reader; with one case the other way round.

    Args:
        values: ``(R, C)``, at least one judgement.
        seed: of the draws.
        bounds: that a judgement lies within, and so does the interval.

    Source:
        Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2), 2007.
    """
    values = values[:, np.isfinite(values).any(axis=0)][np.isfinite(values).any(axis=1)]
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    mean = float(filled.sum() / there.sum())
    sizes = [n for n in values.shape if n > 1]
    if not sizes or np.ptp(values[there]) == 0:
        return Interval(mean, None)
    readers, cases = _draws(values.shape, seed)
    weight = ((readers @ there) * cases).sum(axis=1)
    drawn = ((readers @ filled) * cases).sum(axis=1)[weight > 0] / weight[weight > 0]
    factor = _t_over_z(values) * math.sqrt(min(sizes) / (min(sizes) - 1))
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.clip(mean + factor * (np.percentile(drawn, [tail, 100 - tail]) - mean), *bounds)
    return Interval(mean, (float(low), float(high)))


@lru_cache(maxsize=2)  # items of a study are drawn alike
def _draws(shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, ...]:
    """How often each reader and each case is drawn, ``(N_RESAMPLES, R)`` and ``(N_RESAMPLES, C)``; single ones once."""
    rng = np.random.default_rng(seed)
    drawn = tuple(
        rng.multinomial(n, np.full(n, 1 / n), size=N_RESAMPLES).astype(float) if n > 1 else np.ones((N_RESAMPLES, 1))
        for n in shape
    )
    for counts in drawn:
        counts.setflags(write=False)
    return drawn


def _t_over_z(values: np.ndarray) -> float:
    """By how much a t interval with the degrees of freedom of these judgements is wider than a normal one."""
    parts = [
        (np.nanmean(values, axis=1 - axis).var(ddof=1) / values.shape[axis], values.shape[axis] - 1)
        for axis in (0, 1)
        if values.shape[axis] > 1
    ]
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 1.0
    df = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    return float(special.stdtrit(df, (1 + LEVEL) / 2) / special.ndtri((1 + LEVEL) / 2))


def paired_test(means: np.ndarray) -> Test:
    """Whether means ``(N,)`` of readers or of cases differ from 0; those that are NaN or 0 do not count."""
    differing = means[np.isfinite(means) & (means != 0)]
    if differing.size == 0:
        return Test(0, None, None)
    n, fewer = differing.size, min(int((differing > 0).sum()), int((differing < 0).sum()))
    sign = min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)
    return Test(n, _signed_rank_p(differing), sign)


def _signed_rank_p(values: np.ndarray) -> float:
    """p of the signed-rank test: with ties as SciPy's test by permutation, but from the sums of ranks, counted."""
    if values.size > MOST_TIED or np.unique(np.abs(values)).size == values.size:
        return float(stats.wilcoxon(values).pvalue)
    doubled = np.rint(2 * stats.rankdata(np.abs(values))).astype(int)  # whole numbers: ties share half ranks
    ways = np.ones(1)  # of giving signs, by twice the sum of the positive ranks
    for rank in doubled:
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    positive = doubled[values > 0].sum()
    tails = ways[: positive + 1].sum(), ways[positive:].sum()
    return float(min(1.0, 2 * min(tails) / ways.sum()))


def category_counts(labels: np.ndarray) -> np.ndarray:
    """How many readers put each case into each category, ``(C, K)``, from labels ``(R, C)`` with NaN for none.

    Cases that fewer than two readers judged are left out: nobody can agree there.
    """
    categories = np.unique(labels[np.isfinite(labels)])
    counts = (labels[..., None] == categories).sum(axis=0)
    return np.asarray(counts[counts.sum(axis=1) > 1])


def fleiss_kappa(counts: np.ndarray) -> float | None:
    """Fleiss' kappa of ``(C, K)`` counts, ``(p - e) / (1 - e)``; e the agreement by chance, sum of squared shares.

    None without cases, or where all judgements are in one category: chance then explains everything.

    Source:
        Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76(5), 1971; numbers of
        readers may differ between cases.
    """
    return None if counts.size == 0 else _beyond_chance(counts, float(np.square(_shares(counts)).sum()))


def gwet_ac1(counts: np.ndarray) -> float | None:
    """Gwet's AC1 of ``(C, K)`` counts: as kappa, with ``e = sum q (1 - q) / (K - 1)``; 1 for a single category.

    It stays where kappa falls although readers agree, because nearly all judgements are alike. None without cases.

    Source:
        Gwet, "Computing inter-rater reliability and its variance in the presence of high agreement", British Journal of
        Mathematical and Statistical Psychology 61(1), 2008.
    """
    if counts.size == 0:
        return None
    shares = _shares(counts)
    if shares.size == 1:
        return 1.0
    return _beyond_chance(counts, float((shares * (1 - shares)).sum()) / (shares.size - 1))


def _shares(counts: np.ndarray) -> np.ndarray:
    """Share of each category, cases weighing the same."""
    return np.asarray((counts / counts.sum(axis=1, keepdims=True)).mean(axis=0))


def _beyond_chance(counts: np.ndarray, chance: float) -> float | None:
    n = counts.sum(axis=1)
    observed = float(((counts * (counts - 1)).sum(axis=1) / (n * (n - 1))).mean())
    return None if chance >= 1 else (observed - chance) / (1 - chance)
