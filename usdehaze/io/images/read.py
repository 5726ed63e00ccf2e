"""Pictures -> Scan: one image, a TIFF of several, or a folder of images in the order of their names."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.io.decoding import decoding
from usdehaze.io.formats import format_of, images_in
from usdehaze.io.limits import check_frame
from usdehaze.io.luma import luma
from usdehaze.io.picture import Picture
from usdehaze.io.stored_cine import ImageFile, StoredCine
from usdehaze.io.stored_scan import StoredScan

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
        paths = natural_order(images_in(self.path))
        if len(paths) == 1:
            self._file = open_image(paths[0])
            return replace(self._file.stored(), dataset=paths[0].name)
        with closing(open_image(paths[0])) as image:
            first = image.stored()
        if first.shape[0] != 1:
            raise InputError(self.path, f"{paths[0].name} alone holds {first.shape[0]} frames", "one frame a file")

        def picture(index: int) -> Picture:
            with closing(open_image(paths[index])) as image:
                one = image.stored()
                if one.shape != first.shape or one.dtype != first.dtype:
                    _, height, width = one.shape
                    raise InputError(
                        self.path,
                        f"{paths[index].name} is {height} x {width} {one.dtype}",
                        f"{first.shape[1]} x {first.shape[2]} {first.dtype} as in {paths[0].name}",
                        "give images that belong to no cine one by one",
                    )
                return Picture(one.read(0)) if one.picture is None else one.picture(0)

        return StoredCine(
            f"folder of images ({first.layout})",
            f"{paths[0].name} ... {paths[-1].name}",
            (len(paths), *first.shape[1:]),
            first.dtype,
            lambda index: picture(index).levels,
            spacing_m=first.spacing_m,
            origin_m=first.origin_m,
            assumptions=(f"{len(paths)} images taken as one cine, in the order of their names.", *first.assumptions),
            picture=picture,
        )


class PillowImage:
    """A PNG, JPEG or BMP, or a TIFF of one image or several.

    Raises:
        InputError: a frame that is too large. Whatever else the decoders raise is left as it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image = Image.open(path, formats=PILLOW_FORMATS)  # kept open: it knows where each page begins
        try:
            self.kind, self._first = self._image.format, _picture(self._image, path)
            rgb = self._first.rgb
            self._colour = rgb is not None and bool((rgb != rgb[..., :1]).any())
            self.n_frames = self._count()
        except BaseException:
            self.close()
            raise

    def _count(self) -> int:
        """Pages, looked for one by one."""
        n_frames = 1
        with suppress(EOFError):
            while True:
                self._image.seek(n_frames)
                spend(self.path, objects=1)
                n_frames += 1
        return n_frames

    def stored(self) -> StoredCine:
        """The frames."""
        first = self._first.levels
        return StoredCine(
            f"{self.kind} image",
            "",
            (self.n_frames, *first.shape),
            first.dtype,
            self.read,
            assumptions=("Colours taken as their luma.",) if self._colour else (),
            picture=self.picture,  # a page in colour may follow
        )

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W)``."""
        return self.picture(index).levels

    def picture(self, index: int) -> Picture:
        """Frame ``index`` with its colours."""
        if index == 0:
            return self._first
        self._image.seek(index)
        picture = _picture(self._image, self.path)
        values, first = picture.levels, self._first.levels
        if values.shape != first.shape or values.dtype != first.dtype:
            found, expected = (f"{v.shape} {v.dtype}" for v in (values, first))
            raise InputError(self.path, f"frame {index} is {found}", expected)
        return picture

    def close(self) -> None:
        """Closes it."""
        self._image.close()


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
    return sorted(paths, key=lambda p: ([int(t) if t.isdigit() else t for t in re.split(r"([0-9]+)", p.name)], p.name))


def _picture(image: Image.Image, path: Path) -> Picture:
    """Grey levels, uint8 or what deeper images hold, and the colours of an image in colour."""
    check_frame((image.height, image.width), path)
    if image.mode in ("L", "I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
    elif image.mode in ("1", "LA"):
        values = np.asarray(image.convert("L"))
    else:
        rgb = np.asarray(image.convert("RGB"))
        return Picture(luma(rgb), rgb)
    return Picture(values.astype(values.dtype.newbyteorder("=")))
