"""Every guidance rule and observation model at 10 to 600 steps, truth known: ``python -m validation.table``.

Up to 100 steps with the sampler of the fast preset, from 100 steps on with that of the paper preset (Euler-Maruyama
from noise, one sample): each preset's other settings are kept, lambda and kappa are the rule's own. "alone" is the rule
without a haze prior: what is not tissue is Gaussian noise. The learned posterior, which has neither rule nor
observation model, stands beside them as the default has it, and up to 100 steps. Scenes are those of ``usdehaze
validate``, one frame each. Every row leaves a record a scene in --work: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.registry import LEARNED, OBSERVATIONS, RULES
from usdehaze.dehazing.settings import PRESETS, WITH_RULES, Settings
from usdehaze.errors import UsdehazeError
from usdehaze.validation.benchmark import FIRST_SEED
from usdehaze.validation.evaluate import write_json
from usdehaze.validation.scene import Decomposed, Split, hazy_figures
from validation.markdown import head, mean, row
from validation.paths import RESULTS, RUNS
from validation.records import Records, priors_of
from validation.scenes import simulated_scene

STEPS = (10, 20, 40, 100, 600)
MOST_OF_FAST, FEWEST_OF_PAPER = 100, 100
COLUMNS = ("psnr_db", "haze_psnr_db", "gcnr", "ks_tissue", "ks_haze")
Trained = dict[bool, Dehazer]  # by whether a rule guides it
HEADINGS = ("PSNR of tissue, dB", "PSNR of haze, dB", "gCNR", "KS walls", "KS cavities")


def main() -> None:
    """Measures what is missing, then writes figures and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=2, help="scenes of one frame each (2)")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="numbers of steps (10 20 40 100 600)")
    parser.add_argument("--json", type=Path, default=RESULTS / "table.json", help="the figures")
    parser.add_argument("--work", type=Path, default=RUNS / "table", help="where records are kept")
    parser.add_argument("--markdown", type=Path, default=RESULTS / "TABLE.md", help="the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    learned, by_rule = (Dehazer.from_pretrained(guidance=name, device="cpu") for name in (LEARNED, "proximal"))
    trained = {False: learned, True: by_rule}
    rows = list(plan(args.steps))
    kept = Records(args.work, "validation.table")
    records: list[list[dict[str, Any]]] = [[] for _ in rows]
    for seed in range(FIRST_SEED, FIRST_SEED + args.scenes):
        for of_row, (settings, joint) in zip(records, rows, strict=True):
            networks = trained[settings.by_rule]
            dehazer = Dehazer(networks.model, networks.haze if joint else None, settings, "cpu")
            by = {"priors": priors_of(dehazer), "settings": asdict(settings)}
            of_row.append(kept.kept("table", f"simulation-{seed}", by, partial(measure, dehazer, seed)) | by)
    command = f"python -m validation.table --scenes {args.scenes} --steps {' '.join(map(str, args.steps))}"
    write_json(args.json, {"command": command, "records": [record for of_row in records for record in of_row]})
    lines = table(dict(zip(rows, records, strict=True)), trained, command)
    args.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def plan(steps: list[int]) -> Iterator[tuple[Settings, bool]]:
    """Settings of every row, and whether there is a haze prior; cheap rows first."""
    yield PRESETS["fast"], True
    for n in sorted(steps):
        if PRESETS["fast"].steps != n <= MOST_OF_FAST:
            yield replace(PRESETS["fast"], steps=n), True
        presets = [WITH_RULES["fast"]] * (n <= MOST_OF_FAST) + [WITH_RULES["paper"]] * (n >= FEWEST_OF_PAPER)
        for preset in presets:
            for guidance in RULES:
                models = ("additive",) if guidance == "projection" else OBSERVATIONS
                for model in models:
                    yield replace(preset, guidance=guidance, observation=model, steps=n), True
                yield replace(preset, guidance=guidance, observation="additive", steps=n), False


def measure(dehazer: Dehazer, seed: int) -> dict[str, Any]:
    """Figures of one scene: ``{"input": {...}, "output": {...}, "evaluations": ..., "cpu_seconds": ...}``.

    Where sampling breaks down, "error" says how, and there is no output.
    """
    scene = simulated_scene(seed, 1)

    def figures(split: Decomposed) -> dict[str, float]:
        record = hazy_figures(scene, split)
        return {name: record[name]["tissue"] for name in COLUMNS if name in record}

    untouched = figures(Split(scene.hazy.frames, scene.hazy.frames))
    began = time.process_time()
    try:
        result = dehazer.dehaze(scene.hazy)
    except UsdehazeError as error:
        return {"input": untouched, "error": str(error)}
    seconds = time.process_time() - began
    return {
        "input": untouched,
        "output": figures(result),
        "evaluations": result.settings["evaluations"],
        "cpu_seconds": round(seconds, 2),
    }


def table(rows: dict[tuple[Settings, bool], list[dict[str, Any]]], trained: Trained, command: str) -> list[str]:
    """The Markdown table: a line for the input, then one a row, means over the scenes."""
    n_scenes = len(next(iter(rows.values())))
    seeds = range(FIRST_SEED, FIRST_SEED + n_scenes)
    heads = ["observation", "sampler", "steps", *HEADINGS, "network passes a frame", "CPU s a frame"]
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
        *head("rule", heads),
    ]
    lines.append(line(["input", "", "", ""], [r["input"] for r in next(iter(rows.values()))], ["", ""]))
    for (settings, joint), of_row in rows.items():
        told = settings.told()  # without an observation model for the learned posterior
        model = told.get("observation", "") if joint else "alone (Gaussian noise)"
        names = [told["guidance"], model, told["sampler"], str(settings.steps)]
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
    return row(names[0], [*names[1:], *cells, *cost])


if __name__ == "__main__":
    main()
