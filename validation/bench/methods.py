"""Which methods a run of ``validation.bench`` compares: guidances, and settings of the dehazer with their values."""

from __future__ import annotations

import argparse
import ast
import inspect
from itertools import product
from typing import Any

from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.errors import UsdehazeError

OPTIONS = ("preset", "tissue_prior", "haze_prior", "steps", "samples", "device")  # of the command, and the dehazer's
OF_THE_BENCH = ("seed", "use_haze_prior", *OPTIONS)  # settings that it gives by itself, or by an option of their own


def chosen_methods(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Options of `Dehazer.from_pretrained` of every method, by a short label: each guidance with each set of values.

    Raises:
        UsdehazeError: a setting that cannot be set.
    """
    base = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    names, values = [], []
    for text in args.set or ():
        name, alternatives = _setting(text)
        names.append(name)
        values.append(alternatives)
    methods = {}
    for guidance, *these in product(args.methods or [None], *values):
        given = dict(zip(names, these, strict=True))
        label = ", ".join([guidance or args.preset, *(f"{name} {value}" for name, value in given.items())])
        methods[label] = base | ({"guidance": guidance} if guidance else {}) | given
    return methods


def _setting(text: str) -> tuple[str, list[Any]]:
    """``name=value`` or ``name=value,value`` as name and values: numbers and so on where they read as such."""
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise UsdehazeError(f"--set takes NAME=VALUE, or NAME=VALUE,VALUE to compare, found {text!r}")
    known = [known for known in inspect.signature(Dehazer.from_pretrained).parameters if known not in OF_THE_BENCH]
    if name not in known:
        raise UsdehazeError(f"--set knows no setting {name!r}; there are {', '.join(known)}")
    return name, [_literal(value) for value in values.split(",")]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
