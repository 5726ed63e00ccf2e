"""Small scans for tests."""

import json

import h5py
import numpy as np
import pytest

from usdehaze import open_cine
from usdehaze.errors import InputError


def fan_frames(n_frames=2, height=64, width=64, seed=0):
    """``(T, H, W)`` uint8: a speckled fan of 35 degrees either side on black."""
    rng = np.random.default_rng(seed)
    row, column = np.mgrid[:height, :width]
    angle = np.arctan2(column - (width - 1) / 2, row + 1.0)
    inside = (np.abs(angle) < np.deg2rad(35)) & (np.hypot(column - (width - 1) / 2, row) < height - 1)
    frames = np.clip(rng.normal(130, 40, (n_frames, height, width)), 1, 255)
    return np.where(inside, frames, 0).astype(np.uint8)


def write(path, datasets, **attributes):
    """An HDF5 file with these datasets."""
    with h5py.File(path, "w") as file:
        for name, array in datasets.items():
            file.create_dataset(name, data=array)
        file.attrs.update(attributes)
    return path


def write_hazy_clip(folder):
    """A clip in ``folder`` (made here) with a septum and a ventricle drawn beside it."""
    folder.mkdir()
    write(folder / "clip-01.h5", {"cine": fan_frames(4, 96, 96, seed=2)})
    regions = [
        {"name": name, "role": role, "frames": [0], "polygon": [[x, 30], [x + 10, 30], [x + 10, 60], [x, 60]]}
        for name, role, x in (("septum", "tissue", 35), ("ventricle", "haze", 50))
    ]
    (folder / "clip-01.rois.json").write_text(json.dumps({"regions": regions}))


def speckled_fan(n_frames=2, height=96, width=120, seed=1):
    """``(T, H, W)`` echo amplitudes, 1 the largest: developed speckle in a fan of 38 degrees, a wall and a cavity."""
    rng = np.random.default_rng(seed)
    row, column = np.mgrid[:height, :width].astype(float)
    across = column - (width - 1) / 2
    radius, angle = np.hypot(row - 3, across), np.arctan2(across, row - 3)
    from_centre = np.hypot(row - 0.55 * height, across)
    tissue = np.where(from_centre < 0.17 * height, 0.006, 0.08)
    tissue[np.abs(from_centre - 0.2 * height) < 0.03 * height] = 0.5
    tissue[(np.abs(angle) > np.deg2rad(38)) | (radius > height - 8) | (radius < 4)] = 0
    parts = rng.normal(size=(2, n_frames, height, width))
    echoes = tissue * np.hypot(*parts)
    return echoes / echoes.max()


def in_db(echoes, dynamic_range_db=60.0):
    """Echo amplitudes as dB, clipped at the floor."""
    floor = 10 ** (-dynamic_range_db / 20)
    return 20 * np.log10(np.maximum(echoes, floor))


def refused(path, *parts, **options):
    """Asserts that a scan is refused in one line that names it and holds every part."""
    with pytest.raises(InputError) as caught:
        open_cine(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    for part in parts:
        assert part in message, message
