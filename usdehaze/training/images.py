"""Priors from plain images, as in the paper's experiments: what is no scan has no decibels and no sector."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from usdehaze.errors import InputError
from usdehaze.io.images.opacity import rgb_of
from usdehaze.io.images.read import is_deep, upright
from usdehaze.training.data import HAZE_PICKS, HELD_OUT_SEED, PICKS, InMemory, some_of

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
ARRAYS = (".npy", ".npz")
HELD_OUT_SHARE = 0.02
EXPECTED = "images (PNG, JPEG, BMP, TIFF), folders or .zip files of them, or arrays (.npy, .npz)"


def read_images(
    paths: Iterable[str | Path], grid: tuple[int, int], colour: bool = False, dataset: str | None = None
) -> Tensor:
    """Images as a prior sees them: ``(N, C, *grid)`` half precision in [0, 1], C = 3 in colour, else 1.

    Larger or smaller ones are resized (bilinear, without aliasing); of another shape, their middle is taken. They are
    turned as their EXIF says, and black where nothing is opaque.

    Args:
        paths: images, folders (with all that is below) and ``.zip`` files of images, and ``.npy`` or ``.npz`` arrays
            ``(N, H, W)`` or ``(N, H, W, 3)``, 8 bit or in [0, 1].
        grid: rows and columns.
        colour: three channels; of grey images three equal ones.
        dataset: name of the array in an ``.npz`` file that holds several.

    Raises:
        InputError: a file that cannot be read, or has no images; values that are neither 8 bit nor, in arrays, in
            [0, 1].
    """
    files = [Path(path) for path in paths]
    found = torch.cat([torch.from_numpy(each) for path in files for each in _images(path, grid, colour, dataset)])
    if len(found) < 2:
        raise InputError(files[0], "1 image", "at least 2: one to train on, one to hold out")
    return found


def different(images: Tensor, path: object) -> Tensor:
    """The images ``(N, ...)`` without copies (named twice, stored twice): held out, they would be trained on, too.

    Raises:
        InputError: all are one image, those of ``path``.
    """
    first = dict[bytes, int]()
    for i, image in enumerate(images):
        first.setdefault(hashlib.sha256(image.numpy().tobytes()).digest(), i)
    if len(first) < 2:
        raise InputError(path, f"{len(images)} copies of one image", "at least 2 images: one is held out")
    return images if len(first) == len(images) else images[list(first.values())]


def _images(path: Path, grid: tuple[int, int], colour: bool, dataset: str | None) -> Iterator[np.ndarray]:
    """Float16 ``(n, C, *grid)``, one image or a whole array at a time."""
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in (*SUFFIXES, *ARRAYS) and p.name[0] != ".")
        if not inside:
            raise InputError(path, "no images in this folder", EXPECTED)
        for each in inside:
            yield from _images(each, grid, colour, dataset)
    elif not path.is_file():
        raise InputError(path, "no such file or folder", EXPECTED)
    elif path.suffix.lower() in ARRAYS:
        stored = _array(path, dataset)
        if stored.shape[1:] == (*grid, 3)[: 3 if colour else 2]:
            yield np.moveaxis(stored.reshape(*stored.shape[:3], -1), 3, 1).astype(np.float16) / np.float16(255)
        else:
            for image in stored:
                yield _fitted(Image.fromarray(image), grid, colour)
    elif path.suffix.lower() == ".zip":
        yield from _zipped(path, grid, colour)
    else:
        yield _opened(path, path.name, path.read_bytes(), grid, colour)


def _zipped(path: Path, grid: tuple[int, int], colour: bool) -> Iterator[np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if Path(n).suffix.lower() in SUFFIXES)
            if not names:
                raise InputError(path, "no images in this archive", EXPECTED)
            for name in names:
                yield _opened(path, name, archive.read(name), grid, colour)
    except zipfile.BadZipFile:
        raise InputError(path, "not a usable archive", EXPECTED) from None


def _opened(path: Path, name: str, content: bytes, grid: tuple[int, int], colour: bool) -> np.ndarray:
    try:
        with Image.open(BytesIO(content)) as image:
            if is_deep(image):
                raise InputError(path, f"{name} has pixels of more than 8 bits", "8-bit images, or floats as .npy")
            return _fitted(Image.fromarray(rgb_of(upright(image), path)), grid, colour)
    except InputError:
        raise
    except Exception as error:  # image decoders raise whatever they come across
        raise InputError(path, f"{name} cannot be read as an image ({type(error).__name__})", EXPECTED) from None


def _fitted(image: Image.Image, grid: tuple[int, int], colour: bool) -> np.ndarray:
    """One image ``(1, C, *grid)``, float16 in [0, 1]."""
    image = image.convert("RGB" if colour else "L")
    if image.size != grid[::-1]:
        image = ImageOps.fit(image, grid[::-1], Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32).reshape(*grid, -1)
    return (pixels / 255).transpose(2, 0, 1)[None].astype(np.float16)


def _array(path: Path, dataset: str | None) -> np.ndarray:
    """8-bit images ``(N, H, W)`` or ``(N, H, W, 3)`` of a numpy file."""
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.ndarray):
            with stored:
                names = stored.files
                name = dataset or names[0]
                if name not in names or (dataset is None and len(names) > 1):
                    raise InputError(path, f"arrays {', '.join(names)}", "one array, or the name of one as --dataset")
                stored = stored[name]
    except InputError:
        raise
    except Exception as error:  # numpy raises what it comes across, tokens of a header among it
        raise InputError(path, f"cannot be read ({type(error).__name__})", "a .npy or .npz array of images") from None
    if stored.ndim not in (3, 4) or (stored.ndim == 4 and stored.shape[3] != 3) or 0 in stored.shape:
        raise InputError(path, f"an array of shape {stored.shape}", "(N, H, W), or (N, H, W, 3) in colour")
    if stored.dtype == np.uint8:
        return stored
    low, high = float(stored.min()), float(stored.max())
    if not (stored.dtype.kind == "f" and 0 <= low and high <= 1):
        raise InputError(path, f"{stored.dtype} values from {low:g} to {high:g}", "8-bit values, or floats in [0, 1]")
    return np.rint(255 * stored).astype(np.uint8)


class StoredImages(InMemory):
    """Images, all in memory at half precision; a share of them, drawn by lot, is held out.

    Args:
        images: ``(N, C, H, W)`` in [0, 1], at least two.
        mirror: whether left and right mean nothing: each image is then mirrored half of the time.
        purpose: of the random stream that picks them; images that are drawn side by side need one each.
    """

    def __init__(self, images: Tensor, mirror: bool, purpose: int = PICKS) -> None:
        self.mirror, self.purpose = mirror, purpose
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(HELD_OUT_SEED))
        out = some_of(HELD_OUT_SHARE, len(images))
        self._held_out, self._train = images[order[:out]].half(), images[order[out:]].half()
        sides = "mirrored" if mirror else "as they are"
        self.fingerprint = f"{hashlib.sha256(self._train.numpy().tobytes()).hexdigest()[:16]}, {sides}"

    @property
    def description(self) -> str:
        return f"images of the user's own: {len(self._train)}, {len(self._held_out)} more held out"


class BlendedImages:
    """Two kinds of images, blended anew at every step: what a posterior of ``y = (1 - share) x + share n`` learns from.

    Args:
        tissue, haze: signal and structured noise; haze with a ``purpose`` of its own.
        share: of haze in the frame.
    """

    simulated = False

    def __init__(self, tissue: StoredImages, haze: StoredImages, share: float) -> None:
        self.tissue, self.haze, self.share = tissue, haze, share
        self.fingerprint = f"{tissue.fingerprint} and {haze.fingerprint}, blended {share:g}"

    @staticmethod
    def of(tissue: Tensor, haze: Tensor, share: float, mirror: tuple[bool, bool]) -> BlendedImages:
        """From images ``(N, C, H, W)`` of both kinds, and whether each may be mirrored."""
        return BlendedImages(StoredImages(tissue, mirror[0]), StoredImages(haze, mirror[1], purpose=HAZE_PICKS), share)

    @property
    def description(self) -> str:
        return f"tissue: {self.tissue.description}; haze: {self.haze.description}; blended with share {self.share:g}"

    @property
    def held_out(self) -> Tensor:
        return self._paired(self.tissue.held_out, self.haze.held_out)

    @property
    def sample(self) -> Tensor:
        return self._paired(self.tissue.sample, self.haze.sample)

    def draw(self, batch: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        """``(batch, 3 C, H, W)``: signal, noise, and their blend."""
        return self._blend(*(side.draw(batch, seed, stream, step, device) for side in (self.tissue, self.haze)))

    def _paired(self, x: Tensor, n: Tensor) -> Tensor:
        both = max(len(x), len(n))
        return self._blend(x[torch.arange(both) % len(x)], n[torch.arange(both) % len(n)])

    def _blend(self, x: Tensor, n: Tensor) -> Tensor:
        return torch.cat([x, n, (1 - self.share) * x + self.share * n], dim=1)
