"""Every guidance rule and observation model at 10 to 600 steps, truth known: ``python validation/table.py``.

Up to 100 steps with the sampler of the fast preset, from 100 steps on with that of the paper preset (Euler-Maruyama
from noise, one sample): each preset's other settings are kept, lambda and kappa are the rule's own. "alone" is the rule
without a haze prior: what is not tissue is Gaussian noise. The learned posterior, which has neither rule nor
observation model, stands beside them up to 100 steps. Scenes are those of ``usdehaze validate``, one frame each. A
figure is kept as soon as it is made: the same command goes on where it was stopped, scene by scene.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_records import priors_of

from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.registry import LEARNED, OBSERVATIONS, RULES
from usdehaze.dehazing.settings import PRESETS, WITH_RULES, Settings
from usdehaze.errors import UsdehazeError
from usdehaze.simulate import simulate_cine
from usdehaze.validation import metrics
from usdehaze.validation.benchmark import CAVITY, FIRST_SEED, MIN_REGION_PIXELS, WALL
from usdehaze.validation.evaluate import write_json

HERE = Path(__file__).resolve().parent
STEPS = (10, 20, 40, 100, 600)
MOST_OF_FAST, FEWEST_OF_PAPER = 100, 100
COLUMNS = ("psnr_db", "haze_psnr_db", "gcnr", "ks_tissue", "ks_haze")
Trained = dict[bool, Dehazer]  # by whether a rule guides it
HEADINGS = ("PSNR of tissue, dB", "PSNR of haze, dB", "gCNR", "KS walls", "KS cavities")


def main() -> None:
    """Measures what is missing in the JSON file, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=2, help="scenes of one frame each (2)")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="numbers of steps (10 20 40 100 600)")
    parser.add_argument("--json", type=Path, default=HERE / "table.json", help="figures, kept between runs")
    parser.add_argument("--markdown", type=Path, default=HERE / "TABLE.md", help="the table")
    args = parser.parse_args()
    command = f"python validation/table.py --scenes {args.scenes} --steps {' '.join(map(str, args.steps))}"
    torch.set_num_threads(1)
    records: list[dict[str, Any]] = json.loads(args.json.read_text())["records"] if args.json.exists() else []
    learned, by_rule = (Dehazer.from_pretrained(guidance=name, device="cpu") for name in (LEARNED, "proximal"))
    trained = {False: learned, True: by_rule}
    rows = list(plan(args.steps))
    for seed in range(FIRST_SEED, FIRST_SEED + args.scenes):
        for number, (settings, joint) in enumerate(rows, 1):
            if found(records, settings, joint, trained, seed) is not None:
                continue
            networks = trained[settings.by_rule]
            dehazer = Dehazer(networks.model, networks.haze if joint else None, settings, "cpu")
            records.append(made_by(settings, joint, trained, seed) | measure(dehazer, seed))
            write_json(args.json, {"command": command, "records": records})
            print(f"scene {seed - FIRST_SEED + 1} of {args.scenes}, row {number} of {len(rows)}", file=sys.stderr)
    lines = table(records, rows, trained, args.scenes, command)
    args.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def plan(steps: list[int]) -> Iterator[tuple[Settings, bool]]:
    """Settings of every row, and whether there is a haze prior; cheap rows first."""
    for n in sorted(steps):
        if n <= MOST_OF_FAST:
            yield replace(PRESETS["fast"], steps=n), True
        presets = [WITH_RULES["fast"]] * (n <= MOST_OF_FAST) + [WITH_RULES["paper"]] * (n >= FEWEST_OF_PAPER)
        for preset in presets:
            for guidance in RULES:
                models = ("additive",) if guidance == "projection" else OBSERVATIONS
                for model in models:
                    yield replace(preset, guidance=guidance, observation=model, steps=n), True
                yield replace(preset, guidance=guidance, observation="additive", steps=n), False


def made_by(settings: Settings, joint: bool, trained: Trained, seed: int) -> dict[str, Any]:
    """All that decides a record's figures."""
    networks = trained[settings.by_rule]
    names = {"posterior": networks.model.name}
    if settings.by_rule:
        haze = networks.haze.name if joint and networks.haze else "none"
        names = {"tissue_prior": networks.model.name, "haze_prior": haze}
    return {"scene": seed, "settings": asdict(settings)} | names


def found(
    records: list[dict[str, Any]], settings: Settings, joint: bool, trained: Trained, seed: int
) -> dict[str, Any] | None:
    """The record of a row and a scene, if these very settings and priors have made it."""
    key = made_by(settings, joint, trained, seed)
    return next((r for r in records if all(r.get(name) == value for name, value in key.items())), None)


def measure(dehazer: Dehazer, seed: int) -> dict[str, Any]:
    """Figures of one scene: ``{"input": {...}, "output": {...}, "evaluations": ..., "cpu_seconds": ...}``.

    Where sampling breaks down, "error" says how, and there is no output.
    """
    truth = simulate_cine(1, seed=seed)
    hazy, span, labels = truth.hazy[0], truth.dynamic_range_db, truth.labels[0]
    wall, cavity = labels == WALL, labels == CAVITY
    enough = min(wall.sum(), cavity.sum()) >= MIN_REGION_PIXELS

    def figures(tissue: np.ndarray, haze: np.ndarray) -> dict[str, float]:
        psnr = {
            "psnr_db": metrics.psnr_db(tissue, truth.tissue[0], span),
            "haze_psnr_db": metrics.psnr_db(haze, truth.haze[0], span),
        }
        regions = {
            "gcnr": metrics.gcnr(tissue[wall], tissue[cavity]),
            "ks_tissue": metrics.ks(hazy[wall], tissue[wall]),
            "ks_haze": metrics.ks(hazy[cavity], tissue[cavity]),
        }
        return psnr | regions if enough else psnr

    began = time.process_time()
    try:
        result = dehazer.dehaze(truth.cine)
    except UsdehazeError as error:
        return {"input": figures(hazy, hazy), "error": str(error)}
    seconds = time.process_time() - began
    return {
        "input": figures(hazy, hazy),
        "output": figures(result.tissue[0], result.haze[0]),
        "evaluations": result.settings["evaluations"],
        "cpu_seconds": round(seconds, 2),
    }


def table(
    records: list[dict[str, Any]],
    rows: list[tuple[Settings, bool]],
    trained: Trained,
    n_scenes: int,
    command: str,
) -> list[str]:
    """The Markdown table: a line for the input, then one a row, means over the scenes."""
    seeds = range(FIRST_SEED, FIRST_SEED + n_scenes)
    heads = ["rule", "observation", "sampler", "steps", *HEADINGS, "network passes a frame", "CPU s a frame"]
    lines = [
        "# Rules, observation models and steps",
        "",
        f"    {command}",
        "",
        f"Means over one frame of each of {n_scenes} simulated scenes (seeds {seeds[0]} to {seeds[-1]}), truth known,",
        "never trained on. `stochastic` with the other settings of the fast preset, `euler-maruyama` with those of the",
        "paper preset; lambda and kappa are the rule's own. alone: without a haze prior, all that is not tissue is",
        "Gaussian noise. CPU seconds of one core; other work on the machine slows it down.",
        "",
        f"Networks: {', '.join(name for each in trained.values() for name in priors_of(each).values())}.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    first = True
    for settings, joint in rows:
        of_row = [r for seed in seeds if (r := found(records, settings, joint, trained, seed)) is not None]
        if first:
            lines.append(line(["input", "", "", ""], [r["input"] for r in of_row], ["", ""]))
            first = False
        model = settings.observation if joint else "alone (Gaussian noise)"
        if not settings.by_rule:
            model = ""
        names = [settings.guidance, model, settings.sampler, str(settings.steps)]
        done = [r for r in of_row if "output" in r]
        if len(done) < len(of_row):
            lines.append(line(names, [], [f"broke down in {len(of_row) - len(done)} of {len(of_row)} scenes", ""]))
            continue
        cost = [
            mean([float(r[what]) for r in done], digits) for what, digits in (("evaluations", 0), ("cpu_seconds", 1))
        ]
        lines.append(line(names, [r["output"] for r in done], cost))
    return lines


def line(names: list[str], figures: list[dict[str, float]], cost: list[str]) -> str:
    """One line of the table."""
    cells = [mean([f[c] for f in figures if c in f], 2 if "psnr" in c else 3) for c in COLUMNS]
    return "| " + " | ".join([*names, *cells, *cost]) + " |"


def mean(values: list[float], digits: int) -> str:
    """Mean of what there is."""
    return f"{np.mean(values):.{digits}f}" if values else ""


if __name__ == "__main__":
    main()
