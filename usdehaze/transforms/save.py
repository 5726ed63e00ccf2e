"""SaveUltrasoundd: tissue and haze go into files, as ``usdehaze process`` writes them."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from monai.config import KeysCollection
from monai.transforms import MapTransform
from monai.utils import ImageMetaKey, TransformBackends

from usdehaze.choices import TransferSyntax, check_flags
from usdehaze.io import RESULT_SUFFIX, ResultWriter, Sink
from usdehaze.io.detect import DICOM_HAZE_SUFFIX, DICOM_SUFFIX, beside_result, stem_of
from usdehaze.io.scan import CineScan
from usdehaze.io.sink import SinkSet
from usdehaze.result import Result
from usdehaze.transforms.meta import name_of
from usdehaze.transforms.result import check_held, is_dicom, open_source, result_of
from usdehaze.transforms.writers import check_transfer_syntax


class SaveUltrasoundd(MapTransform):
    """Writes ``STEM.dehazed.h5``; for a DICOM file, also the dehazed image ``STEM.dehazed.dcm``.

    STEM is the name of the scan that was loaded, without the suffix of a format, as ``usdehaze process`` has it. The
    tissue's metadata gain ``saved_to``, the path of the ``.h5`` file, and ``saved_files``, the paths of all, one a
    line. There is no array version: for arrays there is `usdehaze.io.write_result`.

    Args:
        keys: key of the tissue ``(T, H, W)`` or ``(1, T, H, W)`` dB, out of `DehazeUltrasoundd`; one, since a result
            holds one scan.
        haze_key: key of the haze.
        input_key: key of the frames that went in: `monai.transforms.CopyItemsd` keeps them before dehazing.
        std_key: key of the deviation of the tissue, if there is one.
        output_dir: folder of the results; made if need be.
        data_root_dir: as of MONAI's ``SaveImage``: the folders between it and the scan are kept under ``output_dir``.
        overwrite: replace results that exist.
        save_haze: for a DICOM file also write the haze, ``STEM.dehazed.haze.dcm``.
        transfer_syntax: of DICOM results: "explicit", "rle", "jpeg-ls" or "j2k"; all are lossless.
        allow_missing_keys: do nothing where the tissue is missing instead of raising.

    Raises:
        ValueError: several keys, the tissue's as that of the input, an unknown transfer syntax.
        TypeError: ``overwrite`` or ``save_haze`` is neither True nor False.
        InputError: when called, for tissue that does not come from `DehazeUltrasoundd`, or whose frames have been
            picked or put in another order after loading, for images that are not what they were as it was made, bit
            for bit, for a file that exists or cannot be written, and for a DICOM file that is no longer where or what
            it was.
        KeyError: when called, for a missing key.

    Example:
        >>> from monai.transforms import Compose, CopyItemsd
        >>> from usdehaze.transforms import DehazeUltrasoundd, LoadUltrasoundd, SaveUltrasoundd
        >>> steps = Compose(
        ...     [
        ...         LoadUltrasoundd("image"),
        ...         CopyItemsd("image", names="tissue"),
        ...         DehazeUltrasoundd("tissue", haze_key="haze"),
        ...         SaveUltrasoundd("tissue", haze_key="haze", input_key="image", output_dir="out"),
        ...     ]
        ... )
        >>> steps({"image": "scan.h5"})["tissue"].meta["saved_to"]  # doctest: +SKIP
        'out/scan.dehazed.h5'
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012 (MONAI's convention)

    def __init__(
        self,
        keys: KeysCollection,
        haze_key: str = "haze",
        input_key: str = "image",
        std_key: str | None = None,
        output_dir: str | os.PathLike[str] = ".",
        overwrite: bool = False,
        save_haze: bool = False,
        transfer_syntax: TransferSyntax = "explicit",
        allow_missing_keys: bool = False,
        data_root_dir: str | os.PathLike[str] = "",
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        if len(self.keys) != 1:
            raise ValueError(f"a result holds one scan: give one key, not {self.keys}")
        if input_key in self.keys:
            raise ValueError(f"input_key {input_key!r} is the tissue's: keep what goes in, CopyItemsd before dehazing")
        self.haze_key = haze_key
        self.input_key = input_key
        self.std_key = std_key
        self.output_dir, self.data_root_dir = Path(output_dir), os.fspath(data_root_dir)
        check_flags(overwrite=overwrite, save_haze=save_haze)
        self.overwrite = overwrite
        self.save_haze = save_haze
        self.transfer_syntax = check_transfer_syntax(transfer_syntax)
        self.stem: str | None = None  # of the one scan to come, where its own is also another's: see `dehaze_all`

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        d = dict(data)
        for key in self.key_iterator(d):
            std = None if self.std_key is None else d[self.std_key]
            result = result_of(d[key], d[self.haze_key], d[self.input_key], std)
            saved = self._save(result, d[key])
            d[key].meta["saved_to"], d[key].meta["saved_files"] = str(saved[0]), "\n".join(map(str, saved))
        return d

    def target_of(self, scan: str | os.PathLike[str]) -> Path:
        """The result file of a scan, of which there is at least the path or the name."""
        scan = Path(scan)
        folder = self.output_dir
        if self.data_root_dir:
            with suppress(ValueError):  # a scan that lies elsewhere
                folder = folder / scan.absolute().parent.relative_to(Path(self.data_root_dir).absolute())
        return folder / ((self.stem or stem_of(scan)) + RESULT_SUFFIX)

    def _save(self, result: Result, tissue: Any) -> list[Path]:
        """Writes the files of a result, all or none, and tells which; the result file is the first."""
        source = Path(str(tissue.meta.get(ImageMetaKey.FILENAME_OR_OBJ) or name_of(tissue)))
        path = self.target_of(source)
        with ExitStack() as stack:
            scan = CineScan(result.cine, source)
            sinks: list[Sink] = [ResultWriter(path, scan, self.overwrite)]
            if is_dicom(tissue):
                sinks += self._dicom_sinks(path, tissue, stack)
            files = stack.enter_context(SinkSet(sinks, sinks[-1].scan))
            files.append(result)
            files.finish()
            files.commit()
        return [sink.path for sink in sinks]

    def _dicom_sinks(self, path: Path, tissue: Any, stack: ExitStack) -> list[Sink]:
        from usdehaze.io.dicom import DicomWriter

        scan = open_source(tissue)
        stack.callback(scan.close)
        check_held(tissue, scan.read_db(0, scan.n_frames))
        named = [(DICOM_SUFFIX, "tissue"), (DICOM_HAZE_SUFFIX, "haze")][: 2 if self.save_haze else 1]
        how: dict[str, Any] = {"transfer_syntax": self.transfer_syntax, "overwrite": self.overwrite}
        return [DicomWriter(beside_result(path, suffix), scan, what=what, **how) for suffix, what in named]


SaveUltrasoundD = SaveUltrasoundDict = SaveUltrasoundd
