"""The scores of a run of ``validation.bench``, onto the cards of the networks it was made with."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from usdehaze.errors import UsdehazeError
from usdehaze.priors.cards import WEIGHTS
from usdehaze.validation.benchmark import OURS
from usdehaze.validation.evaluate import write_json
from validation.bench.tables import CLIPS, HARM

PARTS = "bcde"
UNDER_HAZE = ("psnr_db", "ssim", "lpips", "gcnr", "rmse_tissue_db", "rmse_haze_db")


def check(wanted: str, patients: str, methods: Sequence[str]) -> None:
    """Only figures on scans nobody tuned on go onto a card, all of them together, and those of one method.

    Raises:
        UsdehazeError: other scans, parts left out, or several methods.
    """
    if len(methods) > 1:
        raise UsdehazeError(f"--card takes one method, found {'; '.join(methods)}")
    if patients != "held-out" or set(PARTS) - set(wanted):
        raise UsdehazeError(f"--card takes --patients held-out and parts {','.join(PARTS)}; found {patients}, {wanted}")


def write_cards(document: dict[str, Any], networks: Mapping[str, str]) -> list[Path]:
    """Puts an entry ``bench`` on the cards, in place of one that is there; weights stay as they are.

    Args:
        document: of a run, see `bench.measure`.
        networks: by kind, the posterior or tissue and haze; each a file or the name of a shipped one.

    Returns:
        The cards' paths.

    Raises:
        InputError: a card that cannot be written.
    """
    settings, paths = document["settings"], []
    for kind, which in networks.items():
        shipped = WEIGHTS / f"{which}.json"
        path = shipped if Path(which).name == which and shipped.is_file() else Path(which).with_suffix(".json")
        card = json.loads(path.read_text(encoding="utf-8"))
        beside = next((settings[f"{other}_prior"] for other in networks if other != kind), None)
        write_json(path, card | {"bench": scores(document, kind, beside=beside)})
        paths.append(path)
    return paths


def scores(document: dict[str, Any], kind: str, beside: str | None) -> dict[str, Any]:
    """The entry for the network of a kind. Means: input and output, or output alone.

    Args:
        document: see `write_cards`.
        kind: "posterior", which has no denoising loss of tissue or haze alone, "tissue" or "haze".
        beside: name of the other prior.
    """
    settings, losses = document["settings"], document["e"]
    hazed = [record for record in document["b"]["records"] if record["method"] == OURS]
    by_sigma = [f"{sigma:g}" for sigma in losses["sigmas"]]
    entry: dict[str, Any] = {
        "command": "python -m validation.bench",
        **({"beside": beside} if beside else {}),
        "preset": settings["preset"],
        "steps": settings["steps"],
        "patients": settings["patients"],
        "date": time.strftime("%Y-%m-%d"),
        "real tissue under simulated haze": _means(document["b"]["methods"][OURS], UNDER_HAZE, len(hazed)),
        "real hazy clips": _means(document["c"]["summary"], CLIPS, len(document["c"]["records"])),
        "clean real frames": _means(document["d"]["summary"], HARM, len(document["d"]["records"])),
    }
    of_kind = {"tissue": losses["tissue"], "haze": {"hazes": losses.get("haze")}}.get(kind)
    if of_kind is not None:
        entry["denoising loss"] = {
            name: {sigma: round(loss, 5) for sigma, loss in zip(by_sigma, of_frames, strict=True)}
            for name, of_frames in of_kind.items()
        }
    return entry


def _means(summary: dict[str, Any], names: Sequence[str], frames: int) -> dict[str, Any]:
    means: dict[str, Any] = {"frames": frames}
    for name in names:
        if name in summary:
            before, after = (summary[name][part] for part in ("input", "tissue"))
            means[name] = round(after, 4) if before is None else [round(before, 4), round(after, 4)]
    return means
