"""Types of option values, and options read from a YAML file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from usdehaze.budget import read_text
from usdehaze.choices import ENGINES, PRECISIONS, PREVIEW_KINDS, TRANSFER_SYNTAXES, UNITS
from usdehaze.dehazing.registry import LEARNED, OBSERVATIONS, RULES, SAMPLERS
from usdehaze.dehazing.settings import PRESETS, settings_of
from usdehaze.errors import InputError, UsdehazeError

if TYPE_CHECKING:
    from usdehaze.io.reading import Reading

MAX_CONFIG_BYTES = 2**16
PATH = click.Path(path_type=Path)
SEED = click.IntRange(0, 2**63 - 1)
_Command = TypeVar("_Command", bound=Callable[..., Any])


class FrameRange(click.ParamType):
    """``START:STOP``, either side may be left out: a slice."""

    name = "start:stop"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> slice:
        if isinstance(value, slice):
            return value
        match = re.fullmatch(r"(\d{0,9}):(\d{0,9})", str(value).strip(), re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a range of frames such as 0:30", param, ctx)
        start, stop = (int(part) if part else None for part in match.groups())
        if stop is not None and stop <= (start or 0):
            self.fail(f"{value!r} holds no frame", param, ctx)
        return slice(start, stop)


class LevelRange(click.ParamType):
    """``BLACK:WHITE``: two different numbers."""

    name = "black:white"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        try:
            black, white = map(float, str(value).split(":"))
        except ValueError:
            black = white = math.nan
        if not (math.isfinite(black) and math.isfinite(white) and black != white):
            self.fail(f"{value!r} is not black and white such as 0:255", param, ctx)
        return black, white


class Number(click.ParamType):
    """A finite number within ``[low, high]``."""

    name = "number"

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self.low <= number <= self.high:  # also for NaN
            self.fail(f"{value!r} is not a number from {self.low:g} to {self.high:g}", param, ctx)
        return number


class Device(click.ParamType):
    """``auto``, ``cpu``, ``cuda``, ``cuda:N``, or several of the last with commas between them."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"auto|cpu|cuda|cuda:\d{1,3}(,cuda:\d{1,3})*", str(value), re.ASCII):
            self.fail(f"{value!r} is not one of auto, cpu, cuda, cuda:N", param, ctx)
        return str(value)


class BatchSize(click.ParamType):
    """A positive number of frames, or ``auto``."""

    name = "n|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if str(value) == "auto":
            return "auto"
        if not re.fullmatch(r"0*[1-9]\d{0,6}", str(value), re.ASCII):
            self.fail(f"{value!r} is not a positive number of frames, nor 'auto'", param, ctx)
        return int(value)


def _with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    """The command with these options, listed by --help in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def model_options(command: _Command) -> _Command:
    """Adds the options that say how and with which priors to dehaze; what is None is left to the preset."""
    options = (
        click.option(
            "--preset", type=click.Choice(tuple(PRESETS)), default="fast", show_default=True, help="Settings."
        ),
        click.option(
            "--guidance",
            type=click.Choice((LEARNED, *RULES)),
            help="The learned posterior, or a rule for two priors; the preset's.",
        ),
        click.option(
            "--observation", type=click.Choice(tuple(OBSERVATIONS)), help="Observation model; the preset's by default."
        ),
        click.option(
            "--sampler",
            type=click.Choice(tuple(SAMPLERS)),
            metavar="NAME",
            help=f"Sampler: {', '.join(SAMPLERS)}; the preset's by default.",
        ),
        click.option("--posterior", metavar="P", help="Another learned posterior."),
        click.option("--tissue-prior", metavar="P", help="Another tissue prior; a rule then guides the two priors."),
        click.option("--haze-prior", metavar="P", help="Another haze prior."),
        click.option(
            "--device", type=Device(), default="auto", show_default=True, metavar="auto|cpu|cuda|cuda:N[,cuda:M]"
        ),
        click.option(
            "--engine",
            type=click.Choice(("auto", *ENGINES)),
            default="auto",
            show_default=True,
            help="What runs the learned posterior; auto is torch.",
        ),
        click.option(
            "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="Of the networks."
        ),
    )
    return _with_options(command, options)


def sampling_options(command: _Command) -> _Command:
    """Adds the options that say how samples are drawn and what is made of them; what is None is left to the preset."""
    options = (
        click.option(
            "--lambda", "lambda_", type=Number(0, 1000), metavar="X", help="Guidance's pull on tissue; with --kappa."
        ),
        click.option("--kappa", type=Number(0, 1000), metavar="X", help="Guidance's pull on haze; with --lambda."),
        click.option("--steps", type=click.IntRange(1, 100_000), help="Sampling steps; the preset's by default."),
        click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random streams."),
        click.option(
            "--strength",
            type=Number(0, 1),
            default=1.0,
            show_default=True,
            help="Scales the removal in dB: 0 nothing, 1 all.",
        ),
        click.option(
            "--samples",
            type=click.IntRange(1, 10_000),
            help="Posterior samples of every frame; the preset's by default.",
        ),
        click.option(
            "--caution",
            type=Number(0, 1),
            help="Quantile of the gain over samples: 0.5 the median, towards 1 more haze stays; the preset's by "
            "default.",
        ),
        click.option(
            "--batch-size", type=BatchSize(), default="auto", show_default=True, metavar="N|auto", help="Frames."
        ),
        click.option("--frames", type=FrameRange(), metavar="0:30", help="Range of frames; all by default."),
    )
    return _with_options(command, options)


def removal_options(command: _Command) -> _Command:
    """Adds those of `sampling_options` that say how much is removed, and the seed."""
    options = (
        click.option("--caution", type=Number(0, 1), help="As of process; the preset's by default."),
        click.option("--strength", type=Number(0, 1), default=1.0, show_default=True, help="As of process."),
        click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random streams."),
    )
    return _with_options(command, options)


def output_options(command: _Command) -> _Command:
    """Adds the options that say which files are made beside the result, and how."""
    options = (
        click.option(
            "--format", "formats", type=click.Choice(["zea"]), help="Also write STEM.dehazed.zea.hdf5, for zea."
        ),
        click.option("--save-haze", is_flag=True, help="DICOM input: also write the haze, STEM.dehazed.haze.dcm."),
        click.option(
            "--transfer-syntax",
            type=click.Choice(TRANSFER_SYNTAXES),
            default="explicit",
            show_default=True,
            help="Of DICOM results; all are lossless.",
        ),
        click.option("--preview", type=click.Choice(PREVIEW_KINDS), help="Also draw input, tissue and haze."),
        click.option("--review", is_flag=True, help="Also make the review page, STEM.review.html."),
        click.option(
            "--with-screen",
            is_flag=True,
            help="Preview and review: show the screen around the images, names and all.",
        ),
        click.option("--mark", is_flag=True, help='DICOM results: write "haze removed" into the picture.'),
    )
    return _with_options(command, options)


def scale_of(tissue: float | None, haze: float | None) -> tuple[float, float] | None:
    """``--lambda`` and ``--kappa`` together; None where neither is given.

    Raises:
        click.UsageError: one without the other.
    """
    if tissue is None or haze is None:
        if tissue is not haze:
            raise click.UsageError("--lambda and --kappa go together: give both or neither")
        return None
    return tissue, haze


def check_model(options: dict[str, Any]) -> None:
    """Refuses options of the model that do not go together before any scan is looked at.

    Args:
        options: of `model_options` and `sampling_options`, others among them.

    Raises:
        click.UsageError: they do not.
    """
    try:
        settings_of(**options)
    except UsdehazeError as error:
        raise click.UsageError(str(error)) from error


def region_options(command: _Command) -> _Command:
    """Adds ``--labels`` and ``--margin``, for regions that ``--roi`` names."""
    options = (
        click.option(
            "--labels",
            metavar="TEXT",
            help='What stands for the roles in label images and segments: "tissue=170 haze=85", and faint=60.',
        ),
        click.option(
            "--margin",
            "margin_px",
            type=Number(0, 1000),
            metavar="PX",
            help="Erode the regions by PX pixels; 3 with --labels, else 0, by default.",
        ),
    )
    return _with_options(command, options)


def check_regions(roi: object, labels: str | None, margin_px: float | None) -> None:
    """Refuses `region_options` where there are no regions that they could be about.

    Raises:
        click.UsageError: there are none.
    """
    if roi is None and (labels, margin_px) != (None, None):
        raise click.UsageError("--labels and --margin are for --roi")
    if str(roi) == "auto" and (labels, margin_px) != (None, None):
        raise click.UsageError("--labels and --margin are for regions that somebody drew; --roi auto finds its own")


def reading_options(command: _Command) -> _Command:
    """Adds the options that say what a file does not, ``--units`` and the like."""
    options = (
        click.option("--dataset", metavar="NAME", help="Dataset inside the HDF5 file, where several could be frames."),
        click.option("--axes", metavar="AXES", help="Its axes in stored order, e.g. THW, HWT, THWC; else guessed."),
        click.option("--units", type=click.Choice(UNITS, case_sensitive=False), help="What it holds; else guessed."),
        click.option(
            "--dynamic-range", "dynamic_range_db", type=Number(1, 200), metavar="DB", help="Dynamic range, dB."
        ),
        click.option("--force", is_flag=True, help="Go on with a screen that shows no grey-scale B-mode."),
        click.option("--levels", type=LevelRange(), metavar="BLACK:WHITE", help="Its values at the floor and at 0 dB."),
        click.option("--rectangle", is_flag=True, help="Seek no fan: the frames are a rectangle."),
        click.option("--strict", is_flag=True, help="Refuse a scan where anything has to be guessed."),
    )
    return _with_options(command, options)


def take_reading(options: dict[str, Any]) -> Reading:
    """Takes the options that say what to read of a scan out of a command's options."""
    from usdehaze.io.reading import Reading

    return Reading(**{field.name: options.pop(field.name) for field in fields(Reading) if field.name in options})


def read_config(ctx: click.Context, parameter: click.Parameter, path: str | None) -> None:
    """Callback of ``--config``: makes the values in a YAML file the command's defaults.

    Keys are the long names of the command's options without the dashes, for instance ``batch-size``; options given on
    the command line win. Values are read as the text that one would type, so that ``frames: 0:30`` is no sexagesimal
    number and every value goes through the same checks.

    Raises:
        click.BadParameter: the file cannot be read, has a key that is no option, or a value that is no single value.
    """
    if path is None:
        return
    import yaml

    try:
        text = read_text(path, MAX_CONFIG_BYTES)
        content = yaml.load(text, Loader=yaml.BaseLoader)  # strings only: nothing can be constructed
        top: Any = yaml.compose(text, Loader=yaml.BaseLoader)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise click.BadParameter(f"{path}: not YAML ({error})", ctx, parameter) from error
    if not isinstance(content, dict):
        raise click.BadParameter(f"{path}: expected lines such as 'preset: fast'", ctx, parameter)
    keys = [str(key.value) for key, _ in top.value]
    if twice := [key for key in content if keys.count(key) > 1]:
        raise click.BadParameter(f"{path}: {twice[0]} is given twice", ctx, parameter)
    options = {
        long.removeprefix("--"): option
        for option in ctx.command.params
        if isinstance(option, click.Option) and option.name not in ("config", "help", "debug", "quiet")
        for long in option.opts
        if long.startswith("--")
    }
    defaults = {}
    for key, value in content.items():
        if key not in options:
            raise click.BadParameter(f"{path}: no option {key!r}; expected {', '.join(options)}", ctx, parameter)
        if not isinstance(value, str) or not value:
            raise click.BadParameter(f"{path}: {key} must have a single value", ctx, parameter)
        defaults[str(options[key].name)] = value
    ctx.default_map = defaults


config_option = click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="YAML file with any of these options by their long names; the command line wins.",
)
