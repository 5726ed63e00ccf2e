"""The tables of ``validation.adapt``, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from usdehaze.validation.uncertainty import paired_statistics
from validation.hazes import LEVELS_DB
from validation.markdown import head, row

Records = Sequence[dict[str, Any]]
Row = tuple[str, str, str, int]  # what it is called, name in the records, which of its values, decimals

UNDER_HAZE = (("PSNR gain, dB", "psnr_db", "delta", 2),)
UNDER_ALL = (("SSIM", "ssim", "tissue", 3), ("LPIPS", "lpips", "tissue", 3))
HARM = (
    ("median change of bright pixels, dB", "clean_change_db", "tissue", 3),
    ("mean shift of bright pixels, dB", "clean_shift_db", "tissue", 3),
)
CLIPS = (
    ("gCNR", "gcnr", "tissue", 3),
    ("KS, septum", "ks_tissue", "tissue", 3),
    ("shift, septum, dB", "tissue_shift_db", "tissue", 2),
    ("KS, ventricle", "ks_haze", "tissue", 3),
    ("shift, ventricle, dB", "haze_shift_db", "tissue", 2),
    ("print of the septum in the haze, dB", "print_db", "tissue", 2),
)
ERRORS = ("tissue", "haze", "inside")
AS_IT_IS = (
    ("gCNR", "gcnr", "tissue", 3),
    ("shift, myocardium, dB", "tissue_shift_db", "tissue", 2),
    ("shift, ventricle, dB", "haze_shift_db", "tissue", 2),
)


def page(document: dict[str, Any], command: str) -> list[str]:
    """All of it, one string a line."""
    settings, card, names, own = document["settings"], document["card"], document["posteriors"], document["own"]
    training = card["training"]
    lines = [
        "# The posterior adapted to one probe",
        "",
        f"    {command}",
        "",
        f"Before: {_short(names['before'])}. Adapted: {_short(names['adapted'])}, {training['steps']} steps of",
        f"{training['frames'] // training['steps']} frames on {card['training_data']},",
        f"in {training['hours']:.2f} hours on {training['hardware']}. Preset {settings['preset']}, caution",
        f"{settings['caution']:g}. Changes are paired; their 95 % intervals come from 2,000 resamples of whole clips",
        "(of patients for CAMUS).",
        "",
        "## Held out by the training itself, by noise level (100: the frame alone decides)",
        "",
        "Root mean square errors in [0, 1], and the share of true gains between the outer quantiles (0.95 is right).",
        "",
        *head("", [f"{what}, {label}" for what in ERRORS for label in own]),
    ]
    for sigma, of_level in own["before"].items():
        pairs = [(of_level.get(what), own["adapted"][sigma].get(what)) for what in ERRORS]
        lines.append(row(sigma, ["" if v is None else f"{v:.4f}" for pair in pairs for v in pair]))
    b = document["b"]
    lines += ["", f"## Held-out clips of the probe under simulated haze ({len(b['before'])} scenes; part b)", ""]
    lines += _compared_head()
    for level in LEVELS_DB:
        of_level = {label: [r for r in records if r["level"] == level] for label, records in b.items()}
        lines += _compared(of_level, UNDER_HAZE, f", {level} haze")
    lines += [*_compared(b, UNDER_HAZE), *_compared(b, UNDER_ALL)]
    lines += ["", f"## The same clips as they are ({len(document['d']['before'])}; part d): harm", ""]
    lines += [*_compared_head(), *_compared(document["d"], HARM)]
    lines += ["", f"## CAMUS as it is, another probe ({len(document['h']['before'])} frames; part h)", ""]
    lines += [*_compared_head(), *_compared(document["h"], AS_IT_IS)]
    lines += ["", f"## Real hazy clips, of yet another source ({len(document['c']['before'])} runs; part c)", ""]
    return [*lines, *_compared_head(), *_compared(document["c"], CLIPS)]


def _compared_head() -> list[str]:
    return head("", ["input", "before", "adapted", "change", "95 %"])


def _compared(by_prior: Mapping[str, Records], rows: Sequence[Row], suffix: str = "") -> list[str]:
    """A row for each figure there is."""
    lines = []
    for label, name, which, digits in rows:
        have = {prior: [r for r in records if r.get(name)] for prior, records in by_prior.items()}
        before = have["before"]
        if not before:
            continue
        given = [r[name]["input"] for r in before if which == "tissue" and r[name]["input"] is not None]
        cells = [f"{sum(given) / len(given):.{digits}f}" if given else ""]
        cells.append(f"{_mean(before, name, which):.{digits}f}")
        cells.append(f"{_mean(have['adapted'], name, which):.{digits}f}")
        lines.append(row(label + suffix, [*cells, *_change(before, have["adapted"], name, which, digits)]))
    return lines


def _change(before: Records, after: Records, name: str, which: str, digits: int) -> list[str]:
    """Mean change over clips and its interval, as printed."""
    was, now = ([r[name][which] for r in records] for records in (before, after))
    paired = paired_statistics(was, now, [r["cine"] for r in before])
    low_high = paired["ci95"]
    return [
        f"{paired['mean_difference']:+.{digits}f}",
        "" if low_high is None else " to ".join(f"{v:+.{digits}f}" for v in low_high),
    ]


def _mean(records: Records, name: str, which: str) -> float:
    return float(sum(r[name][which] for r in records)) / len(records)


def _short(name: str) -> str:
    """Name of a prior and the first eight digits of its hash."""
    return name.split(":")[0] + ":" + name.split(":")[-1][:8]
