"""Pictures -> Scan: one image, a TIFF of several, or a folder of images in the order of their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.io.formats import format_of, images_in
from usdehaze.io.limits import check_frame
from usdehaze.io.luma import luma
from usdehaze.io.stored_cine import ImageFile, StoredCine
from usdehaze.io.stored_scan import StoredScan

PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")


class ImageScan(StoredScan):
    """Frames in a single image file: PNG, JPEG, BMP, TIFF or MetaImage (``.mha``).

    Colours become their luma, a fourth channel (opacity) is left out.
    """

    _file: ImageFile | None = None

    def _open(self) -> StoredCine:
        self._file = open_image(self.path)
        return self._file.stored()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # image decoders raise whatever they come across
            reason = str(error).split("\n")[0] or type(error).__name__
            raise InputError(self.path, f"cannot be read as an image ({reason})", advice="it may be damaged") from error


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

        def read(index: int) -> np.ndarray:
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
                return one.read(0)

        return StoredCine(
            f"folder of images ({first.layout})",
            f"{paths[0].name} ... {paths[-1].name}",
            (len(paths), *first.shape[1:]),
            first.dtype,
            read,
            spacing_m=first.spacing_m,
            origin_m=first.origin_m,
            assumptions=(f"{len(paths)} images taken as one cine, in the order of their names.",),
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
            self.kind, self._first = self._image.format, _values(self._image, path)
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
        shape = (self.n_frames, *self._first.shape)
        return StoredCine(f"{self.kind} image", "", shape, self._first.dtype, self.read)

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``, ``(H, W)``."""
        if index == 0:
            return self._first
        self._image.seek(index)
        values, first = _values(self._image, self.path), self._first
        if values.shape != first.shape or values.dtype != first.dtype:
            found, expected = (f"{v.shape} {v.dtype}" for v in (values, first))
            raise InputError(self.path, f"frame {index} is {found}", expected)
        return values

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


def _values(image: Image.Image, path: Path) -> np.ndarray:
    """``(H, W)`` grey levels: uint8, or what deeper images hold."""
    check_frame((image.height, image.width), path)
    if image.mode in ("L", "I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
    elif image.mode in ("1", "LA"):
        values = np.asarray(image.convert("L"))
    else:
        values = luma(np.asarray(image.convert("RGB")))
    return values.astype(values.dtype.newbyteorder("="))
