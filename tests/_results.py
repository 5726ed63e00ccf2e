"""Small results for tests of what is made from them."""

import numpy as np

from usdehaze.cine import Cartesian, Cine, Polar, Sector, Source
from usdehaze.io import write_result
from usdehaze.io.scan import CineScan
from usdehaze.preview import PreviewWriter
from usdehaze.result import Result

SECTOR = Cartesian((2e-4, 3e-4), (0.0, 0.0), Sector(24.0, -2.0, 1.0, 40.0, -0.6, 0.6, 2 / 3), "file")
POLAR = Polar(np.linspace(0.005, 0.15, 40), np.linspace(-0.65, 0.6, 48))
SHAPE = (5, 40, 48)
SETTINGS = {
    "preset": "fast",
    "guidance": "proximal",
    "steps": 20,
    "seed": 3,
    "samples": 4,
    "caution": 0.6,
    "strength": 0.75,
    "scale": (0.93, 0.88),
    "from_guess": True,
    "tissue_prior": "unet-tissue sha256:00ff",
    "haze_prior": "unet-haze sha256:11ee",
}
REGIONS = {
    "regions": [
        {"name": "septum", "role": "tissue", "polygon": [[4, 5], [20, 5], [20, 35], [4, 35]]},
        {"name": "ventricle", "role": "haze", "polygon": [[26, 5], [44, 5], [44, 35], [26, 35]]},
    ]
}


def make_result(
    path, geometry=SECTOR, with_std=True, times=True, shape=SHAPE, first_frame=0, blob=False, settings=None
):
    """Writes a random result: speckle, a third of it lowered, haze, spread. Returns what was written."""
    rng = np.random.default_rng(1)
    speckle = np.clip(10 * np.log10(rng.exponential(1e-2, shape)), -60, 0).astype(np.float32)
    if blob:  # a bright half
        speckle[:, :, shape[2] // 2 :] = np.minimum(speckle[:, :, shape[2] // 2 :] + 15, 0)
    speckle[:, :, :2] = -60  # outside the image
    tissue = np.maximum(speckle - np.where(rng.random(shape) < 1 / 3, rng.uniform(0, 15, shape), 0), -60)
    haze = np.clip(rng.normal(-35, 4, shape), -60, 0)
    std = rng.gamma(2.0, 0.6, shape).astype(np.float32) if with_std else None
    source = Source(
        "QUILLFEATHER^ZOE 1950-01-01.h5",
        "ab" * 32,
        "Quillfeather/cine",
        "HDF5 dataset",
        "8-bit",
        ("Dynamic range assumed to be 60 dB.",),
        first_frame,
    )
    cine = Cine(speckle, geometry, 60.0, 0.02 * np.arange(shape[0]) if times else None, source)
    result = Result(cine, tissue.astype(np.float32), haze.astype(np.float32), std, {**SETTINGS, **(settings or {})})
    write_result(path, result)
    return result


def write_preview(path, result, kind="png", **look):
    """Draws a preview of a result that is in memory."""
    with PreviewWriter(path, CineScan(result.cine), kind, **look) as writer:
        writer.append(result)
