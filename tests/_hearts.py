"""Two results of one simulated heart: the first takes a wall away in some frames, the second keeps it."""

import json

import numpy as np
from scipy import ndimage

from usdehaze.cine import Cine, Source
from usdehaze.io import write_result
from usdehaze.result import Result
from usdehaze.simulate import simulate_cine
from usdehaze.simulate.tissue import CAVITY

N_FRAMES = 8
LOWERED = [1, 5, 6]
SETTINGS = {"preset": "fast", "guidance": "learned", "seed": 3}


def thin_walls(cine):
    """Tissue of a few pixels' width between fluid, which haze does not hide, of frame 0: bool ``(H, W)``."""
    tissue = cine.labels[0] != CAVITY
    thin = tissue & ~ndimage.binary_opening(tissue, np.ones((9, 9)))
    clear = ndimage.gaussian_filter(cine.tissue[0] - cine.haze[0], 3) > 6
    return thin & clear & (cine.tissue[0] > -45)


def write_hearts(folder):
    """``a.dehazed.h5``, ``b.dehazed.h5`` and regions of every frame, ``a.rois.json``: the paths of the three."""
    simulated = simulate_cine(n_frames=1, seed=100)
    hazy = np.repeat(simulated.hazy, N_FRAMES, axis=0)
    kept = (hazy - 1).clip(-60)
    eaten = kept.copy()
    walls = ndimage.binary_dilation(thin_walls(simulated), iterations=2)
    eaten[LOWERED] = np.where(walls, np.maximum(eaten[LOWERED] - 25, -60), eaten[LOWERED])
    source = Source("heart.h5", "ab" * 32, "hazy", "usdehaze simulation", "dB", (), 0)
    cine = Cine(hazy, simulated.geometry, 60.0, 0.02 * np.arange(N_FRAMES), source)
    haze = np.repeat(simulated.haze, N_FRAMES, axis=0)
    paths = folder / "a.dehazed.h5", folder / "b.dehazed.h5", folder / "a.rois.json"
    for path, tissue, seed in zip(paths, (eaten, kept), (3, 4), strict=False):
        write_result(path, Result(cine, tissue, haze, None, SETTINGS | {"seed": seed}))
    square = [[40, 90], [80, 90], [80, 110], [40, 110]]
    regions = [
        {"name": f"wall {t + 1}", "role": "tissue", "frames": [t], "polygon": [[x + t, y] for x, y in square]}
        for t in range(N_FRAMES)
    ]
    regions.append({"name": "chamber", "role": "haze", "polygon": [[60, 20], [90, 20], [90, 40], [60, 40]]})
    paths[2].write_text(json.dumps({"regions": regions}))
    return paths
