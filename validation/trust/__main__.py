"""Can the result be trusted? Do no harm, leakage, calibration, stability, and who is better; truth known.

    python -m validation.trust                     # everything that is not measured yet, then results/TRUST.md
    python -m validation.trust --only ours --only camus
    python -m validation.trust --tables            # the tables of what there is, nothing is dehazed

Scenes are simulated hearts that no prior was trained on, and clean real frames (``USDEHAZE_DATA``) under simulated
haze.
Each piece of work (one scene, one method) leaves a JSON file in --work; a rerun takes on what is missing there, or was
made with other networks, presets, method settings or code. Two runs with different --only may go on side by side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from usdehaze.validation.evaluate import write_json
from validation.baselines import GAUSSIAN_STEPS, methods
from validation.paths import RESULTS, RUNS, real_scans
from validation.records import Records
from validation.trust.study import Study, collect, unable
from validation.trust.tables import write_tables


def main(arguments: list[str] | None = None) -> None:
    """Measures what is missing and writes trust.json and TRUST.md after each piece."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulated", type=int, default=3, help="simulated scenes")
    parser.add_argument("--camus", type=int, default=2, help="labelled clean stills")
    parser.add_argument("--clean-cines", type=int, default=2, help="clean cines")
    parser.add_argument("--cines", type=int, default=2, help="simulated cines whose flicker is measured")
    parser.add_argument("--seeds", type=int, default=2, help="simulated scenes done with three seeds")
    parser.add_argument("--calibration", type=int, default=6, help="scenes to fit the std's factor on, and to test it")
    parser.add_argument("--gaussian-steps", type=int, default=GAUSSIAN_STEPS, help="of the priors without haze prior")
    parser.add_argument("--only", action="append", default=[], help="part, scenes or method; all must hold")
    parser.add_argument("--tables", action="store_true", help="write the tables only")
    parser.add_argument("--threads", type=int, default=1, help="CPU cores to use")
    parser.add_argument("--work", type=Path, default=RUNS / "trust", help="where records are kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where TRUST.md and trust.json go")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    records = Records(args.work, "validation.trust.study")
    sizes = {name: getattr(args, name) for name in ("simulated", "camus", "cines", "seeds", "calibration")}
    sizes["clean-cines"] = args.clean_cines
    study = Study(methods(args.gaussian_steps), sizes, real_scans(), records)
    for job in study.jobs():
        wanted = all(word in (job.part, job.scenes, job.method) for word in args.only)
        if args.tables or not wanted or study.record(job) is not None:
            continue
        reason = unable(study, job)
        if reason:
            print(f"left out, {reason}: {job.method}, {job.part}, {job.scenes} {job.index}", flush=True)
            continue
        study.measure(job)
        write(study, args.out)
    write(study, args.out)


def write(study: Study, out: Path) -> None:
    document = collect(study)
    write_json(out / "trust.json", document)
    write_tables(out / "TRUST.md", document)


if __name__ == "__main__":
    main()
