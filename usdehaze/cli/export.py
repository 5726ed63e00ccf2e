"""``usdehaze export``: a learned posterior as ONNX."""

from __future__ import annotations

import json
from pathlib import Path

import click

from usdehaze.cli.group import common_options, console_of
from usdehaze.cli.options import PATH


@click.command()
@click.argument("posterior", metavar="POSTERIOR")
@click.option("-o", "--out", required=True, type=PATH, metavar="MODEL.onnx", help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@common_options
@click.pass_context
def export(ctx: click.Context, posterior: str, out: Path, overwrite: bool) -> None:
    """Writes POSTERIOR (a file, or the name of the shipped one, "posterior") as ONNX, and its card, MODEL.onnx.json.

    Number of frames, depth and angle are free; the noise level is an input. ONNX Runtime runs the model before it is
    written: one that is not what PyTorch computes is refused.
    """
    if out.suffix != ".onnx":
        raise click.UsageError(f"{out}: expected a name that ends in .onnx")
    from usdehaze.engines.export import exported
    from usdehaze.io.atomic import atomic, check_target
    from usdehaze.priors.cards import find_weights
    from usdehaze.priors.posterior import LearnedPosterior

    source, card_path = find_weights(posterior, "posterior"), out.with_name(f"{out.name}.json")
    for target in (out, card_path):
        check_target(target, overwrite)
    model, card = exported(LearnedPosterior.load(source))
    with atomic(out, overwrite, [source]) as part, atomic(card_path, overwrite, [source]) as card_part:
        part.write_bytes(model)
        card_part.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    off = max(card["difference_to_torch"].values())
    console_of(ctx).say(f"{posterior} -> {out}, {card_path} (at most {off:.1g} off PyTorch)")
