"""The mean of several trainings."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.training.data import FrameSource
from usdehaze.training.train import STATISTICS, errors_on


def mean_of(posteriors: Sequence[LearnedPosterior], source: FrameSource) -> LearnedPosterior:
    """The mean of weights that were trained on from the same ones, each on frames of its own.

    Args:
        posteriors: at least two, of one network and, as those trained on from one are, with the same statistics of
            frames.
        source: whose held-out frames the card tells errors on.

    Returns:
        The mean, on the CPU; its card is the first one's, with the trainings of all.

    Raises:
        UsdehazeError: there are fewer than two, or they were not trained on from one.
    """
    first = posteriors[0] if posteriors else None
    alike = ("grid", "fine_tuned_from", *STATISTICS["posterior"])
    if first is None or len(posteriors) < 2 or any(
        p.network.config != first.network.config or any(p.card.get(key) != first.card.get(key) for key in alike)
        for p in posteriors
    ):  # fmt: skip
        raise UsdehazeError("a mean takes two posteriors or more that were trained on from one and the same")
    network = type(first.network)(**first.network.config)  # type: ignore[arg-type]
    weights = [p.network.state_dict() for p in posteriors]
    network.load_state_dict({k: torch.stack([w[k].cpu() for w in weights]).mean(0) for k in weights[0]})
    of_each = [p.card["training"] for p in posteriors]
    training = {
        **of_each[0],
        "command": "the mean of: " + "; ".join(each["command"] for each in of_each),
        **{key: round(sum(each[key] for each in of_each), 3) for key in ("steps", "frames", "hours")},
    }
    data = {key: _joined([p.card[key] for p in posteriors]) for key in ("training_data", "tissue_data", "haze_data")}
    mean = LearnedPosterior(network, {**first.card, **data, "training": training}).eval().requires_grad_(False)
    mean.card["held_out"] = errors_on(mean, source.held_out)
    return mean


def _joined(descriptions: list[str]) -> str:
    return "; ".join(dict.fromkeys(descriptions))
