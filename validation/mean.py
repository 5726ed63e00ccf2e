"""One posterior of several trainings.

    python -m validation.mean hearts.safetensors quiet.safetensors -o mean.safetensors

No file is replaced. The card tells of all the trainings, and errors on pairs of the wide simulator.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.training.data import FrameSource, SimulatedFrames
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


def main() -> None:
    """Writes the mean of the posteriors that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("posteriors", nargs="+", metavar="POSTERIOR", help="weights, their cards beside them")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    from usdehaze.io.atomic import check_target  # where `mean_of` is used, h5py need not be there

    for suffix in (".safetensors", ".json"):
        check_target(options.out.with_suffix(suffix), False)
    parts = [LearnedPosterior.load(path) for path in options.posteriors]
    depth, angle = parts[0].card["grid"]
    mean = mean_of(parts, SimulatedFrames("posterior", (depth, angle)))
    mean.save(options.out.with_suffix(".safetensors"))
    print(f"{mean.name} -> {options.out}")


if __name__ == "__main__":
    main()
