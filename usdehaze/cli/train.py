"""``usdehaze train``: a prior or a posterior from simulated frames, or from one's own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from usdehaze.choices import NETWORK_KINDS, SCENES, NetworkKind
from usdehaze.cli.group import INTERRUPTED, Console, common_options, console_of
from usdehaze.cli.options import SEED, Device, Number, reading_options, take_reading
from usdehaze.cli.progress import step_progress
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.plain_text import one_line
from usdehaze.stopping import ending

if TYPE_CHECKING:
    import torch

    from usdehaze.io import Reading
    from usdehaze.training.data import FrameSource, SimulatedFrames, StoredFrames
    from usdehaze.training.train import Model, Recipe, Told

POSTERIOR: Final = "posterior"
NETWORKS = {"fast-unet": "FastUNet", "ncsnv2": "NCSNv2"}
DEFAULTS: dict[str, dict[str, Any]] = {  # of each network, for NCSNv2 the paper's; and of a posterior
    "FastUNet": {"parametrisation": "denoiser", "grid": (128, 128), "steps": 8000, "batch": 16, "lr": 1e-3},
    POSTERIOR: {
        "parametrisation": POSTERIOR, "grid": (128, 128), "steps": 12000, "batch": 12, "lr": 1e-3,
        "config": {"channels": [32, 48, 96, 192], "blocks": [1, 1, 1, 2]},
    },
    "NCSNv2": {"parametrisation": "score", "grid": (64, 64), "steps": 8000, "batch": 8, "lr": 5e-4},
}  # fmt: skip
SIMULATED = "simulated"


class Grid(click.ParamType):
    """``DEPTHxANGLE``: two positive numbers."""

    name = "depthxangle"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", str(value), re.ASCII)
        if match is None or min(map(int, match.groups())) < 8:
            self.fail(f"{value!r} is not a grid such as 128x128, of 8x8 or more", param, ctx)
        return int(match[1]), int(match[2])


class Several(click.Command):
    """A command whose ``--tissue`` and ``--haze`` take all the words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = None
        for word in args:
            if word.startswith("-"):
                option = word if word in ("--tissue", "--haze") else None
                spread += [] if option else [word]
            else:
                spread += [option, word] if option else [word]
        return super().parse_args(ctx, spread)


@click.command(cls=Several)
@click.argument("kind", type=click.Choice(NETWORK_KINDS))
@click.argument("data", nargs=-1, metavar="[DATA...]")
@click.option(
    "--tissue", multiple=True, metavar="DATA...", help='For a posterior: scans with tissue alone, or "simulated".'
)
@click.option(
    "--haze", multiple=True, metavar="DATA...", help='For a posterior: scans with haze alone, or "simulated".'
)
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="PRIOR", help="What to write, .safetensors."
)
@click.option("--network", type=click.Choice(list(NETWORKS)), help="fast-unet by default.")
@click.option("--images", type=click.Choice(["grey", "colour"]), help="DATA are plain images or arrays, not scans.")
@click.option("--blend", type=Number(0.01, 0.99), metavar="SHARE", help="Posterior of images: share of haze.")
@click.option("--no-mirror", is_flag=True, help="Left and right matter in the images (digits, letters).")
@click.option("--parametrisation", type=click.Choice(["denoiser", "score"]), help="What it learns; the network's own.")
@click.option("--from-prior", metavar="P", help="Fine-tune this prior: a file, or the name of a shipped one.")
@click.option("--steps", type=click.IntRange(1, 10**8), help="Optimiser steps; 8000, of a posterior 12000.")
@click.option("--batch", type=click.IntRange(1, 10**5), help="Frames a step, of each process.")
@click.option("--lr", type=Number(1e-8, 1), metavar="RATE", help="Learning rate of Adam.")
@click.option("--grid", type=Grid(), metavar="DEPTHxANGLE", help="Grid of the frames.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of weights, frames and noise.")
@click.option("--device", type=Device(), default="auto", show_default=True, metavar="auto|cpu|cuda|cuda:N")
@click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16"]), default="fp32", show_default=True)
@click.option(
    "--scenes", type=click.Choice(SCENES), default=SCENES[0], show_default=True, help="What simulated pairs show."
)
@click.option("--pool", type=click.IntRange(1, 10**6), default=1024, show_default=True, help="Simulated frames kept.")
@click.option("--fresh", type=click.IntRange(1, 10**4), default=4, show_default=True, help="New ones at every step.")
@click.option(
    "--sync", type=click.IntRange(1, 10**6), default=1, show_default=True, help="Steps between meetings of processes."
)
@click.option(
    "--checkpoint-every", type=click.IntRange(1, 10**8), default=250, show_default=True, metavar="STEPS",
    help="Steps between checkpoints.",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a prior that exists.")
@reading_options
@common_options
@click.pass_context
def train(ctx: click.Context, kind: NetworkKind, data: Any, out: Path, overwrite: bool, **options: Any) -> None:
    """Trains a prior, what TISSUE or HAZE alone looks like, or a POSTERIOR, how a frame is split into the two.

    DATA are scans or folders of scans with nothing but that in them; without any, or with the word "simulated", frames
    are simulated. With --images they are any pictures: files, folders, .zip files, .npy or .npz arrays.
    A posterior learns from unpaired frames: train posterior --tissue DATA... --haze DATA... A run that
    was interrupted goes on from its last checkpoint, in PRIOR.run, when started again. On several GPUs:
    torchrun --nproc-per-node N -m usdehaze train ...
    """
    if out.suffix != ".safetensors":
        raise click.BadParameter(f"{out} must end in .safetensors", ctx, param_hint="'-o'")
    data = _data(kind, data, options.pop("tissue"), options.pop("haze"))
    reading = take_reading(options)
    with _processes() as rank:
        finished = _Run(kind, out, overwrite, options, console_of(ctx), rank).go(data, reading)
    if not finished:
        ctx.exit(INTERRUPTED)


Data = dict[str, tuple[str, ...]]  # scans by what they show; empty for simulated frames


def _data(kind: str, data: tuple[str, ...], tissue: tuple[str, ...], haze: tuple[str, ...]) -> Data:
    """Scans to learn from.

    Raises:
        click.UsageError: scans of one kind without the other, or where they do not belong.
    """
    if any(SIMULATED in names and len(names) > 1 for names in (data, tissue, haze)) or (
        SIMULATED in data and (tissue or haze)
    ):
        raise click.UsageError(f"frames are either {SIMULATED} or from scans")
    if data == (SIMULATED,):
        return {}
    if kind != POSTERIOR:
        if tissue or haze:
            raise click.UsageError(f"--tissue and --haze are for a posterior; name the scans after {kind}")
        return {kind: data} if data else {}
    if data or bool(tissue) != bool(haze):
        raise click.UsageError("a posterior needs scans of both: --tissue DATA... --haze DATA..., or none to simulate")
    return {"tissue": tissue, "haze": haze} if tissue and (tissue, haze) != ((SIMULATED,), (SIMULATED,)) else {}


class _Run:
    """One run, in one of the processes that train together; the first one (rank 0) writes and speaks."""

    def __init__(
        self, kind: NetworkKind, out: Path, overwrite: bool, options: dict[str, Any], console: Console, rank: int
    ) -> None:
        self.kind, self.out, self.overwrite, self.options, self.console = kind, out, overwrite, options, console
        self.first = rank == 0
        self.folder = out.with_suffix(".run")
        self.what = kind if kind == POSTERIOR else f"{kind} prior"

    def go(self, data: Data, reading: Reading) -> bool:
        """Trains, and writes prior and sheet; False where the run was stopped before its end."""
        from usdehaze.io.atomic import PartFile

        self._check_reading(data, reading)
        if not self.first:
            return self._train(data, reading)
        lock = PartFile(self.out, self.overwrite)  # an error now if it exists or another run is at work
        try:
            self._check_targets(data)
            return self._train(data, reading)
        finally:
            lock.discard()

    def _check_reading(self, data: Data, reading: Reading) -> None:
        """Refuses options for reading scans where there are none; images may be those of a dataset."""
        from usdehaze.io.reading import Reading

        scans = set(data.values()) - {(SIMULATED,)}
        if self.options["images"] and scans:
            scans, reading = set(), replace(reading, dataset=None)
        if not scans and reading != Reading():
            raise click.UsageError("options for reading, such as --units, are for scans")

    def _check_targets(self, data: Data) -> None:
        """Finds out before long work whether card and sheet, too, can be written, and are none of DATA."""
        from usdehaze.io import list_scans
        from usdehaze.io.atomic import check_target

        named = [name for names in data.values() if names != (SIMULATED,) for name in names]
        sources = {Path(path).resolve() for path in (named if self.options["images"] else list_scans(named))}
        for suffix in (".json", ".png"):
            target = self.out.with_suffix(suffix)
            if sources & {target.resolve(), *target.resolve().parents}:
                raise InputError(target, "would be written among what is learned from", "another name or folder")
            check_target(target, self.overwrite)

    def _train(self, data: Data, reading: Reading) -> bool:
        from usdehaze.training.scans import write_sheet
        from usdehaze.training.train import train

        device = _device(self.options["device"])
        parent = self._parent()
        recipe = self._recipe(parent)
        source = self._source(data, recipe, reading)
        checkpoint = self.folder / "checkpoint.safetensors"
        with (
            ending() as asked,
            step_progress(self.what, recipe.steps, self.console.quiet or not self.first) as progress,
        ):
            prior = train(
                recipe, source, self.out, checkpoint, device=device, begin_with=parent,
                every=self.options["checkpoint_every"], tell=self._teller(recipe, progress), stop=asked.is_set,
                command=self._command(recipe, data),
            )  # fmt: skip
        if prior is None:
            if self.first:
                kept = checkpoint.exists()
                goes_on = f"; the same command goes on from {checkpoint}" if kept else " before the first step"
                self.console.say(f"stopped{goes_on}")
            return False
        if self.first:
            sheet = self.out.with_suffix(".png")
            write_sheet(sheet, prior, source, recipe.seed, overwrite=True)
            made = f"{self.out}, {self.out.with_suffix('.json')}, {sheet}"
            self.console.say(f"{self.what} of {source.description} -> {made}")
        return True

    def _parent(self) -> Model | None:
        if self.options["from_prior"] is None:
            return None
        from usdehaze.priors.posterior import LearnedPosterior
        from usdehaze.priors.prior import Prior

        which = self.options["from_prior"]
        return LearnedPosterior.load(which) if self.kind == POSTERIOR else Prior.load(which, self.kind)

    def _recipe(self, parent: Model | None) -> Recipe:
        """Options, then what the prior to fine-tune has, then the network's defaults."""
        from usdehaze.training.train import Recipe

        given = {k: self.options[k] for k in ("network", "parametrisation", "grid", "steps", "batch", "lr")}
        given = {k: v for k, v in given.items() if v is not None}
        if "network" in given:
            given["network"] = NETWORKS[given["network"]]
        has: dict[str, Any] = {}
        if parent is not None:
            has = {
                "network": type(parent.network).__name__,
                "parametrisation": getattr(parent, "parametrisation", POSTERIOR),
            }
            for option, value in has.items():
                if given.get(option, value) != value:
                    raise click.UsageError(f"{self.options['from_prior']} is a {value} prior: leave out --{option}")
            has |= {"config": parent.network.config, "grid": tuple(parent.card["grid"])}
        network = {**has, **given}.get("network", "FastUNet")
        if self.kind == POSTERIOR and (network != "FastUNet" or "parametrisation" in given):
            raise click.UsageError("a posterior has a fast-unet and a parametrisation of its own")
        defaults = DEFAULTS[POSTERIOR if self.kind == POSTERIOR else network]
        settings = {"network": network, **defaults, **has, **given}
        return Recipe(
            self.kind,
            **settings,
            seed=self.options["seed"],
            precision=self.options["precision"],
            sync=self.options["sync"],
        )

    def _source(self, data: Data, recipe: Recipe, reading: Reading) -> FrameSource:
        images, mirror = self.options["images"], not self.options["no_mirror"]
        blend: float | None = self.options["blend"]
        if images and (not data or (SIMULATED,) in data.values()):
            raise click.UsageError("--images needs DATA")
        if bool(blend) != bool(images and self.kind == POSTERIOR):
            raise click.UsageError("a posterior of --images takes --blend SHARE, and nothing else does")
        if self.options["scenes"] != SCENES[0] and (self.kind != POSTERIOR or data):
            raise click.UsageError("--scenes is for a posterior of simulated frames alone")
        if images is None and not mirror:
            raise click.UsageError("--no-mirror is for --images")
        if images:
            from usdehaze.training.images import BlendedImages, StoredImages, different, read_images

            found = {k: read_images(v, recipe.grid, images == "colour", reading.dataset) for k, v in data.items()}
            read = {k: different(v, data[k][0]) for k, v in found.items()}
            if blend:
                return BlendedImages.of(read["tissue"], read["haze"], blend, (mirror, mirror))
            return StoredImages(read[self.kind], mirror)
        from usdehaze.training.data import HAZE_PICKS, PICKS, Pairs, shared

        if self.kind == POSTERIOR and data:
            tissue = self._side("tissue", data["tissue"], recipe, reading, PICKS)
            haze = self._side("haze", data["haze"], recipe, reading, HAZE_PICKS)
            if n_shared := shared(tissue, haze):
                raise click.UsageError(
                    f"--tissue and --haze have {n_shared} frames in common; scans show either, and nothing of the other"
                )
            return Pairs(tissue, haze)
        return self._side(self.kind, data.get(self.kind, (SIMULATED,)), recipe, reading, PICKS)

    def _side(
        self, kind: str, names: tuple[str, ...], recipe: Recipe, reading: Reading, purpose: int
    ) -> SimulatedFrames | StoredFrames:
        """Frames of scans, or simulated ones where that is the only word."""
        if names == (SIMULATED,):
            from usdehaze.training.data import SimulatedFrames

            pool, fresh = self.options["pool"], self.options["fresh"]
            if pool % fresh:
                raise click.UsageError(f"--pool must be a multiple of --fresh, found {pool} and {fresh}")
            return SimulatedFrames(kind, recipe.grid, pool, fresh, purpose, self.options["scenes"])
        from usdehaze.io import list_scans
        from usdehaze.training.scans import frames_of_scans

        tell = self.console.note if self.first else None
        return frames_of_scans(list_scans(names), recipe.grid, reading, purpose, tell)

    def _teller(self, recipe: Recipe, progress: Callable[[int, float], None] | None) -> Callable[[Told], None]:
        """Moves the bar at every step; at checkpoints a line goes to the log, and to stderr where there is no bar."""
        since: list[Told] = []

        def tell(told: Told) -> None:
            since.append(told)
            if progress:
                progress(told.step, told.loss)
            if told.held_out is None or not self.first:
                return
            seconds = sum(t.seconds for t in since) / len(since)
            left = (recipe.steps - told.step) * seconds / 60
            line = (
                f"{self.kind} step {told.step}/{recipe.steps} loss {sum(t.loss for t in since) / len(since):.4f} "
                f"held out {told.held_out:.4f} {seconds:.2f} s/step, {left:.0f} min left"
            )
            since.clear()
            with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
                log.write(line + "\n")
            if progress is None and not self.console.quiet:
                click.echo(one_line(line), err=True)

        return tell

    def _command(self, recipe: Recipe, data: Data) -> str:
        """The command as the card has it: no name of a file, since it may name a patient."""
        network = next(option for option, name in NETWORKS.items() if name == recipe.network)
        parent = self.options["from_prior"]
        words = {kind: SIMULATED if names == (SIMULATED,) else "DATA..." for kind, names in data.items()}
        named = [f"--{kind} {word}" if self.kind == POSTERIOR else word for kind, word in words.items()] or [SIMULATED]
        simulates = any(word.endswith(SIMULATED) for word in named)
        told = [
            f"usdehaze train {self.kind}", *named, "-o PRIOR", f"--network {network}",
            *([] if self.kind == POSTERIOR else [f"--parametrisation {recipe.parametrisation}"]),
            *(["--from-prior PRIOR"] if parent else []),
            f"--grid {recipe.grid[0]}x{recipe.grid[1]} --steps {recipe.steps} --batch {recipe.batch}",
            f"--lr {recipe.lr:g} --seed {recipe.seed} --precision {recipe.precision}",
            *([f"--images {self.options['images']}"] if self.options["images"] else []),
            *([f"--blend {self.options['blend']:g}"] if self.options["blend"] else []),
            *(["--no-mirror"] if self.options["no_mirror"] else []),
            *([f"--sync {recipe.sync}"] if recipe.sync > 1 else []),
            *([f"--scenes {self.options['scenes']}"] if self.options["scenes"] != SCENES[0] else []),
            *([f"--pool {self.options['pool']} --fresh {self.options['fresh']}"] if simulates else []),
        ]  # fmt: skip
        return " ".join(told)


@contextmanager
def _processes() -> Iterator[int]:
    """Joins the processes that ``torchrun`` started; yields the rank of this one, 0 where there is no other."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0
        return
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def _device(name: str) -> torch.device:
    """The device asked for; of several processes each takes a GPU of its own."""
    import torch

    from usdehaze.dehazing.device import find_device

    try:
        device = find_device(name)
    except UsdehazeError as error:
        raise click.UsageError(str(error)) from None
    return torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device
