"""How good the gCNR estimators are on speckle, whose gCNR is known in closed form.

    python -m validation.gcnr_estimator --pairs 200

Two square regions of fully developed speckle, mean powers c to 1, independent pixels or cells of speckle a few pixels
wide. A row: the theory, the mean of the plain estimator, of its measured bias and of the corrected estimator, and how
often the 95 % interval of the corrected one holds the theory.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy import ndimage

from usdehaze.validation.metrics import speckle_gcnr
from usdehaze.validation.uncertainty import gcnr_figures

PATCH = 64  # pixels, of which a region takes a square


def speckle_db(cell_px: float, rng: np.random.Generator) -> np.ndarray:
    """``(PATCH, PATCH)`` of speckle in dB: complex Gaussian noise, smoothed over ``cell_px`` pixels."""
    field = rng.normal(size=(2, PATCH, PATCH))
    if cell_px:
        field = np.stack([ndimage.gaussian_filter(part, cell_px, mode="wrap") for part in field])
    power = np.square(field).sum(axis=0)
    # Every pixel has this mean power: the sum of squares of the wrapped kernel, twice.
    impulse = np.zeros((PATCH, PATCH))
    impulse[0, 0] = 1
    kernel = ndimage.gaussian_filter(impulse, cell_px, mode="wrap") if cell_px else impulse
    return 10 * np.log10(power / (2 * np.square(kernel).sum()))


def row(side: int, cell_px: float, ratio: float, bins: int | None, n_pairs: int) -> str:
    """One row of the table."""
    rng = np.random.default_rng(0)
    theory = speckle_gcnr(ratio)
    left, right = np.zeros((2, PATCH, 2 * PATCH), dtype=bool)
    left[:side, :side], right[:side, PATCH : PATCH + side] = True, True
    found = []
    for _ in range(n_pairs):
        frame = np.hstack([speckle_db(cell_px, rng) + 10 * math.log10(ratio), speckle_db(cell_px, rng)])
        plain, corrected = gcnr_figures(frame, frame, left, right, bins)
        low, high = corrected["input_ci95"]
        found.append((plain["input"], plain["bias"]["input"], corrected["input"], low <= theory <= high))
    plain_mean, bias, corrected_mean, covered = np.mean(found, axis=0)
    cells = f"| {'equiprobable' if bins is None else bins} | {side * side} | {cell_px:g} | {ratio:g} | {theory:.3f} "
    return cells + f"| {plain_mean:.3f} | {bias:.3f} | {corrected_mean:.3f} | {100 * covered:.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=200, help="pairs of regions a row (200)")
    n_pairs = parser.parse_args().pairs
    print("| bins | pixels a region | speckle cell, px | power ratio | theory | gCNR | bias | corrected | covered |")
    print("|---|---|---|---|---|---|---|---|---|")
    for bins in (None, 256):
        for side in (20, 40):
            for cell_px in (0.0, 1.0, 2.0):
                for ratio in (1.0, 2.0, 6.0, 30.0):
                    print(row(side, cell_px, ratio, bins, n_pairs), flush=True)


if __name__ == "__main__":
    main()
