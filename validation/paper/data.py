"""Images of the paper's kinds, from the folder of test data: faces, natural images, digits, letters, other characters.

All are 64 x 64 in colour, float32 in [0, 1]; characters are light on black, their three channels equal, as in the
public code; letters, which fill their images, are drawn to the size of digits. Faces to train on, to tune on and to
test on are three lots, drawn once; so are digits.
"""

from __future__ import annotations

import gzip
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from usdehaze.errors import InputError
from usdehaze.training.images import read_images
from validation.paths import real_scans

GRID = (64, 64)
SPLIT_SEED = 20250301  # decides which images are held out
HELD_OUT, TO_TUNE = 180, 9  # images of each kind that are not trained on; one in so many is to tune on, others to test
MOST = 27_000  # to train on, as in the paper
SPLITS = ("train", "validation", "test")
TRANSLATION = 0.3  # of the side, at most, either way
HAVE = {  # file or folder below the test data, by kind
    "faces": "faces",
    "natural": "natural",
    "digits": "digits/mnist.npz",
    "letters": "digits/notmnist-images-idx3-ubyte.gz",
    "kannada": "digits/X_kannada_MNIST_test-idx3-ubyte.gz",
    "omniglot": "digits/omniglot_small1.zip",
}


def images(kind: str, split: str, n: int | None = None) -> Tensor:
    """``(n, 3, 64, 64)`` images of a kind: of `HAVE`, or "translated" digits.

    Args:
        kind: which.
        split: "train", "validation" or "test".
        n: how many; all there are where it is None. Natural images are all for testing: none is ever learned.

    Raises:
        InputError: a folder without such data, or with fewer images.
    """
    if kind == "translated":
        return translated(images("digits", split, n), SPLIT_SEED + SPLITS.index(split))
    every = _everything(kind)
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(SPLIT_SEED))
    held_out = min(HELD_OUT, len(every) // 2) if kind != "natural" else len(every)
    tune = held_out // TO_TUNE if kind != "natural" else 0
    start, stop = {"validation": (0, tune), "test": (tune, held_out)}.get(split, (held_out, held_out + MOST))
    chosen = order[start:stop][:n]
    if split == "test" and n is not None and len(chosen) < n:
        raise InputError(_where(kind), f"{len(chosen)} {kind} to test on", f"{n}", "ask for fewer with --images")
    return torch.stack([_coloured(every[i]) for i in chosen])


def translated(characters: Tensor, seed: int) -> Tensor:
    """Each moved by up to `TRANSLATION` of its sides, at random; black comes in."""
    generator = torch.Generator().manual_seed(seed)
    most = [round(TRANSLATION * side) for side in characters.shape[2:]]
    moved = torch.zeros_like(characters)
    for out, character in zip(moved, characters, strict=True):
        dy, dx = (int(torch.randint(-m, m + 1, (), generator=generator)) for m in most)
        h, w = character.shape[1:]
        out[:, max(0, dy) : h + min(0, dy), max(0, dx) : w + min(0, dx)] = character[
            :, max(0, -dy) : h - max(0, dy), max(0, -dx) : w - max(0, dx)
        ]
    return moved


def _where(kind: str) -> Path:
    path = real_scans() / HAVE[kind]
    if not path.exists():
        raise InputError(path, f"no {kind} there", HAVE[kind], "USDEHAZE_DATA names the folder of test data")
    return path


@lru_cache(maxsize=8)
def _everything(kind: str) -> Tensor:
    """All images of a kind, in the order of their files, half precision; characters grey and small."""
    path = _where(kind)
    if kind in ("faces", "natural"):
        files = sorted(path.glob("*.zip")) if kind == "faces" else [path]
        if not files:
            raise InputError(path, "no .zip file of faces", "utkface64_part*.zip")
        return read_images(files, GRID, colour=True)
    if path.suffix == ".npz":
        return read_images([path], (28, 28), dataset="x_train")
    if path.suffix == ".gz":
        return _as_digits(_idx(path)) if kind == "letters" else _idx(path)
    return 1 - _drawn(path)


def _idx(path: Path) -> Tensor:
    """Images of an IDX file (LeCun's MNIST format): a head of big-endian numbers, then 8-bit pixels."""
    try:
        content = gzip.decompress(path.read_bytes())
        kind, *shape = np.frombuffer(content[:16], ">u4")
        if kind != 0x803:
            raise ValueError("not 8-bit images")
        pixels = np.frombuffer(content[16:], np.uint8).reshape([int(n) for n in shape])
    except (OSError, EOFError, ValueError) as error:
        raise InputError(path, f"not a usable IDX file ({error})", "gzipped 8-bit images") from error
    return torch.from_numpy(pixels.astype(np.float16) / 255)[:, None]


def _as_digits(letters: Tensor) -> Tensor:
    """Letters that fill 28 x 28 pixels, in the middle 20 x 20, where MNIST has its digits."""
    small = torch.nn.functional.interpolate(letters.float(), (20, 20), mode="bilinear", antialias=True)
    return torch.nn.functional.pad(small, (4, 4, 4, 4)).half()


def _drawn(path: Path) -> Tensor:
    """Characters drawn in black on white."""
    try:
        return read_images([path], (28, 28))
    except zipfile.BadZipFile as error:
        raise InputError(path, f"not a usable archive ({error})") from error


def _coloured(image: Tensor) -> Tensor:
    """``(3, 64, 64)`` float32; characters are enlarged to it."""
    if image.shape[0] == 3:
        return image.float()
    grey = Image.fromarray(image[0].float().numpy(), mode="F").resize(GRID[::-1], Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(grey).copy())[None].expand(3, -1, -1)
