"""MONAI image writers of results: they let ``SaveImage(d)`` write what ``usdehaze process`` writes.

They are registered for the suffixes ``.dehazed.h5``, ``.dehazed.dcm`` and ``.dehazed.haze.dcm``, which nobody else
uses. MONAI's own registry fills itself on first use, but only while it is empty, and has a wild card for suffixes that
are not in it: whoever registers a writer too early, or for ``.dcm``, switches MONAI's own off.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from monai.config import NdarrayOrTensor, PathLike
from monai.data import ImageWriter, MetaTensor, image_writer
from monai.utils import convert_data_type

from usdehaze.choices import TRANSFER_SYNTAXES, TransferSyntax
from usdehaze.errors import InputError
from usdehaze.io import RESULT_SUFFIX, write_result
from usdehaze.io.detect import DICOM_HAZE_SUFFIX, DICOM_SUFFIX
from usdehaze.result import Result
from usdehaze.transforms.frames import check_same, digests_in
from usdehaze.transforms.layout import array_of
from usdehaze.transforms.meta import name_of
from usdehaze.transforms.result import (
    check_darker,
    check_estimate,
    check_held,
    made_by,
    open_source,
    result_of,
)

_LOG = logging.getLogger("usdehaze.transforms")


def check_transfer_syntax(transfer_syntax: str) -> TransferSyntax:
    """The transfer syntax itself.

    Raises:
        ValueError: there is no such one.
    """
    if transfer_syntax not in TRANSFER_SYNTAXES:
        raise ValueError(f"transfer syntax {transfer_syntax!r}; expected one of {', '.join(TRANSFER_SYNTAXES)}")
    return transfer_syntax


class UltrasoundWriter(ImageWriter):
    """What the two writers share: they take an image on the channel axis with the metadata of `DehazeUltrasound`.

    Args:
        overwrite: replace a file that exists, as MONAI's own writers do; False to refuse.
        scale: must be None: values are dB.
        kwargs: MONAI's other options, such as ``output_dtype``, which have no effect.

    Raises:
        ValueError: ``scale`` is given, a transfer syntax that is none, or later a ``channel_dim`` other than 0.
    """

    def __init__(self, overwrite: bool = True, scale: int | None = None, **kwargs: object) -> None:
        if scale is not None:
            raise ValueError(f"values are dB and are not scaled: leave out scale={scale}")
        super().__init__(**kwargs)
        self.overwrite = overwrite
        self.meta: dict[str, Any] = {}

    def set_data_array(self, data_array: NdarrayOrTensor, channel_dim: int | None = 0, **kwargs: object) -> None:
        """Takes the image, frames on the first axis."""
        if channel_dim != 0:
            raise ValueError(f"frames lie on the channel axis, which must be 0, not {channel_dim}")
        self.data_obj = data_array

    def set_metadata(self, meta_dict: Mapping[Any, Any] | None = None, **options: object) -> None:
        """Takes the metadata, where the image has none of its own. Nothing is resampled: moved pixels are refused."""
        self.meta = dict(meta_dict or {})

    def write(self, filename: PathLike, verbose: bool = True, **kwargs: object) -> None:
        """Writes the file. What goes wrong is logged before it is raised: ``SaveImage`` puts its own guess first.

        Raises:
            InputError: see `_write`.
        """
        try:
            super().write(filename, verbose)
            self._write(filename)
        except Exception as error:
            _LOG.error("%s", error)
            raise

    def _write(self, filename: PathLike) -> None:
        """Writes the image, or raises an `InputError` and leaves nothing behind."""
        raise NotImplementedError

    def image(self) -> MetaTensor:
        """The image with its metadata."""
        if isinstance(self.data_obj, MetaTensor):
            return self.data_obj
        return MetaTensor(convert_data_type(self.data_obj, torch.Tensor)[0], meta=self.meta)


class UltrasoundHDF5Writer(UltrasoundWriter):
    """Writes a result file from one image: tissue, haze, input and, if there is one, the deviation of the tissue.

    `monai.transforms.ConcatItemsd` lays them on one channel axis, in this order, frames ``(T, H, W)`` or
    ``(1, T, H, W)``; the metadata are those of the tissue. `SaveUltrasoundd` does the same without.

    Example:
        >>> from monai.transforms import Compose, ConcatItemsd, SaveImaged
        >>> steps = Compose(
        ...     [
        ...         ConcatItemsd(["tissue", "haze", "image"], name="result"),
        ...         SaveImaged("result", output_dir="out", output_postfix="", output_ext=".dehazed.h5"),
        ...     ]
        ... )
    """

    def _write(self, filename: PathLike) -> None:
        """
        Raises:
            InputError: see `usdehaze.transforms.result.result_of`, `usdehaze.io.write_result`; another number of
                images.
        """
        image = self.image()
        check_estimate(image, "tissue")
        n_frames = int(image.meta["n_frames"])
        channels = n_frames if image.ndim == 3 else 1  # of each image
        if len(image) not in (3 * channels, 4 * channels):
            raise InputError(
                name_of(image),
                f"{len(image)} channels, from {n_frames} frames",
                "tissue, haze, input and perhaps deviation, made one by ConcatItemsd",
            )
        write_result(filename, result_of(*torch.split(image, channels)), self.overwrite)


class UltrasoundDicomWriter(UltrasoundWriter):
    """Writes tissue, or haze, as a derived DICOM image: see `usdehaze.io.dicom.DicomWriter`.

    Which of them it is, the metadata say. The DICOM file that the frames were loaded from must still be there: its
    attributes, and the pixels that hold no tissue, come from it.

    Args:
        overwrite: replace a file that exists, as MONAI's own writers do; False to refuse.
        transfer_syntax: "explicit", "rle", "jpeg-ls" or "j2k"; all are lossless.
        scale, kwargs: see `UltrasoundWriter`.

    Example:
        >>> from monai.transforms import SaveImaged
        >>> save = SaveImaged("tissue", output_dir="out", output_postfix="", output_ext=".dehazed.dcm")
        >>> save = save.set_options(init_kwargs={"transfer_syntax": "jpeg-ls"})
    """

    def __init__(
        self,
        overwrite: bool = True,
        transfer_syntax: TransferSyntax = "explicit",
        *,
        scale: int | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(overwrite, scale, **kwargs)
        self.transfer_syntax = check_transfer_syntax(transfer_syntax)

    def _write(self, filename: PathLike) -> None:
        """
        Raises:
            InputError: an image that does not come from `DehazeUltrasound`, whose pixels have been moved or frames
                picked, which was made from other values than the file's, or whose source is no longer where or what it
                was; a file that exists or cannot be written.
        """
        from usdehaze.io.dicom import DicomWriter

        image = self.image()
        what = check_estimate(image, "tissue", "haze")
        scan = open_source(image)
        with scan:
            cine, estimate_db = scan.read(), array_of(image)
            check_held(image, cine.frames)
            if what == "tissue":
                check_darker(image, cine.frames)
            check_same(name_of(image), what, estimate_db, digests_in(image).get(what))
            result = Result(cine, estimate_db, estimate_db, None, **made_by(image))  # one of the two is written
            with DicomWriter(
                filename, scan, what=what, transfer_syntax=self.transfer_syntax, overwrite=self.overwrite
            ) as writer:
                writer.append(result)


def register_writers() -> None:
    """Tells ``SaveImage`` of the writers; importing `usdehaze.transforms` has done it."""
    if not image_writer.SUPPORTED_WRITERS:
        image_writer.init()
    image_writer.register_writer(RESULT_SUFFIX, UltrasoundHDF5Writer)
    image_writer.register_writer(DICOM_SUFFIX, UltrasoundDicomWriter)
    image_writer.register_writer(DICOM_HAZE_SUFFIX, UltrasoundDicomWriter)
