"""Pictures -> Scan: one image, a TIFF of several, or a folder of images in the order of their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from usdehaze.errors import InputError
from usdehaze.io.detect import images_in
from usdehaze.io.found_scan import FoundScan
from usdehaze.io.h5 import check_frame
from usdehaze.io.layouts.axes import luma
from usdehaze.io.layouts.found import Found
from usdehaze.io.metaimage import MetaImage

FORMATS = ("PNG", "JPEG", "BMP", "TIFF")


class ImageScan(FoundScan):
    """Frames in PNG, JPEG, BMP, TIFF or MetaImage (``.mha``) files: a folder of them, or a single file.

    Colours become their luma, a fourth channel (opacity) is left out.
    """

    _file: MetaImage | None = None

    def _open(self) -> Found:
        paths = natural_order(images_in(self.path)) if self.path.is_dir() else [self.path]
        if len(paths) > 1:
            return self._folder(paths)
        found = self._single(paths[0])
        name = paths[0].name if self.path.is_dir() else ""
        return found if not name else Found(**{**found.__dict__, "dataset": name})

    def _single(self, path: Path) -> Found:
        if path.suffix.lower() == ".mha":
            self._file = MetaImage(path)
            return self._file.found()
        with Image.open(path, formats=FORMATS) as image:
            n_frames, kind = getattr(image, "n_frames", 1), image.format
            first = _values(image, path)
        shape = (n_frames, *first.shape)
        return Found(f"{kind} image", "", shape, first.dtype, lambda index: _read(path, index, first))

    def _folder(self, paths: list[Path]) -> Found:
        first = self._single(paths[0])
        self._release()
        if first.shape[0] != 1:
            raise InputError(self.path, f"{paths[0].name} alone holds {first.shape[0]} frames", "one frame a file")

        def read(index: int) -> np.ndarray:
            one = self._single(paths[index])
            try:
                if one.shape != first.shape or one.dtype != first.dtype:
                    _, height, width = one.shape
                    raise InputError(
                        self.path,
                        f"{paths[index].name} is {height} x {width} {one.dtype}",
                        f"{first.shape[1]} x {first.shape[2]} {first.dtype} as in {paths[0].name}",
                        "give images that belong to no cine one by one",
                    )
                return one.read(0)
            finally:
                self._release()

        note = f"{len(paths)} images taken as one cine, in the order of their names."
        layout = f"folder of images ({first.layout})"
        return Found(
            layout,
            f"{paths[0].name} ... {paths[-1].name}",
            (len(paths), *first.shape[1:]),
            first.dtype,
            read,
            spacing_m=first.spacing_m,
            origin_m=first.origin_m,
            assumptions=(note,),
        )

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # image decoders raise whatever they come across
            reason = str(error).split("\n")[0] or type(error).__name__
            raise InputError(self.path, f"cannot be read as an image ({reason})", advice="it may be damaged") from error


def natural_order(paths: list[Path]) -> list[Path]:
    """``frame-2.png`` before ``frame-10.png``."""
    return sorted(paths, key=lambda p: ([int(t) if t.isdigit() else t for t in re.split(r"([0-9]+)", p.name)], p.name))


def _read(path: Path, index: int, first: np.ndarray) -> np.ndarray:
    if index == 0:
        return first
    with Image.open(path, formats=FORMATS) as image:
        image.seek(index)
        values = _values(image, path)
    if values.shape != first.shape or values.dtype != first.dtype:
        raise InputError(path, f"frame {index} is {values.shape} {values.dtype}", f"{first.shape} {first.dtype}")
    return values


def _values(image: Image.Image, path: str | os.PathLike[str]) -> np.ndarray:
    """``(H, W)`` grey levels: uint8, or what deeper images hold."""
    check_frame((image.height, image.width), path)
    if image.mode in ("L", "I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
    elif image.mode in ("1", "LA"):
        values = np.asarray(image.convert("L"))
    else:
        values = luma(np.asarray(image.convert("RGB")))
    return values.astype(values.dtype.newbyteorder("="))
