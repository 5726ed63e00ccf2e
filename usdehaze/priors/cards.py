"""Cards of networks: the JSON beside the weights that says what they are. Nothing here needs PyTorch."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from usdehaze.budget import file_sha256, read_text
from usdehaze.choices import NETWORK_KINDS, PRIOR_KINDS, NetworkKind
from usdehaze.errors import InputError
from usdehaze.plain_text import brief

WEIGHTS = Path(__file__).parent / "weights"
MAX_CARD_BYTES = 2**20
FORMAT = "usdehaze-prior"
TOLD_LATER = "bench"  # key of a card: figures that were measured on what it describes

_SHARE, _SPREAD, _LEVEL = (0.0, 1.0), (1e-6, 1.0), (1e-6, 1e6)  # of model units, [0, 1] frames
RANGES = {
    "data_mean": _SHARE, "data_std": _SPREAD, "frame_mean": _SHARE, "frame_std": _SPREAD,
    "tissue_std": _SPREAD, "haze_std": _SPREAD, "sigma_min": _LEVEL, "sigma_max": _LEVEL, "exposure": _SHARE,
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


class Card(NamedTuple):
    """What a card says.

    Attributes:
        path: of the weights.
        values: of the card, those of ``network`` apart.
        network: kind and sizes.
        hashes: see `Hashes`.
    """

    path: Path
    values: dict[str, Any]
    network: dict[str, Any]
    hashes: Hashes

    @property
    def name(self) -> str:
        """Name, and hash of card and weights together, as a result file quotes them."""
        return f"{self.values['name']} sha256:{self.hashes.identity}"


def identity_of(card: dict[str, Any]) -> str:
    """SHA-256 of a whole card, which holds that of the weights; without `TOLD_LATER` and how long training took.

    Not the bytes of the file: a card that was only laid out anew is the same.
    """
    plain = json.loads(json.dumps({key: value for key, value in card.items() if key != TOLD_LATER}))
    if isinstance(plain.get("training"), dict):
        plain["training"] = {key: value for key, value in plain["training"].items() if key not in ("hours", "date")}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def find_weights(which: str | Path, what: str) -> Path:
    """The ``.safetensors`` file of a path, or of the name of a shipped one; ``what`` is "prior" or "posterior".

    Raises:
        InputError: there is no such file, it has another suffix, or its card is not beside it.
    """
    shipped_path = WEIGHTS / f"{which}.safetensors"
    path = shipped_path if Path(which).name == str(which) and shipped_path.is_file() else Path(which)
    if not path.is_file():
        names = sorted(p.stem for p in WEIGHTS.glob("*.safetensors"))
        shipped = ", ".join(n for n in names if what == "network" or (n in PRIOR_KINDS) == (what == "prior"))
        raise InputError(which, f"no such {what}", f"a .safetensors file or one of: {shipped or 'none shipped'}")
    if path.suffix != ".safetensors":
        raise InputError(path.name, f"not a {what}", "a .safetensors file with its .json card")
    if not (card := path.with_suffix(".json")).is_file():
        raise InputError(path.name, f"its card, {card.name}, is not there", "both in one folder")
    return path


def read_card(which: str | Path, kind: NetworkKind) -> Card:
    """Reads the card of a network, whose weights are hashed and not loaded.

    Args:
        which: path of a ``.safetensors`` file, or the name of a shipped one.
        kind: one of `usdehaze.choices.NETWORK_KINDS`; a card of another kind is refused.

    Raises:
        InputError: no such file, a card that is missing, of another kind or with values that cannot be, weights that do
            not fit their hash.
    """
    what = "posterior" if kind == "posterior" else "prior"
    path = find_weights(which, what)
    try:
        values = json.loads(read_text(path.with_suffix(".json"), MAX_CARD_BYTES))
        identity = identity_of(values)
        described = dict(values.pop("network"))
        wrong = values.pop("format") != FORMAT or values["kind"] not in NETWORK_KINDS
        digest = file_sha256(path)
        if wrong or values.pop("sha256") != digest:
            raise InputError(path.name, "card and weights do not belong together", "weights with their .json card")
        _check_values(values, path)
    except InputError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise unusable(path, what, error) from None
    if values["kind"] != kind:
        found = f"a {values['kind']} prior" if values["kind"] != "posterior" else "a posterior"
        raise InputError(path.name, found, f"a {kind}" + ("" if kind == "posterior" else " prior"))
    return Card(path, values, described, Hashes(digest, identity))


def unusable(path: Path, what: str, error: Exception) -> InputError:
    """That a prior or posterior cannot be used; of the error the kind alone is told."""
    return InputError(path.name, f"not a usable {what} ({type(error).__name__})", "weights with their .json card")


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
