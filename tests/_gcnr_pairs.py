"""Pairs of regions for the fixed-bin gCNR, and the program that recorded what other implementations make of them.

``tests/data/gcnr_256_bins.json`` holds, for each of the 1,000 pairs below, the value of ``zea.metrics.gcnr`` (zea
0.1.8, numpy 2.4, ``KERAS_BACKEND=torch``) with its default 256 bins, and of the formula that the evaluation program of
the DehazingEcho2025 challenge states (its own run needs the challenge's container). Recorded with

    KERAS_BACKEND=torch python tests/_gcnr_pairs.py tests/data/gcnr_256_bins.json

in an environment of its own with zea. The pairs are made of raw bits and exact arithmetic alone, so that they are the
same numbers with every version of numpy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

N_PAIRS = 1000


def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Two regions of 20 to 1,500 pixels: 8-bit grey levels, float32 dB and float64 in turn."""
    bits = np.random.PCG64(20250923)

    def uniform(n: int) -> np.ndarray:
        return (bits.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def bell(n: int) -> np.ndarray:
        return uniform(n) + uniform(n) + uniform(n) - 1.5

    for index in range(N_PAIRS):
        n_a, n_b = (20 + (1480 * uniform(2) ** 2).astype(int)).tolist()
        separation, width = (2 * uniform(1) - 1)[0], (0.2 + uniform(1))[0]
        a, b = bell(n_a), width * bell(n_b) + separation
        if index % 3 == 0:
            yield tuple(np.clip(np.floor(128 + 48 * x), 0, 255).astype(np.uint8) for x in (a, b))
        elif index % 3 == 1:
            yield tuple(np.float32(16) * x.astype(np.float32) - np.float32(35) for x in (a, b))
        else:
            yield a, b


def challenge(a: np.ndarray, b: np.ndarray) -> float:
    """1 - overlap of two density histograms that share 256 equal bins over the pooled range, each made to sum to 1."""
    _, edges = np.histogram(np.concatenate((a, b)), bins=256)
    densities = [np.histogram(x, bins=edges, density=True)[0] for x in (a, b)]
    return float(1 - np.sum(np.minimum(*(d / d.sum() for d in densities))))


def main(path: Path) -> None:
    import zea
    from zea.metrics import gcnr

    recorded = [[float(gcnr(a, b)), challenge(a, b)] for a, b in pairs()]
    path.write_text(json.dumps({"zea": zea.__version__, "numpy": np.__version__, "gcnr": recorded}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
