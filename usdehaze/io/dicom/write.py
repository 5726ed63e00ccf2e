"""Results -> derived DICOM images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pydicom
from PIL import Image, ImageDraw, ImageFont
from pydicom.dataset import Dataset, FileMetaDataset

import usdehaze
from usdehaze.choices import TRANSFER_SYNTAXES, TransferSyntax
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask
from usdehaze.io.dicom.derive import IMPLEMENTATION, derivation, derived_attributes
from usdehaze.io.dicom.pixels_out import ENCODERS, PixelDataWriter, photometric
from usdehaze.io.dicom.read import DicomScan
from usdehaze.io.dicom.series import PRODUCTS
from usdehaze.io.sink import Sink
from usdehaze.quiet import quiet

if TYPE_CHECKING:
    from usdehaze.result import Result

SMALLEST_PX, ROWS_A_PIXEL = 10, 40  # size of a mark's letters: a fortieth of the picture


class Mark:
    """A line in white on black, in the corner of a picture where it covers least.

    Args:
        text: the line.
        image: ``(H, W)`` bool, pixels of the images on the screen, which it keeps off where it can.
        first: ``(H, W)`` or ``(H, W, 3)`` uint8, the first picture: what else it keeps off.
    """

    def __init__(self, text: str, image: np.ndarray, first: np.ndarray) -> None:
        height, width = image.shape
        font = ImageFont.load_default(size=max(SMALLEST_PX, height // ROWS_A_PIXEL))
        left, top, right, bottom = (int(side) for side in font.getbbox(text))
        canvas = Image.new("L", (min(right - left + 4, width), min(bottom - top + 4, height)))
        ImageDraw.Draw(canvas).text((2 - left, 2 - top), text, fill=255, font=font)
        self.letters = np.asarray(canvas)
        rows, columns = self.letters.shape
        busy = image + (first if first.ndim == 2 else first.max(axis=2)) / 1000
        corners = [(y, x) for y in (height - rows, 0) for x in (0, width - columns)]
        self.corner = min(corners, key=lambda at: float(busy[at[0] : at[0] + rows, at[1] : at[1] + columns].sum()))

    def on(self, picture: np.ndarray) -> np.ndarray:
        """A copy of a picture ``(H, W)`` or ``(H, W, 3)`` uint8 with the line in it."""
        marked = picture.copy()
        (y, x), (rows, columns) = self.corner, self.letters.shape
        marked[y : y + rows, x : x + columns] = self.letters if picture.ndim == 2 else self.letters[..., None]
        return marked


class DicomWriter(Sink):
    """Writes results on a DICOM scan as a derived Ultrasound Image, or Multi-frame Image where there are several.

    Pixels are 8-bit MONOCHROME2, or RGB where the source has any colour. Those that hold no grey tissue (colour,
    another region, outside the image) and those that the dehazer left alone keep their level, and in RGB their colour,
    bit for bit; a source of more than 8 bits, a palette and YBR are compared as they look in 8-bit grey or RGB.

    Args:
        path: the file to write.
        scan: the source, whose results are appended.
        what: "tissue", or "haze" for the haze estimate, always MONOCHROME2.
        transfer_syntax: "explicit", "rle", "jpeg-ls" or "j2k"; none of them loses anything.
        mark: write into every picture what it is, in the corner where that covers least.
        overwrite: replace a file that exists.

    Raises:
        InputError: see `Sink`; also more frames than one DICOM object holds.
        ValueError: another name than those.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        scan: DicomScan,
        *,
        what: str = "tissue",
        transfer_syntax: TransferSyntax = "explicit",
        mark: bool = False,
        overwrite: bool = False,
    ) -> None:
        if what not in PRODUCTS or transfer_syntax not in TRANSFER_SYNTAXES:
            raise ValueError(f"no product {what!r} or transfer syntax {transfer_syntax!r}")
        super().__init__(path, scan, overwrite)
        self.source, self.what = scan, what
        self.syntax: TransferSyntax = transfer_syntax
        self.colour, self.with_mark = False, mark
        self._mark: Mark | None = None
        self._file: BinaryIO | None = None
        self._pixels: PixelDataWriter | None = None
        self._attributes, self._told, self._n_header = Dataset(), "", 0

    def _append(self, result: Result) -> None:
        pixels = self._pixels or self._begin(result)
        self._told = derivation(self.source, result, PRODUCTS[self.what])
        frames = self._haze(result) if self.what == "haze" else self._tissue(result)
        try:
            for frame in frames:
                pixels.append(self._marked(frame, result))
        except ValueError as error:
            raise self._too_large(error) from error

    def _marked(self, picture: np.ndarray, result: Result) -> np.ndarray:
        if not self.with_mark:
            return picture
        if self._mark is None:
            strength = result.settings.get("strength", 1.0) if self.what == "tissue" else 1.0
            how = "usdehaze" if strength == 1 else f"usdehaze, strength {strength:g}"
            text = f"{PRODUCTS[self.what].description} ({how})"
            self._mark = Mark(text, image_mask(self.source.geometry, self.source.shape), picture)
        return self._mark.on(picture)

    def _close(self, complete: bool) -> None:
        if self._file is not None:
            with self._file:
                if complete and self._pixels is not None:
                    self._pixels.close()
                    if self._told != self._attributes.DerivationDescription:  # later frames had more to tell
                        self._tell(self._file)

    def _tell(self, file: BinaryIO) -> None:
        """Writes everything before the first pixel again, which then takes another length."""
        self._attributes.DerivationDescription = self._told
        with TemporaryFile(dir=self.part.path.parent) as pixels:
            file.seek(self._n_header)
            copyfileobj(file, pixels)
            file.seek(0)
            file.truncate()
            with quiet():
                pydicom.dcmwrite(file, self._attributes, enforce_file_format=True)
            pixels.seek(0)
            copyfileobj(pixels, file)

    def _begin(self, result: Result) -> PixelDataWriter:
        """Writes everything before the first pixel."""
        self.colour = self.what == "tissue" and self.source.has_colour
        self._file = open(self.part.path, "r+b")
        try:
            with quiet():
                colours = photometric(self.syntax, self.colour)
                window = _window(next(self._haze(result))) if self.what == "haze" else None
                attributes = derived_attributes(self.source, result, self.what, colours, self.with_mark, window)
                attributes.file_meta = FileMetaDataset()
                attributes.file_meta.ImplementationClassUID = IMPLEMENTATION
                attributes.file_meta.ImplementationVersionName = f"USDEHAZE_{usdehaze.__version__}"[:16]
                attributes.file_meta.TransferSyntaxUID = ENCODERS[self.syntax][0]
                pydicom.dcmwrite(self._file, attributes, enforce_file_format=True)
                self._attributes, self._n_header = attributes, self._file.tell()
        except (OSError, InputError):
            raise
        except Exception as error:  # pydicom's own words may quote the attribute it stumbled over
            reason = f"attributes of its source cannot be written again ({type(error).__name__})"
            raise InputError(self.path, reason) from None
        shape = (*self.source.shape, 3) if self.colour else self.source.shape
        try:
            self._pixels = PixelDataWriter(self._file, self.syntax, self.source.n_frames, shape)
        except ValueError as error:
            raise self._too_large(error) from error
        return self._pixels

    def _tissue(self, result: Result) -> Iterator[np.ndarray]:
        """Frames ``(H, W)`` or ``(H, W, 3)`` uint8 to write."""
        for row, tissue_db in enumerate(result.tissue):
            before, after = (self._level(frame) for frame in (result.cine.frames[row], tissue_db))
            if result.cine.tissue_mask is not None:
                after = np.where(result.cine.tissue_mask[row], after, before)
            picture = self.source.picture(self.n_done + row) if self.colour else None
            step = after.astype(np.int16) - before
            if picture is None or picture.rgb is None:
                shown = self.source.shown_grey(self.n_done + row)
                yield after if shown is None else np.clip(shown + step, 0, 255).astype(np.uint8)
                continue
            rgb = np.clip(picture.rgb + step[..., None], 0, 255).astype(np.uint8)
            for mask, tint in self.source.tints:
                lowered = mask & (step != 0)
                rgb[lowered] = tint.recoloured(picture.rgb[lowered], before[lowered], after[lowered])
            yield rgb

    def _haze(self, result: Result) -> Iterator[np.ndarray]:
        for row, haze_db in enumerate(result.haze):
            haze = self._grey(haze_db)
            mask = result.cine.tissue_mask
            yield haze if mask is None else np.where(mask[row], haze, 0).astype(np.uint8)

    def _level(self, frame_db: np.ndarray) -> np.ndarray:
        """Grey levels as the source has them: inverted where its own are."""
        black, white = self.source.shown
        share = np.clip(frame_db / np.float64(self.source.dynamic_range_db) + 1, 0, 1)
        return np.clip(np.rint(black + share * (white - black)), 0, 255).astype(np.uint8)

    def _grey(self, frame_db: np.ndarray) -> np.ndarray:
        return db_to_grey(frame_db, self.source.dynamic_range_db)

    def _too_large(self, error: ValueError) -> InputError:
        return InputError(
            self.path,
            f"cannot hold {error}",
            "at most 4 GiB, as in any DICOM object",
            "take part of the frames with --frames, or compress them with --transfer-syntax",
        )


def _window(haze: np.ndarray) -> int:
    """The level that all but the brightest haze ``(H, W)`` uint8 lies under."""
    seen = haze[haze > 0]
    return max(2, round(float(np.quantile(seen, 0.995)))) if seen.size else 255
