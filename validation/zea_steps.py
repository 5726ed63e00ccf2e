"""zea's nuclear diffusion under random weights, for its time alone; run by an interpreter that has zea, not usdehaze.

PYTHON validation/zea_steps.py FRAMES.npy STEPS     # (T, H, W) in [0, 1], 7 of them taken; prints a line of JSON
"""

from __future__ import annotations

import json
import os
import sys
import time


def main(path: str, steps: int) -> None:
    """Prints versions, weights of the network, and CPU s a frame for so many steps."""
    os.environ.setdefault("KERAS_BACKEND", "torch")  # nothing is compiled: its time would count
    import keras
    import numpy as np
    import zea
    from zea.func import dehaze_nuclear_diffusion
    from zea.models.diffusion import DiffusionModel

    frames = 2 * np.load(path)[:7, :, :, None].astype(np.float32) - 1  # a window of its default size
    shape = frames.shape[1:]
    model = DiffusionModel(shape, (-1, 1), guidance="nuclear-dps", operator="linear_interp")

    def run(steps: int) -> float:
        began = time.process_time()
        dehaze_nuclear_diffusion(frames, model, n_steps=steps, initial_step=0, verbose=False, seed=seed)
        return (time.process_time() - began) / len(frames)

    seed = keras.random.SeedGenerator(0)
    run(1)
    told = {"version": zea.__version__, "backend": keras.backend.backend(), "weights": model.network.count_params()}
    print(json.dumps({**told, "seconds": run(steps)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
