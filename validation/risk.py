"""Structure at risk: how many of the walls that a result eats are marked, on simulated hearts whose truth is known.

    python -m validation.risk [--scenes 12] [--frames 3]

A wall is eaten where a line of the true tissue, 6 dB above both its sides and brighter than -45 dB, is lowered by 6 dB
or more with half its contrast or less left; it was visible where it stood out by 3 dB in the hazy frame. Found is what
lies within 2 pixels of a mark.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import ndimage

from usdehaze import Dehazer
from usdehaze.simulate import simulate_cine
from usdehaze.validation.risk import MARK_LENGTH_PX, SCALES_PX, WALL_LENGTH_PX, StructureRisk, along_lines, connected
from validation.markdown import head, row

SEED = 1_200_000_000
CAUTIONS = (0.85, 0.5, 0.3)
COLUMNS = ("of all pixels marked", "frames marked", "frames with visible walls eaten", "of these found", "of all found")


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=12)
    parser.add_argument("--frames", type=int, default=3, help="of each scene")
    options = parser.parse_args()
    scenes = [simulate_cine(options.frames, SEED + seed) for seed in range(options.scenes)]
    print("\n".join(head("caution", COLUMNS)))
    for caution in CAUTIONS:
        dehazer = Dehazer.from_pretrained(device="cpu", caution=caution)
        marked: list[np.ndarray] = []
        eaten: list[tuple[np.ndarray, np.ndarray]] = []
        for scene in scenes:
            result = dehazer.dehaze(scene.cine)
            risk = StructureRisk(scene.dynamic_range_db)
            stds = [None] * options.frames if result.std is None else result.std
            marked += [risk.add(*frame) > 0 for frame in zip(scene.hazy, result.tissue, stds, strict=True)]
            eaten += map(eaten_walls, scene.hazy, scene.tissue, result.tissue)
        found = [ndimage.binary_dilation(mask, iterations=2) for mask in marked]
        cells = [
            f"{100 * np.mean(marked):.2f} %",
            f"{sum(mask.any() for mask in marked)} of {len(marked)}",
            str(sum(visible.any() for _, visible in eaten)),
            *(_share(found, [pair[k] for pair in eaten]) for k in (1, 0)),
        ]
        print(row(f"{caution:g}", cells), flush=True)


def eaten_walls(hazy_db: np.ndarray, true_db: np.ndarray, output_db: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walls of the true tissue that an output has lost, and those of them that were visible: bool ``(128, 128)``."""
    eaten, visible = np.zeros(true_db.shape, bool), np.zeros(true_db.shape, bool)
    for scale in SCALES_PX:
        (level, contrast), (level_left, contrast_left), (_, seen) = along_lines((true_db, output_db, hazy_db), scale)
        lost = (contrast >= 6) & (level >= -45) & (level - level_left >= 6) & (contrast_left <= contrast / 2)
        lost = connected(lost, WALL_LENGTH_PX)
        eaten, visible = eaten | lost, visible | lost & (seen >= 3)
    return eaten, connected(visible, MARK_LENGTH_PX)


def _share(found: list[np.ndarray], walls: list[np.ndarray]) -> str:
    hit, n = np.sum([f & w for f, w in zip(found, walls, strict=True)]), np.sum(walls)
    return f"{100 * hit / n:.0f} % of {n} pixels" if n else "none"


if __name__ == "__main__":
    main()
