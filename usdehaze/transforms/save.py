"""SaveUltrasoundd: tissue and haze go into a result file, as ``usdehaze process`` writes it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import MapTransform
from monai.utils import TransformBackends, convert_data_type

from usdehaze.dehazer import DehazeResult
from usdehaze.errors import InputError
from usdehaze.io import RESULT_SUFFIX, write_result
from usdehaze.transforms.meta import SETTINGS, cine_of, geometry_in, name_of


class SaveUltrasoundd(MapTransform):
    """Writes ``STEM.dehazed.h5``, STEM being that of the scan that was loaded.

    The tissue's metadata gain ``saved_to``, the path of the file. There is no array version: for arrays there is
    `usdehaze.io.write_result`.

    Args:
        keys: key of the tissue ``(T, H, W)`` dB, out of `DehazeUltrasoundd`; one, since a result holds one scan.
        haze_key: key of the haze.
        input_key: key of the frames that went in: `monai.transforms.CopyItemsd` keeps them before dehazing.
        std_key: key of the deviation of the tissue, if there is one.
        output_dir: folder of the results; made if need be.
        overwrite: replace results that exist.
        allow_missing_keys: do nothing where the tissue is missing instead of raising.

    Raises:
        ValueError: several keys.
        InputError: when called, for tissue that does not come from `DehazeUltrasoundd` or whose pixels a spatial
            transform has moved since, and for a file that exists or cannot be written.
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
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        if len(self.keys) != 1:
            raise ValueError(f"a result holds one scan: give one key, not {self.keys}")
        self.haze_key = haze_key
        self.input_key = input_key
        self.std_key = std_key
        self.output_dir = Path(output_dir)
        self.overwrite = overwrite

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        d = dict(data)
        for key in self.key_iterator(d):
            std = None if self.std_key is None else d[self.std_key]
            path = self._save(d[key], d[self.haze_key], d[self.input_key], std)
            d[key].meta["saved_to"] = str(path)
        return d

    def _save(self, tissue: Any, haze: Any, image: Any, std: Any) -> Path:
        meta = tissue.meta if isinstance(tissue, MetaTensor) else {}
        geometry = geometry_in(tissue)
        if geometry is None or SETTINGS not in meta:
            raise InputError(name_of(tissue), "no record of dehazing in the metadata", "tissue from DehazeUltrasoundd")
        shapes = [tuple(array.shape) for array in (tissue, haze, image, std) if array is not None]
        if len(set(shapes)) > 1:
            raise InputError(name_of(tissue), f"tissue, haze and input have shapes {shapes}", "one shape (T, H, W)")
        cine = cine_of(tissue, _array(image), geometry, float(meta["dynamic_range_db"]))
        std_db = None if std is None else _array(std)
        path = self.output_dir / (Path(name_of(tissue)).stem + RESULT_SUFFIX)
        write_result(path, DehazeResult(cine, _array(tissue), _array(haze), std_db, meta[SETTINGS]), self.overwrite)
        return path


SaveUltrasoundD = SaveUltrasoundDict = SaveUltrasoundd


def _array(image: Any) -> np.ndarray:
    return convert_data_type(image, torch.Tensor, device="cpu", dtype=torch.float32)[0].detach().numpy()
