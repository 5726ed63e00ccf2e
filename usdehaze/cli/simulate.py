"""``usdehaze simulate``: a hazy cine whose tissue and haze are known."""

from __future__ import annotations

from pathlib import Path

import click

from usdehaze.cli.group import common_options, console_of
from usdehaze.cli.options import SEED


@click.command()
@click.argument("out", metavar="OUT.h5")
@click.option("--frames", "n_frames", type=click.IntRange(1, 10_000), default=8, show_default=True, metavar="N")
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N", help="Seed; another one, another heart.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@common_options
@click.pass_context
def simulate(ctx: click.Context, out: str, n_frames: int, seed: int, overwrite: bool) -> None:
    """Writes a simulated hazy cine with its true tissue and haze to OUT.h5, and its regions to OUT.rois.json."""
    from usdehaze.io.atomic import check_target

    check_target(out, overwrite)
    rois = Path(out).with_suffix(".rois.json")
    check_target(rois, overwrite)
    from usdehaze.io import write_simulation
    from usdehaze.simulate import simulate_cine
    from usdehaze.validation.evaluate import write_json
    from usdehaze.validation.regions.simulated import simulated_regions

    cine = simulate_cine(n_frames=n_frames, seed=seed)
    write_simulation(out, cine, overwrite)
    write_json(rois, simulated_regions(cine), indent=None)
    console_of(ctx).say(f"{out} ({n_frames} frames, seed {seed}); regions: {rois}")
