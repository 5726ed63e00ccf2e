"""Weights and cards on disk: safetensors with a JSON card beside them that holds their hash."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from usdehaze.choices import NetworkKind
from usdehaze.errors import InputError
from usdehaze.priors.cards import FORMAT, Hashes, identity_of, read_card, unusable
from usdehaze.priors.ncsnv2 import NCSNv2
from usdehaze.priors.unet import FastUNet

NETWORKS: dict[str, type[nn.Module]] = {"FastUNet": FastUNet, "NCSNv2": NCSNv2}
MAX_WIDTH, MAX_SIZES = 4096, 32  # of the numbers that describe a network, and how many there may be


def save_card(path: Path, network: nn.Module, card: dict[str, Any]) -> Hashes:
    """Writes ``path`` (safetensors) and the card beside it (``path`` with suffix ``.json``); returns their hashes.

    Raises:
        InputError: they cannot be written.
    """
    weights = {k: _rounded(v.detach().cpu()) for k, v in network.state_dict().items()}
    data = save(weights)
    digest = hashlib.sha256(data).hexdigest()
    described = {"kind": type(network).__name__, **network.config}  # type: ignore[dict-item]
    card = {"format": FORMAT, **card, "network": described, "sha256": digest}
    contents = {path: data, path.with_suffix(".json"): (json.dumps(card, indent=1) + "\n").encode()}
    parts = {target: target.with_name(f".{target.name}.new") for target in contents}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, part in parts.items():
            part.write_bytes(contents[target])
        for target, part in parts.items():  # none before both are there: weights are of no use with another card
            part.replace(target)
    except OSError as error:
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise InputError(path, f"cannot be written ({error.strerror})") from error
    return Hashes(digest, identity_of(card))


def _rounded(weights: Tensor) -> Tensor:
    """Half precision with 9 bits of its fraction: what that loses is far below 0.01 dB, and a package shrinks by more
    than half."""
    bits = weights.half().contiguous().view(torch.int16)
    return ((bits + 1) & ~1).view(torch.float16)


def _network(described: dict[str, Any], path: Path) -> nn.Module:
    """The network that a card describes, once it is known to be no larger than the weights in ``path``.

    Raises:
        LookupError, TypeError, ValueError: it is, or there is no such network.
    """
    make = NETWORKS[described.pop("kind")]
    sizes = [n for value in described.values() for n in (value if isinstance(value, list) else [value])]
    if not all(type(n) is int and 0 < n <= MAX_WIDTH for n in sizes) or len(sizes) > MAX_SIZES:
        raise ValueError("a network of other sizes than are made here")
    with safe_open(str(path), "pt") as file:
        stored = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
    if _least_weights(described) > stored:
        raise ValueError("a network of more weights than there are")
    return make(**described)


def _least_weights(described: dict[str, Any]) -> int:
    """Weights that a network of these sizes has at least: those of its 3 x 3 convolutions, two a block."""
    channels, blocks = described.get("channels", []), described.get("blocks", 1)
    each = blocks if isinstance(blocks, list) else [blocks] * len(channels)
    least = sum(2 * 9 * n * c**2 for n, c in zip(each, channels, strict=True))
    frames = described.get("inputs", 1) + described.get("outputs", 1)
    return least + 9 * frames * described.get("patch", 1) ** 2 * min(channels)


def load_card(which: str | Path, kind: NetworkKind) -> tuple[nn.Module, dict[str, Any], Hashes]:
    """Reads a network, its card and their hashes: see `usdehaze.priors.cards.read_card`.

    Raises:
        InputError: see there; weights that are not those of the card's network.
    """
    card = read_card(which, kind)
    try:
        with torch.device("meta"):  # no weights are drawn: the caller's random stream goes on
            network = _network(card.network, card.path)
        weights = {k: v.to(torch.float32, copy=True) for k, v in load_file(str(card.path)).items()}
        network.load_state_dict(weights, assign=True)
    except InputError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        raise unusable(card.path, "posterior" if kind == "posterior" else "prior", error) from None
    return network, card.values, card.hashes
