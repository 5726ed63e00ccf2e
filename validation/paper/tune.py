"""Lambda and kappa of a rule, chosen on five validation images, as the paper does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from usdehaze.errors import UsdehazeError
from validation.paper.experiments import Experiment, measured
from validation.paper.joint import PRINTED, Joint
from validation.paper.metrics import psnr_db
from validation.records import Records

IMAGES = 5
BOTH, RATIOS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0), (0.5, 2.0)  # first of both printed values, then of kappa alone
WORST_DB = -99.0  # of a pair that breaks down


def tuned(system: Joint, experiment: Experiment, seed: int, records: Records) -> Joint:
    """The system with the pair of the highest mean PSNR; what was tried is kept.

    Faces under the noise that is known: what is out of distribution is met with the same parameters, as in the paper.
    """
    every = measured(replace(experiment, signal="faces", noise=experiment.known), "validation", IMAGES)
    scale = PRINTED[system.rule]

    def score(pair: tuple[float, float]) -> float:
        tried = replace(system, scale=pair)

        def guarded() -> dict[str, float]:
            try:
                signal, _ = tried.solve(every.problem, seed)
            except UsdehazeError:  # values that are not finite
                return {"psnr_db": WORST_DB}
            return {"psnr_db": float(np.mean([psnr_db(a, b) for a, b in zip(signal, every.signal, strict=True)]))}

        by = tried.key() | {"seed": seed, "images": len(every.signal)}
        return float(records.kept("tuning", experiment.known, by, guarded)["psnr_db"])

    pairs = [(factor * scale[0], factor * scale[1]) for factor in BOTH]
    best = max(pairs, key=score)
    ratios = () if system.alone else RATIOS  # without a noise prior kappa does nothing
    return replace(system, scale=max([best, *((best[0], r * best[1]) for r in ratios)], key=score))
