"""What the test bench is tried on: frames of a second simulator, and a dehazer whose every figure is known."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from _scans import write

from usdehaze.geometry import ModelGrid, make_mapper


def write_second_simulator(folder: Path) -> None:
    """Two frames of each half, everywhere 3 dB of haze on the tissue, of which the haze lies 10 dB below."""
    folder.mkdir()
    hazy = np.random.default_rng(3).integers(100, 200, (4, 64, 32)).astype(np.uint8)
    wall, chamber = np.zeros((2, *hazy.shape), np.uint8)
    wall[:, :20], chamber[:, 30:] = 1, 1
    frames = {"hazy": hazy, "tissue": hazy - 12, "haze": hazy - 52, "wall": wall, "chamber": chamber}
    write(folder / "frames.h5", frames, floor_db=-60.0, db_per_step=0.25, haze="AARR")


@dataclass(frozen=True)
class FakeSettings:
    guidance: str
    drop_db: float
    seed: int


class Lowers:
    """As a dehazer with a prior for both: takes the same off every pixel of the image, sure of it to 0.5 dB."""

    tissue = haze = None
    posterior = SimpleNamespace(name="both sha256:0123456789abcdef")
    device, precision, grid = SimpleNamespace(type="cpu"), "fp32", ModelGrid(32, 32)

    engine = None

    def __init__(self, settings: FakeSettings) -> None:
        self.settings = settings

    @classmethod
    def from_pretrained(cls, preset="fast", *, guidance="learned", drop_db=2.0, seed=0, **_):
        return cls(FakeSettings(guidance, drop_db, seed))

    def dehaze(self, cine, interval=False):
        inside = make_mapper(cine.geometry, cine.frames.shape[1:], self.grid).image_mask
        tissue = cine.frames - np.where(inside, np.float32(self.settings.drop_db), 0)
        interval = np.stack([tissue - 0.5, tissue + 0.5])
        return SimpleNamespace(tissue=tissue, haze=np.full_like(tissue, -60), std=None, interval=interval)
