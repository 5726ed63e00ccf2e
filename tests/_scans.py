"""Small scans for tests."""

import json

import h5py
import numpy as np


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
