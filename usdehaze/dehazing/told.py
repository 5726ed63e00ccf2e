"""What a dehazer says of itself in results: its settings and networks, known before any of them is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from usdehaze.dehazing.settings import POSTERIOR, PRIORS, settings_of
from usdehaze.priors.cards import read_card


def told_of(**options: Any) -> dict[str, Any]:
    """`Dehazer.told` of the dehazer that `Dehazer.from_pretrained` would give; cards are read, nothing is loaded.

    Raises:
        InputError: a prior or posterior that cannot be used.
        UsdehazeError: see `Dehazer.from_pretrained`.
    """
    settings = settings_of(**options)
    if settings.by_rule:
        with_haze = options.get("use_haze_prior", True)
        tissue = read_card(options.get("tissue_prior") or PRIORS[0], "tissue").name
        networks = of_priors(
            tissue, read_card(options.get("haze_prior") or PRIORS[1], "haze").name if with_haze else None
        )
    else:
        card = read_card(options.get("posterior") or POSTERIOR, "posterior")
        networks = of_posterior(card.name, card.values)
    return {**settings.told(), **networks, "precision": options.get("precision", "fp32")}


def of_posterior(name: str, card: Mapping[str, Any]) -> dict[str, str]:
    """A learned posterior, and what its two sides learned from, by the names that they have in results."""
    sides = {f"{side}_prior": card.get(f"{side}_data", card["training_data"]) for side in ("tissue", "haze")}
    return {"posterior": name, **sides}


def of_priors(tissue: str, haze: str | None) -> dict[str, str]:
    """Two priors, or that of tissue alone, by the names that they have in results."""
    return {"tissue_prior": tissue, "haze_prior": haze or "none (Gaussian noise)"}
