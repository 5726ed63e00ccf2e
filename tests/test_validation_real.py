"""``python -m validation.real``: the tables of real frames hold what was measured, and nothing stale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _scans import fan_frames, write

from usdehaze.dehazing.settings import Settings
from validation.real import __main__ as real

ROIS = [
    {"name": "septum", "role": "tissue", "frames": [0], "polygon": [[22, 20], [29, 20], [29, 50], [22, 50]]},
    {"name": "ventricle", "role": "haze", "frames": [0], "polygon": [[33, 20], [42, 20], [42, 50], [33, 50]]},
]


class Darkener:
    """Takes 3 dB off everything and, with seed 1, 2 dB more; counts the frames it sees."""

    n_frames = 0
    prior = "tissue sha256:" + "0" * 64

    engine = None

    def __init__(self, seed: int) -> None:
        self.settings = replace(Settings(), seed=seed)
        self.tissue = self.haze = SimpleNamespace(name=self.prior)
        self.device, self.precision = torch.device("cpu"), "fp32"

    def dehaze(self, cine: Any) -> SimpleNamespace:
        Darkener.n_frames += len(cine.frames)
        return SimpleNamespace(tissue=cine.frames - 3 - 2 * self.settings.seed)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two clips and two patients that stand in for the real ones, and for the dehazer."""
    made = SimpleNamespace(from_pretrained=lambda seed, device: Darkener(seed))
    monkeypatch.setattr(real, "Dehazer", made)
    monkeypatch.setattr(Darkener, "n_frames", 0)
    monkeypatch.setenv("USDEHAZE_DATA", str(tmp_path / "data"))
    for folder in ("echo-haze", "camus"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    for i, clip in enumerate(("clip-01", "clip-02")):
        write(tmp_path / "data/echo-haze" / f"{clip}.h5", {"cine": fan_frames(3, seed=i)})
        (tmp_path / "data/echo-haze" / f"{clip}.rois.json").write_text(json.dumps({"regions": ROIS}))
    labels = np.zeros((2, 64, 64), np.uint8)
    labels[:, 15:55, 20:31], labels[:, 15:55, 32:44] = 170, 85
    for i, patient in enumerate(("patient0001", "patient0369")):  # for tuning, and held out
        write(tmp_path / "data/camus" / f"{patient}.h5", {"image": fan_frames(2, seed=9 + i), "label": labels})


def run(tmp_path: Path, *options: str) -> dict[str, Any]:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    if not (out / "RESULTS.md").exists():
        (out / "RESULTS.md").write_text("before\n<!-- python -m validation.real: begin -->\nold\n<!-- end -->\nafter\n")
    real.main(["--work", str(tmp_path / "work"), "--out", str(out), *options])
    return json.loads((out / "real.json").read_text())


def test_tables_hold_the_figures_of_every_frame_and_stand_in_the_results(tmp_path: Path) -> None:
    document = run(tmp_path, "--seeds", "0", "1")
    clips = document["sets"]["echo-haze"]
    assert [clips[seed]["summary"]["tissue_shift_db"]["tissue"] for seed in "01"] == pytest.approx([-3, -5], abs=1e-4)
    assert clips["0"]["settings"]["n_cines"] == clips["0"]["settings"]["n_frames"] == 2  # frame 0 of each clip
    stills = document["sets"]["camus"]["0"]
    assert stills["settings"]["n_frames"] == 4 and stills["settings"]["n_cines"] == 2  # a patient is one cluster
    assert stills["frames"][0]["n_pixels"] == {"tissue": 34 * 5, "haze": 34 * 6}  # 3 pixels inside their borders
    assert {r["cine"] for r in document["sets"]["camus, held out"]["0"]["frames"]} == {"patient0369"}
    text, results = ((tmp_path / "out" / name).read_text() for name in ("REAL.md", "RESULTS.md"))
    assert "| clip-02 | 1 |" in text and "within 1 dB in 0 of 4 frames" in text
    assert "| shift, tissue region, dB |  | -3.000 |  | -3.000 to -3.000 |  |" in text
    assert results.startswith("before\n<!--") and results.endswith("<!-- end -->\nafter\n") and "old" not in results
    table = text[text.index("| figure") : text.index("Bias of gCNR")]
    assert table in results and all(word in table for word in ("CNR of amplitudes", "KS, haze region", "Wilcoxon p"))


def test_a_second_run_measures_nothing_and_other_priors_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path, "--seeds", "0")
    assert Darkener.n_frames == 2 + 4
    assert run(tmp_path, "--seeds", "0") == first and Darkener.n_frames == 6
    run(tmp_path, "--seeds", "0", "1")
    assert Darkener.n_frames == 8  # the clips once more
    monkeypatch.setattr(Darkener, "prior", "tissue sha256:" + "1" * 64)
    run(tmp_path, "--seeds", "0")
    assert Darkener.n_frames == 14
    moved = [{**region, "polygon": [[x + 1, y] for x, y in region["polygon"]]} for region in ROIS]
    (tmp_path / "data/echo-haze/clip-01.rois.json").write_text(json.dumps({"regions": moved}))
    run(tmp_path, "--seeds", "0")
    assert Darkener.n_frames == 15  # the clip whose regions are others now


def test_a_part_of_the_frames_says_so(tmp_path: Path) -> None:
    run(tmp_path, "--seeds", "0", "--limit", "1")
    text = (tmp_path / "out" / "REAL.md").read_text()
    assert "1 frames of 1 of 2 scans" in text and "2 frames of 1 of 2 scans" in text


def test_results_without_the_marks_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "RESULTS.md").write_text("no marks")
    with pytest.raises(SystemExit, match="has no place for the tables"):
        run(tmp_path, "--seeds", "0")
    assert (tmp_path / "out" / "RESULTS.md").read_text() == "no marks"
    assert not [path.name for path in (tmp_path / "out").iterdir() if path.name != "RESULTS.md"]


def test_real_data_that_are_not_there_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USDEHAZE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit, match=r"no scans in .*nowhere.*USDEHAZE_DATA"):
        run(tmp_path)
