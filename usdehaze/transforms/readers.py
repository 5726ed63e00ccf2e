"""MONAI image readers of ultrasound: usable as ``LoadImage(reader=...)`` and by dotted name in a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader
from monai.utils import ensure_tuple

from usdehaze.choices import Layout, Units
from usdehaze.errors import InputError
from usdehaze.io import Reading, Scan, open_scan
from usdehaze.io.formats import DICOM, FORMATS, HDF5, FileFormat, format_of
from usdehaze.io.limits import check_memory
from usdehaze.transforms.layout import check_layout
from usdehaze.transforms.meta import meta_of


class UltrasoundReader(ImageReader):
    """Reads every kind of scan that usdehaze knows: frames ``(T, H, W)`` in dB, on the channel axis, or one channel
    ``(1, T, H, W)``.

    It is not among the readers that ``LoadImage`` tries of itself: there it would take other modalities' DICOM files
    away from MONAI's own readers. Name it: ``LoadImage(reader=UltrasoundReader)``, or by dotted name,
    ``reader: usdehaze.transforms.UltrasoundReader``. Where it refuses a file, ``LoadImage`` goes on to MONAI's readers;
    `LoadUltrasound` does not, and tells why the file was refused.

    Args:
        dataset: path of the dataset inside an HDF5 file; needed only where several could be the frames.
        dynamic_range_db: dB between full scale and the floor; by default what the file says, else 60.
        frames: which frames, as a slice without a step; all by default.
        axes, units: of HDF5 files and images, where the guess is wrong; see `usdehaze.io.Reading`.
        layout: "THW", or "1THW" for one channel whose first axis is time; see `usdehaze.transforms.layout`.
        levels: stored values at the floor and at 0 dB, where the guess is wrong; the first is the larger one where
            black is shown as white.
        rectangle: seek no fan, and no other image, in frames whose file does not say where the image is.
        strict: refuse a file of which anything has to be guessed.
        force: go on with a screen that shows no grey-scale B-mode.

    Raises:
        TypeError, ValueError: options that cannot be, whatever the file.

    Example:
        >>> from monai.transforms import LoadImage
        >>> from usdehaze.transforms import UltrasoundReader
        >>> LoadImage(reader=UltrasoundReader, frames=slice(0, 30))("scan.h5").shape  # doctest: +SKIP
        torch.Size([30, 480, 640])
    """

    only: FileFormat | None = None  # the one format that is read; None for all of them

    def __init__(
        self,
        dataset: str | None = None,
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        axes: str | None = None,
        units: Units | None = None,
        layout: Layout = "THW",
        levels: Sequence[float] | None = None,
        rectangle: bool = False,
        strict: bool = False,
        force: bool = False,
    ) -> None:
        self.layout = check_layout(layout)
        self.reading = Reading(
            dataset=dataset,
            axes=axes,
            units=units,
            dynamic_range_db=dynamic_range_db,
            frames=frames,
            levels=cast(Any, tuple(levels) if isinstance(levels, list) else levels),
            rectangle=rectangle,
            strict=strict,
            force=force,
        )
        check_options(frames, axes)

    def verify_suffix(self, filename: Sequence[PathLike] | PathLike) -> bool:
        """True where the content of the one file (or folder of images) is of a kind that is read, whatever its name."""
        names = ensure_tuple(filename)
        try:
            return len(names) == 1 and format_of(names[0]) in ([self.only] if self.only else FORMATS)
        except InputError:
            return False

    def read(self, data: Sequence[PathLike] | PathLike, **kwargs: Any) -> Scan:
        """Opens a scan; `get_data` reads its frames.

        Args:
            data: path of the scan, or a sequence of one path.
            kwargs: override the options of the constructor, as `usdehaze.io.reading.ReadingOptions`.

        Raises:
            InputError: the file is missing, of another kind, or holds no usable frames; several paths.
        """
        names = ensure_tuple(data)
        if len(names) != 1:
            raise InputError(
                type(self).__name__, f"{len(names)} files at once", "one scan, a file or a folder of images"
            )
        found = format_of(names[0])
        if self.only and found and found is not self.only:  # `open_scan` says what it thinks of unknown ones
            advice = "read it with UltrasoundReader"
            raise InputError(names[0], f"is of another kind ({found.name})", self.only.name, advice)
        return open_scan(names[0], self.reading, **kwargs)

    def get_data(self, img: Scan) -> tuple[np.ndarray, dict[str, Any]]:
        """Frames ``(T, H, W)`` or ``(1, T, H, W)`` float32 dB and their metadata, see `meta_of` in `meta.py`.

        Args:
            img: what `read` returned; closed afterwards.

        Raises:
            InputError: a frame that cannot be used, or too many frames to hold in memory.
        """
        with img as scan:
            check_memory((scan.n_frames, *scan.shape), scan.path)
            cine = scan.read()
        frames = cine.frames if self.layout == "THW" else cine.frames[None]
        return frames, meta_of(cine, scan.path, self.layout, scan.reading)


class UltrasoundHDF5Reader(UltrasoundReader):
    """Reads HDF5 files alone; see `UltrasoundReader`."""

    only = HDF5


class UltrasoundDicomReader(UltrasoundReader):
    """Reads DICOM files alone: ultrasound images, multi-frame images and secondary captures.

    Frames lie on the channel axis and rows stay rows. (MONAI's ``PydicomReader`` swaps the first two axes, which in a
    multi-frame image are frames and rows.) Pixels that hold no grey tissue are noted in the metadata, and
    `DehazeUltrasound` leaves them as they are.

    Args:
        dynamic_range_db, frames, layout, levels, rectangle, strict, force: see `UltrasoundReader`.
    """

    only = DICOM

    def __init__(
        self,
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        layout: Layout = "THW",
        levels: Sequence[float] | None = None,
        rectangle: bool = False,
        strict: bool = False,
        force: bool = False,
    ) -> None:
        super().__init__(None, dynamic_range_db, frames, None, None, layout, levels, rectangle, strict, force)


def check_options(frames: Any, axes: Any) -> None:
    """Refuses values that no file could be read with, beside those that `Reading` refuses.

    Raises:
        ValueError: frames that are never any; axes that do not have H and W once, T and C at most once.
    """
    if frames is not None:
        first, stop = frames.start or 0, frames.stop
        if stop is not None and stop <= first and (first < 0) == (stop < 0):
            raise ValueError(f"frames {frames!r} hold none")
    if axes is not None:
        letters = axes.upper()
        if len(set(letters)) < len(letters) or not set("HW") <= set(letters) <= set("THWC"):
            raise ValueError(f"axes {axes!r}; expected H and W once, T and C at most once, such as THW or HWT")
