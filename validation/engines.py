"""Engines side by side: CPU seconds a frame, and how far their tissue is from that of PyTorch in float32.

    python -m validation.engines [--frames 8] [--scenes 4] [--preset fast]

Simulated hearts, all engines that are installed in one run, one thread each. PSNR is to the truth, gCNR that of
chamber against wall; differences of pixels are to PyTorch.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from usdehaze import Dehazer
from usdehaze.errors import UsdehazeError
from usdehaze.simulate import simulate_cine
from usdehaze.validation.metrics import gcnr, psnr_db
from validation.markdown import head, row

SEED = 1_200_000_000
KINDS: tuple[tuple[Any, Any], ...] = (
    ("torch", "fp32"), ("torch", "bf16"), ("onnxruntime", "fp32"), ("onnxruntime", "int8"), ("openvino", "fp32"),
    ("openvino", "bf16"),
)  # fmt: skip
COLUMNS = ("CPU s a frame", "largest, mean difference, dB", "PSNR, dB", "gCNR")


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=8, help="of each scene")
    parser.add_argument("--scenes", type=int, default=4)
    parser.add_argument("--preset", default="fast")
    options = parser.parse_args()
    torch.set_num_threads(1)
    scenes = [simulate_cine(options.frames, SEED + seed) for seed in range(options.scenes)]
    expected: list[np.ndarray] | None = None
    print("\n".join(head("engine", COLUMNS)))
    for engine, precision in KINDS:
        try:
            dehazer = Dehazer.from_pretrained(options.preset, device="cpu", engine=engine, precision=precision)
        except UsdehazeError as error:
            print(row(f"{engine} {precision}", [str(error), "", "", ""]))
            continue
        dehazer.dehaze(scenes[0].cine)
        began = time.process_time()
        found = [dehazer.dehaze(scene.cine).tissue for scene in scenes]
        seconds = (time.process_time() - began) / (options.frames * options.scenes)
        expected = found if expected is None else expected
        off = np.concatenate([np.abs(a - b).ravel() for a, b in zip(found, expected, strict=True)])
        psnr = np.mean([psnr_db(a, s.tissue, 60.0) for a, s in zip(found, scenes, strict=True)])
        apart = [_gcnr(a, s.labels) for a, s in zip(found, scenes, strict=True)]
        cells = [f"{seconds:.3f}", f"{off.max():.3f}, {off.mean():.5f}", f"{psnr:.3f}", f"{np.nanmean(apart):.4f}"]
        print(row(f"{engine} {precision}", cells), flush=True)


def _gcnr(tissue: np.ndarray, labels: np.ndarray) -> float:
    wall, chamber = tissue[labels == 1], tissue[labels == 2]
    return gcnr(wall, chamber) if min(len(wall), len(chamber)) > 200 else float("nan")


if __name__ == "__main__":
    main()
