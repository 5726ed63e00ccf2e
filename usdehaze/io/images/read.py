"""Pictures -> Scan: one image, a TIFF of several, or a folder of images in the order of their names."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from io import BufferedReader
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.io.decoding import decoding
from usdehaze.io.formats import format_of, images_by_suffix, is_left_out, is_mask, kind_of
from usdehaze.io.images.opacity import rgb_of
from usdehaze.io.images.tiff import as_declared, calibration, images_declared, is_of_another, other_axes, refuse_unknown
from usdehaze.io.limits import check_frame
from usdehaze.io.picture import Picture, luma
from usdehaze.io.stored_cine import ImageFile, StoredCine, rising
from usdehaze.io.stored_scan import StoredScan
from usdehaze.notes import Guess
from usdehaze.quiet import quiet

PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")


class ImageScan(StoredScan):
    """Frames in a single image file: PNG, JPEG, BMP, TIFF, GIF or MetaImage.

    Colours become their luma, a fourth channel (opacity) is left out.
    """

    _file: ImageFile | None = None

    def _open(self) -> StoredCine:
        self._file = open_image(self.path)
        return self._file.stored()

    def _errors(self) -> AbstractContextManager[None]:
        return decoding(self.path, "an image")


class ImageFolderScan(ImageScan):
    """Frames in a folder of images: one a file, in natural order, or several in the only file there is."""

    def _open(self) -> StoredCine:
        images = images_by_suffix(self.path)
        paths = natural_order(max(images.values(), key=len))
        others = {suffix: len(some) for suffix, some in images.items() if paths[0] not in some}
        told = ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in others.items())
        notes = tuple[Guess, ...]()
        if told:
            notes += (Guess(f"Images of other suffixes left out: {told}.", "a folder of one kind of image"),)
        if masks := sum(is_mask(path) for path in self.path.iterdir() if not is_left_out(path.name)):
            notes += (Guess(f"Images named as masks of others left out: {masks}.", "a folder of frames alone"),)
        self._check_names(set(paths))
        if len(paths) == 1:
            self._file = open_image(paths[0])
            stored = self._file.stored()
            return replace(stored, dataset=paths[0].name, assumptions=notes + stored.assumptions)
        with decoding(paths[0], "an image"), closing(open_image(paths[0])) as image:
            first = image.stored()
        if first.shape[0] != 1:
            raise InputError(self.path, f"{paths[0].name} alone holds {first.shape[0]} frames", "one frame a file")

        def picture(index: int) -> Picture:
            with decoding(paths[index], "an image"), closing(open_image(paths[index])) as image:
                one = image.stored()
                if one.shape != first.shape or one.dtype != first.dtype:
                    sides = " x ".join(map(str, one.shape[one.shape[0] == 1 :]))  # with the frames, where not one
                    raise InputError(
                        self.path,
                        f"{paths[index].name} is {sides} {one.dtype}",
                        f"{first.shape[1]} x {first.shape[2]} {first.dtype} as in {paths[0].name}",
                        "give images that belong to no cine one by one",
                    )
                return one.picture_of(0)

        return StoredCine(
            f"folder of images ({first.layout})",
            f"{paths[0].name} ... {paths[-1].name}",
            (len(paths), *first.shape[1:]),
            first.dtype,
            lambda index: picture(index).levels,
            spacing_m=first.spacing_m,
            origin_m=first.origin_m,
            assumptions=(
                f"{len(paths)} images taken as one cine, in the order of their names.",
                *notes,
                *first.assumptions,
            ),
            picture=picture,
        )

    def _check_names(self, images: set[Path]) -> None:
        """Refuses a folder with files that are called images and are none: they are frames that were lost."""
        suffixes = {path.suffix.lower() for path in images}
        for path in sorted(self.path.iterdir()):
            called = path.suffix.lower() in suffixes - {""} and not is_left_out(path.name) and not is_mask(path)
            if called and path.is_file() and path not in images:
                found, advice = f"{path.name} is no image ({kind_of(path)})", "mend it, or take it away"
                raise InputError(self.path, found, "an image, as its name says", advice)


class PillowImage:
    """A PNG, JPEG or BMP, or a TIFF or PNG of several images.

    Raises:
        InputError: a frame that is too large, or stored in a way that is not read. Whatever else the decoders raise is
            left as it is.
    """

    _spacing_m: tuple[float, float] | None = None

    def __init__(self, path: Path) -> None:
        self.path, self._notes = path, tuple[str, ...]()
        self._file = open(path, "rb")  # Pillow would map a named file, and so mix up a TIFF on its side
        try:
            self._image = _opened(self._file, path)  # kept open: it knows where each page begins
            self._skipped = int(self._image.info.get("default_image", 0))  # 1 where what PNG shows at rest is no frame
            self._image.seek(self._skipped)
            self._pages = [self._skipped]
            self.kind, self._first = self._image.format, _picture(self._image, path)
            rgb = self._first.rgb
            self._colour = rgb is not None and bool((rgb != rgb[..., :1]).any())
            self._starts_s = self._look_through()
            self.n_frames = len(self._starts_s)
        except BaseException:
            self.close()
            raise

    def _look_through(self) -> np.ndarray:
        """When each page is first shown, or was taken, s: all at once where nothing tells."""
        declared, axes, step_s, size = 1, "", None, self._image.size
        if isinstance(self._image, TiffImageFile):
            tags = self._image.tag_v2
            declared, axes = images_declared(tags, self.path), other_axes(tags)
            self._spacing_m, step_s = calibration(tags)
        starts = [0.0]
        if self.kind == "MPO":
            self._notes = ("The first picture of the file alone is read: others are made from it, or of it.",)
            return np.array(starts)
        with suppress(EOFError):
            for page in count(self._skipped + 1):
                shown_s = float(self._image.info.get("duration", 0)) / 1000
                self._image.seek(page)
                spend(self.path, objects=1)
                image = self._image
                if isinstance(image, TiffImageFile) and is_of_another(image.tag_v2, image.size == size):
                    self._notes = ("Thumbnails, smaller versions and masks in the file are left out.",)
                    continue
                starts.append(starts[-1] + shown_s)
                self._pages.append(page)
        if axes and len(starts) > 1:
            expected, advice = "images over time alone", "save one channel, or one slice, of it"
            raise InputError(self.path, f"a TIFF of {axes}", expected, advice)
        if declared > len(starts):
            found = f"a TIFF of {declared} images with a directory for {len(starts)}"
            raise InputError(self.path, found, "one for each", "save it as a folder of images, or as BigTIFF")
        return np.array(starts) if step_s is None else step_s * np.arange(len(starts))

    def stored(self) -> StoredCine:
        """The frames."""
        first = self._first.levels
        return StoredCine(
            f"{self.kind} image",
            "",
            (self.n_frames, *first.shape),
            first.dtype,
            self.read,
            spacing_m=self._spacing_m,
            frame_times_s=rising(self._starts_s),
            assumptions=self._notes + (("Colours taken as their luma.",) if self._colour else ()),
            picture=self.picture,  # a page in colour may follow
        )

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W)``."""
        return self.picture(index).levels

    def picture(self, index: int) -> Picture:
        """Frame ``index`` with its colours."""
        if index == 0:
            return self._first
        self._image.seek(self._pages[index])
        picture = _picture(self._image, self.path)
        values, first = picture.levels, self._first.levels
        if values.shape != first.shape or values.dtype != first.dtype:
            found, expected = (f"{v.shape} {v.dtype}" for v in (values, first))
            raise InputError(self.path, f"frame {index} is {found}", expected)
        return picture

    def close(self) -> None:
        """Closes it."""
        self._file.close()


def open_image(path: Path) -> ImageFile:
    """Opens an image of any format, known by its content.

    Raises:
        InputError: it is none.
    """
    found = format_of(path)
    if found is None or found.open_image is None:
        raise InputError(path, "is no image", "an image, a TIFF of several, or a MetaImage")
    return found.open_image(path)


def natural_order(paths: list[Path]) -> list[Path]:
    """``frame-2.png`` before ``frame-10.png``."""

    def key(path: Path) -> tuple[list[str | int], str]:
        parts = re.split(r"([0-9]+)", path.name)  # every second one is a number
        return [int(part) if at % 2 else part for at, part in enumerate(parts)], path.name

    return sorted(paths, key=key)


def _opened(file: BufferedReader, path: Path) -> Image.Image:
    if file.peek(4).startswith(b"MM\0+"):  # which Pillow takes for a small TIFF
        raise InputError(path, "a BigTIFF with its bytes in big-endian order", "little-endian order, or a small TIFF")
    try:
        return Image.open(file, formats=PILLOW_FORMATS)
    except UnidentifiedImageError:
        refuse_unknown(path)
        raise InputError(path, "cannot be read as an image", advice="it may be damaged") from None


def _picture(image: Image.Image, path: Path) -> Picture:
    """Grey levels, uint8 or what deeper images hold, and the colours of an image in colour, upright."""
    check_frame((image.height, image.width), path)
    turned = upright(image)
    if is_deep(turned) or _is_plain_grey(turned):
        values = np.asarray(turned)
        values = values.astype(values.dtype.newbyteorder("="))
        if (hidden := image.info.get("transparency")) is not None:  # of a deep PNG: the level that is not shown
            values[values == hidden] = 0
        return Picture(as_declared(values, image.tag_v2, path) if isinstance(image, TiffImageFile) else values)
    rgb = rgb_of(turned, path)
    return Picture(rgb[..., 0]) if turned.mode in ("1", "L", "LA") else Picture(luma(rgb), rgb)


def is_deep(image: Image.Image) -> bool:
    """Whether pixels are other than 8-bit: Pillow's own conversions cut off what lies beyond."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def upright(image: Image.Image) -> Image.Image:
    """As viewers show it: turned as its EXIF says, where that can be read."""
    image.load()  # which is all that a TIFF needs
    if not isinstance(image, TiffImageFile):
        with suppress(Exception), quiet():  # of what cannot be read in it
            return ImageOps.exif_transpose(image)
    return image


def _is_plain_grey(image: Image.Image) -> bool:
    return image.mode == "L" and not image.has_transparency_data
