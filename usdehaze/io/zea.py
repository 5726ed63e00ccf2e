"""Results in the format of zea: maps ``data/tissue`` and ``data/haze`` beside the input, ``data/image``.

Follows zea's specification of version `ZEA_VERSION`: each map has ``values`` ``(T, H, W)`` float32 in dB and, where the
geometry is known in m, ``coordinates`` ``(H, W, 3)``: x, y, z of every pixel. How they were made is in the attributes
of the group ``custom``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np

from usdehaze.cine import Geometry, positions_m
from usdehaze.io.h5_output import Hdf5Output
from usdehaze.io.own_files import create_frames, write_frames
from usdehaze.io.result import file_attributes
from usdehaze.io.runs import ATTRIBUTE, run_id
from usdehaze.io.sink import Sink

if TYPE_CHECKING:
    from usdehaze.result import Result

ZEA_VERSION = "0.1.8"
_LATEST_S = float(np.finfo(np.float32).max) / 2  # that the format can hold, as a difference too
_DATA = "tracks/track_0/data"


class ZeaWriter(Sink):
    """Writes input, tissue and haze, with several samples also the tissue's deviation, as maps that zea reads."""

    _output: Hdf5Output | None = None

    def _append(self, result: Result) -> None:
        maps = {"image": result.cine.frames, "tissue": result.tissue, "haze": result.haze}
        if result.std is not None:
            maps["tissue_std"] = result.std
        if self._output is None:
            self._output = Hdf5Output(self.part.path)
            self._create(self._output.file, list(maps), result)
        for name, values in maps.items():
            write_frames(self._output.file[f"{_DATA}/{name}/values"], self.n_done, values)
        self._output.check()

    def _create(self, file: h5py.File, names: list[str], result: Result) -> None:
        file.attrs["zea_version"] = ZEA_VERSION
        name, version = self.scan.source.name, result.usdehaze_version
        file.attrs["description"] = f"Input, tissue and haze of {name} by usdehaze {version}"
        for group in ("metadata", "metrics", "probe", "custom"):
            file.create_group(group)
        file["custom"].attrs.update({**file_attributes(result), ATTRIBUTE: run_id(self.scan, result)})
        coordinates, times = coordinates_of(self.scan.geometry, self.scan.shape), self.scan.frame_times_s
        for name in names:
            group = file.create_group(f"{_DATA}/{name}")
            create_frames(group, "values", (self.scan.n_frames, *self.scan.shape))
            group["unit"] = "dB"
            if name != "tissue_std":
                group["min"], group["max"] = np.float32(-self.scan.dynamic_range_db), np.float32(0)
            if coordinates is not None:
                group.create_dataset("coordinates", data=coordinates, compression="gzip", shuffle=True)
            if times is not None and np.abs(times).max() < _LATEST_S and np.all(np.diff(times) > 0):
                group["timestamps"] = np.asarray(times - times[0], np.float32)
                group["start_time_offset"] = np.float32(times[0])

    def _close(self, complete: bool) -> None:
        if self._output is not None:
            self._output.close()


def coordinates_of(geometry: Geometry, shape: tuple[int, int]) -> np.ndarray | None:
    """Position x, y, z of every pixel, ``(H, W, 3)`` float32 in m; None where the pixel spacing is not known."""
    if (known := positions_m(geometry, shape)) is None:
        return None
    x_m, z_m = known
    return np.stack([x_m, np.zeros_like(x_m), z_m], axis=-1).astype(np.float32)
