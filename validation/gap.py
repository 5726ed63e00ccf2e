"""How far simulated frames are from real ones: statistics of both, side by side.

    python -m validation.gap [--frames 64] [--simulator PATH]

Real scans are those of the tuning share (``patients.json``), first frames, and the six hazy clips, all brought to the
model grid as the priors see them; simulated ones are what the priors train on. ``--simulator`` takes the package
``usdehaze.simulate`` of another checkout, to compare an earlier simulator. Needs USDEHAZE_DATA.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage

from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.io import open_cine
from validation.markdown import head, row
from validation.paths import PATIENTS, real_scans
from validation.patients import read_patients

SEED = 1_700_000_000
SMOOTH_CELLS = 4.0  # what varies slower than this along either axis is anatomy, what varies faster is speckle
THIRDS = {"near": (0.05, 0.35), "middle": (0.35, 0.65), "far": (0.65, 0.95)}  # of the depth
LEAST_PIXELS = 300


def real_frames(paths: list[Path], dataset: str | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """First frames on the model grid in [0, 1] and the cells that hold image, each ``(depth, angle)``."""
    frames = []
    for path in paths:
        cine = open_cine(path, dataset=dataset, frames=slice(0, 1))
        mapper = make_mapper(cine.geometry, cine.frames.shape[1:], ModelGrid())
        frame = np.clip(mapper.to_model(cine.frames)[0] / cine.dynamic_range_db + 1, 0, 1)
        frames.append((frame, mapper.valid))
    return frames


def statistics(frame: np.ndarray, valid: np.ndarray) -> dict[str, float]:
    """Of one frame: grey levels and speckle, by third of the depth where there is enough of either.

    Speckle is what a Gaussian of 4 cells leaves, at cells that are neither black nor white. Lengths are lags, in cells,
    at which its correlation has fallen to one half. Slope: power over twice the frequency across the beam, dB.
    """
    found = {"mean": frame[valid].mean(), "black": (frame[valid] < 0.02).mean(), "white": (frame[valid] > 0.95).mean()}
    slow = ndimage.gaussian_filter(frame, SMOOTH_CELLS)
    fine = frame - slow
    found["structure, std"] = slow[valid].std()
    depth = (np.arange(len(frame)) + 0.5)[:, None] / len(frame)
    for name, (low, high) in THIRDS.items():
        here = valid & (depth >= low) & (depth < high)
        grey = here & (slow > 0.2) & (slow < 0.9)
        if here.sum() >= LEAST_PIXELS:
            found[f"mean, {name}"] = frame[here].mean()
        if grey.sum() < LEAST_PIXELS:
            continue
        values = fine[grey]
        found[f"speckle std, {name}"] = values.std()
        found[f"speckle skewness, {name}"] = ((values - values.mean()) ** 3).mean() / values.std() ** 3
        found[f"axial length, {name}"] = half_length(fine, grey, 0)
        found[f"lateral length, {name}"] = half_length(fine, grey, 1)
    columns = np.abs(np.fft.rfft(fine * valid, axis=0)) ** 2
    power = columns.mean(axis=1)
    quarter, half = len(power) // 4, len(power) // 2
    found["axial spectrum, dB an octave"] = 10 * np.log10(
        (power[half : 2 * half].mean() + 1e-12) / (power[quarter:half].mean() + 1e-12)
    )
    return {name: float(value) for name, value in found.items()}


def half_length(fine: np.ndarray, counts: np.ndarray, axis: int) -> float:
    """Lag at which the correlation along an axis has fallen to one half, between whole lags by a straight line."""
    last = 1.0
    for lag in range(1, 12):
        moved, both = np.roll(fine, lag, axis), counts & np.roll(counts, lag, axis)
        if not both.any():
            break
        now = float((fine * moved)[both].mean() / np.square(fine[both]).mean())
        if now < 0.5:
            return lag - 1 + (last - 0.5) / (last - now)
        last = now
    return 12.0


def table(sets: dict[str, list[tuple[np.ndarray, np.ndarray]]]) -> list[str]:
    """Median and range of the middle 80 % of every statistic, a row each, and what simulated frames leave uncovered."""
    measured = {name: [statistics(*frame) for frame in frames] for name, frames in sets.items()}
    keys = list(dict.fromkeys(key for rows in measured.values() for row in rows for key in row))
    lines = head("", [f"{name} ({len(frames)})" for name, frames in sets.items()])
    for key in keys:
        cells = []
        for rows in measured.values():
            values = [row[key] for row in rows if key in row]
            low, middle, high = np.quantile(values, [0.1, 0.5, 0.9]) if values else [np.nan] * 3
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        lines.append(row(key, cells))
    return lines


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=64, help="simulated frames of each kind")
    parser.add_argument("--simulator", type=Path, help="folder that holds another usdehaze/ to simulate with")
    args = parser.parse_args()
    data = real_scans()
    if not data.is_dir():
        sys.exit(f"gap: no real scans in {data}; set USDEHAZE_DATA to their folder")
    names = read_patients(PATIENTS, "tuning")
    sets = {
        "camus": real_frames([data / "camus" / f"{name}.h5" for name in names["camus"]], "image"),
        "clean-cines": real_frames([data / "clean-cines" / f"{name}.h5" for name in names["clean-cines"]]),
        "echo-haze": real_frames(sorted((data / "echo-haze").glob("*.h5"))),
    }
    simulate = simulator(args.simulator)
    for kind in ("tissue", "haze"):
        frames = simulate(kind, args.frames, torch.Generator().manual_seed(SEED))[:, 0].numpy()
        sets[f"simulated {kind}"] = [(frame, np.ones(frame.shape, bool)) for frame in frames]
    print("\n".join(table(sets)))


def simulator(checkout: Path | None) -> Callable[..., torch.Tensor]:
    """``training_frames`` of this package, or of another checkout."""
    if checkout is not None:
        for name in [name for name in sys.modules if name.startswith("usdehaze.simulate")]:
            del sys.modules[name]
        import usdehaze

        usdehaze.__path__.insert(0, str(checkout / "usdehaze"))
    from usdehaze.simulate import training_frames

    return training_frames


if __name__ == "__main__":
    main()
