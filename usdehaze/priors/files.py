"""Weights and cards on disk: safetensors with a JSON card beside them that holds their hash."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from usdehaze.budget import file_sha256, read_text
from usdehaze.choices import NETWORK_KINDS, PRIOR_KINDS, NetworkKind
from usdehaze.errors import InputError
from usdehaze.plain_text import brief
from usdehaze.priors.ncsnv2 import NCSNv2
from usdehaze.priors.unet import FastUNet

NETWORKS: dict[str, type[nn.Module]] = {"FastUNet": FastUNet, "NCSNv2": NCSNv2}
WEIGHTS = Path(__file__).parent / "weights"
MAX_CARD_BYTES = 2**20
MAX_WIDTH, MAX_SIZES = 4096, 32  # of the numbers that describe a network, and how many there may be
FORMAT = "usdehaze-prior"
TOLD_LATER = "bench"  # key of a card: figures that were measured on what it describes

_SHARE, _SPREAD, _LEVEL = (0.0, 1.0), (1e-6, 1.0), (1e-6, 1e6)  # of model units, [0, 1] frames
RANGES = {
    "data_mean": _SHARE, "data_std": _SPREAD, "frame_mean": _SHARE, "frame_std": _SPREAD,
    "tissue_std": _SPREAD, "haze_std": _SPREAD, "sigma_min": _LEVEL, "sigma_max": _LEVEL,
}  # fmt: skip
NEEDED: dict[str, tuple[str, ...]] = {
    "posterior": ("frame_mean", "frame_std", "tissue_std", "haze_std", "sigma_max"),
    **{kind: ("data_mean", "data_std") for kind in PRIOR_KINDS},
}
SIDES = (8, 4096)  # of a grid, samples


class Hashes(NamedTuple):
    """SHA-256 of the weights' file; and of card and weights together, which is what results quote."""

    weights: str
    identity: str


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, content in (
            (path, data),
            (path.with_suffix(".json"), (json.dumps(card, indent=1) + "\n").encode()),
        ):
            part = target.with_name(f".{target.name}.new")
            part.write_bytes(content)
            part.replace(target)
    except OSError as error:
        raise InputError(path, f"cannot be written ({error.strerror})") from error
    return Hashes(digest, _identity(card))


def _identity(card: dict[str, Any]) -> str:
    """SHA-256 of a whole card, which holds that of the weights; without `TOLD_LATER` and how long training took.

    Not the bytes of the file: a card that was only laid out anew is the same.
    """
    plain = json.loads(json.dumps({key: value for key, value in card.items() if key != TOLD_LATER}))
    if isinstance(plain.get("training"), dict):
        plain["training"] = {key: value for key, value in plain["training"].items() if key not in ("hours", "date")}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _rounded(weights: Tensor) -> Tensor:
    """Half precision with 9 bits of its fraction: what that loses is far below 0.01 dB, and a package shrinks by more
    than half."""
    bits = weights.half().contiguous().view(torch.int16)
    return ((bits + 1) & ~1).view(torch.float16)


def find_weights(which: str | Path, what: str) -> Path:
    """The ``.safetensors`` file of a path, or of the name of a shipped one; ``what`` is "prior" or "posterior".

    Raises:
        InputError: there is no such file.
    """
    shipped_path = WEIGHTS / f"{which}.safetensors"
    path = shipped_path if Path(which).name == str(which) and shipped_path.is_file() else Path(which)
    if not path.is_file():
        shipped = ", ".join(sorted(p.stem for p in WEIGHTS.glob("*.safetensors")))
        raise InputError(which, f"no such {what}", f"a .safetensors file or one of: {shipped or 'none shipped'}")
    return path


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


def _check_values(card: dict[str, Any], path: Path) -> None:
    """Refuses a card that misses a value, or holds one that no training gives.

    Raises:
        InputError: it does; names the value.
    """
    side = path.with_suffix(".json").name
    missing = [key for key in ("name", "grid", *NEEDED[card["kind"]]) if key not in card]
    if missing:
        raise InputError(side, f"a card without {', '.join(missing)}", "the card of its training")
    for key, (low, high) in RANGES.items():
        value = card.get(key, low)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise InputError(side, f"{key} {brief(repr(value))}", f"a number from {low:g} to {high:g}")
    if card.get("sigma_min", 0) > card.get("sigma_max", math.inf):
        raise InputError(side, "sigma_min above sigma_max", "noise levels from low to high")
    grid, name, (low_side, high_side) = card["grid"], card["name"], SIDES
    sides = grid if isinstance(grid, list) else []
    if len(sides) != 2 or not all(type(n) is int and low_side <= n <= high_side for n in sides):
        expected = f"depth and angle, whole numbers from {low_side} to {high_side}"
        raise InputError(side, f"grid {brief(repr(grid))}", expected)
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise InputError(side, f"name {brief(repr(name))}", "a line of at most 200 characters")


def load_card(which: str | Path, kind: NetworkKind) -> tuple[nn.Module, dict[str, Any], Hashes]:
    """Reads a network, its card and their hashes.

    Args:
        which: path of a ``.safetensors`` file, or the name of a shipped one.
        kind: one of `usdehaze.choices.NETWORK_KINDS`; a file of another kind is refused.

    Raises:
        InputError: no such file, a card that is missing, of another kind or with values that cannot be, weights that do
            not fit their hash.
    """
    what = "posterior" if kind == "posterior" else "prior"
    path = find_weights(which, what)
    try:
        card = json.loads(read_text(path.with_suffix(".json"), MAX_CARD_BYTES))
        identity = _identity(card)
        described = dict(card.pop("network"))
        wrong = card.pop("format") != FORMAT or card["kind"] not in NETWORK_KINDS
        digest = file_sha256(path)
        if wrong or card.pop("sha256") != digest:
            raise ValueError("card and weights do not belong together")
        _check_values(card, path)
        network = _network(described, path)
        network.load_state_dict({k: v.float() for k, v in load_file(str(path)).items()})
    except InputError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        found = f"not a usable {what} ({type(error).__name__})"
        raise InputError(path.name, found, "weights with their .json card") from None
    if card["kind"] != kind:
        found = f"a {card['kind']} prior" if card["kind"] != "posterior" else "a posterior"
        raise InputError(path.name, found, f"a {kind}" + ("" if kind == "posterior" else " prior"))
    return network, card, Hashes(digest, identity)
