"""Figures of whole images and of faint walls: known removals give known numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from scipy import ndimage

from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.cli import main
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.result import write_result
from usdehaze.result import Result
from usdehaze.validation.regions import parse_labels, polygon_mask, read_regions
from usdehaze.validation.regions.simulated import largest_part, outline
from usdehaze.validation.whole_image import edge_figures, faint_figures, image_figures

H, W = 96, 80
EVERYWHERE = np.ones((H, W), dtype=bool)


@pytest.fixture
def frame() -> np.ndarray:
    """Two plateaus, -50 and -10 dB, under a little speckle."""
    rng = np.random.default_rng(0)
    frame = np.full((H, W), -50.0)
    frame[:, W // 2 :] = -10
    return frame + rng.normal(0, 1, frame.shape)


def test_removal_is_told_apart_by_the_brightness_of_the_input(frame: np.ndarray) -> None:
    output = frame - np.where(frame < -30, 4.0, 1.0)
    figures = image_figures(frame, output, EVERYWHERE, 60.0)
    assert figures["removed_dark_db"] == pytest.approx(4) and figures["removed_bright_db"] == pytest.approx(1)
    assert "removed_middle_db" not in figures  # -40 to -20 dB: no pixel
    assert image_figures(frame, frame - 3, EVERYWHERE, 60.0)["softness"] == pytest.approx(0)
    assert "removal_flicker" not in figures
    left = np.arange(W)[None, :] < W // 2
    assert image_figures(frame, output, EVERYWHERE & left, 60.0)["removed_dark_db"] == pytest.approx(4)
    assert "removed_bright_db" not in image_figures(frame, output, EVERYWHERE & left, 60.0)


def test_a_frame_left_alone_loses_nothing_and_a_smoothed_one_its_detail(frame: np.ndarray) -> None:
    alone = image_figures(frame, frame, EVERYWHERE, 60.0, (frame, frame))
    assert (alone["softness"], alone["edges_lost"], alone["removal_flicker"]) == (0, 0, 0)
    assert alone["edge_coherence"] == pytest.approx(1)
    smoothed = image_figures(frame, ndimage.gaussian_filter(frame, 1.0), EVERYWHERE, 60.0)
    assert 0.4 < smoothed["softness"] < 1 and smoothed["edges_lost"] == 0


def test_flicker_is_the_change_of_what_is_removed_over_what_is_removed(frame: np.ndarray) -> None:
    figures = image_figures(frame, frame - 3, EVERYWHERE, 60.0, (frame, frame - 1))
    assert figures["removal_flicker"] == pytest.approx(1)  # 2 dB of change, 2 dB in the mean


@pytest.mark.parametrize("kept, lost, coherence", [(0.6, 0, 1), (0.4, 1, 1), (-0.5, 1, -1), (0.0, 1, 0)])
def test_an_edge_is_lost_once_less_than_half_of_its_slope_is_left(kept: float, lost: int, coherence: int) -> None:
    step = np.where(np.arange(W)[None, :] < W // 2, -50.0, -10.0) * np.ones((H, 1))
    figures = edge_figures(step, -30 + kept * (step + 30), EVERYWHERE)
    assert figures["edges_lost"] == lost and figures["edge_coherence"] == pytest.approx(coherence)


def test_edges_of_the_image_are_no_edges_in_it_and_speckle_has_hardly_any() -> None:
    rng = np.random.default_rng(2)
    fan = np.zeros((192, 192), dtype=bool)
    fan[20:170, 30:160] = True
    speckle = 20 * np.log10(np.abs(rng.normal(size=fan.shape) + 1j * rng.normal(size=fan.shape))) - 30
    assert edge_figures(np.where(fan, speckle, -60.0), np.where(fan, speckle, -60.0), fan) == {}
    assert edge_figures(np.full((H, W), -60.0), np.full((H, W), -60.0), EVERYWHERE) == {}


def test_faint_walls_have_their_shift_their_share_gone_and_their_contrast(frame: np.ndarray) -> None:
    frame = np.full((H, W), -40.0)
    wall, chamber = np.zeros((2, H, W), dtype=bool)
    wall[10:20, 10:30], chamber[40:60, 10:30] = True, True
    frame[chamber] = -46
    output = frame.copy()
    output[10:15, 10:30], output[chamber] = -58, -56  # half of the wall is gone, 10 dB of the chamber
    figures = faint_figures(frame, output, wall, chamber, -60.0)
    assert figures["faint_shift_db"] == (None, -9) and figures["ks_faint"] == (None, 0.5)
    assert figures["faint_gone_share"] == (None, 0.5)
    before, after = figures["faint_contrast_db"]
    assert before == pytest.approx(6) and after == pytest.approx(16 + 10 * np.log10((1 + 10**-1.8) / 2))
    assert "faint_contrast_db" not in faint_figures(frame, output, wall, None, -60.0)
    assert "faint_gone_share" not in faint_figures(np.full((H, W), -57.0), output, wall, None, -60.0)


def faint_result(folder: Path) -> Path:
    frames = np.random.default_rng(3).uniform(-40, -5, (2, H, W)).astype(np.float32)
    tissue = frames.copy()
    tissue[:, :, 40:] = np.maximum(tissue[:, :, 40:] - 10, -60)
    cine = Cine(frames, Cartesian(), 60.0, None, Source(name="scan.h5"))
    write_result(folder / "scan.dehazed.h5", Result(cine, tissue, frames - 6, None, {}))
    return folder / "scan.dehazed.h5"


def rois(*entries: tuple[str, int, int]) -> str:
    box = [
        {"name": role, "role": role, "polygon": [[a, 10], [b, 10], [b, 60], [a, 60]], "frames": [1]}
        for role, a, b in entries
    ]
    return json.dumps({"regions": box})


def validate(*arguments: object) -> list[str]:
    done = CliRunner().invoke(main, ["validate", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    return lines


def test_faint_regions_are_measured_beside_the_others_and_alone(tmp_path: Path) -> None:
    result, path, file = faint_result(tmp_path), tmp_path / "r.json", tmp_path / "m.json"
    path.write_text(rois(("tissue", 2, 30), ("haze", 42, 58), ("faint", 60, 78)))
    lines = validate(result, "--gcnr", "--roi", path, "--json", file, "--report", tmp_path / "report")
    names = [line.split()[0] for line in lines]
    assert names.index("gcnr") < names.index("ks_tissue") < names.index("faint_shift_db") < names.index("gcnr:")
    document = json.loads(file.read_text())
    assert document["summary"]["faint_shift_db"]["tissue"] == pytest.approx(-10, abs=1e-3)
    assert document["summary"]["faint_contrast_db"]["delta"] == pytest.approx(0, abs=1e-3)
    assert document["settings"]["n_pixels_range"] == {"tissue": [1400, 1400], "haze": [800, 800], "faint": [900, 900]}
    assert [record["frame"] for record in document["frames"]] == [1]
    path.write_text(rois(("faint", 60, 78)))
    validate(result, "--roi", path, "--json", file, "--report", tmp_path / "alone")
    alone = json.loads(file.read_text())
    assert alone["summary"]["faint_shift_db"] == document["summary"]["faint_shift_db"]
    assert "gcnr" not in alone["summary"] and (tmp_path / "alone" / "scan.dehazed-frame-001.png").exists()


def test_results_without_regions_have_figures_of_the_whole_image(tmp_path: Path) -> None:
    result, file = faint_result(tmp_path), tmp_path / "m.json"
    lines = validate(result, "--gcnr", "--json", file)
    document = json.loads(file.read_text())
    assert len(document["frames"]) == 2 and "gcnr" not in document["summary"]
    assert document["summary"]["removed_bright_db"]["tissue"] == pytest.approx(5, abs=0.2)  # 10 dB off one half
    assert set(document["settings"]["estimators"]) == set(document["summary"])
    assert any(line.startswith("note: no regions") and "--roi" in line for line in lines)


def test_haze_must_keep_off_faint_walls(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(rois(("tissue", 2, 30), ("haze", 42, 58), ("faint", 50, 70)))
    with pytest.raises(InputError, match="faint and haze overlap in 400 pixels of frame 1"):
        read_regions(path, (2, H, W))


def test_labels_may_name_faint_walls(tmp_path: Path) -> None:
    labels = parse_labels("tissue=170 haze=85 faint=60,61")
    assert labels == {"tissue": ("170",), "haze": ("85",), "faint": ("60", "61")}
    stack = np.zeros((H, W), dtype=np.uint8)
    stack[:20], stack[30:50], stack[60:70], stack[70:75] = 170, 85, 60, 61
    Image.fromarray(stack).save(tmp_path / "r.png")
    assert read_regions(tmp_path / "r.png", (2, H, W), labels=labels).mask("faint", 1).sum() == 15 * W
    with pytest.raises(UsdehazeError, match="expected a value for each role"):
        parse_labels("tissue=170 faint=60")


def test_an_outline_holds_the_pixels_of_its_runs_and_no_others() -> None:
    mask = np.zeros((12, 14), dtype=bool)
    mask[2:9, 1:5], mask[7:10, 5:9] = True, True  # an L, and apart from it a smaller part
    mask[0, 10:14] = True
    filled = polygon_mask(np.array(outline(largest_part(mask))), mask.shape)
    assert np.array_equal(filled, mask & (np.arange(14) < 9)[None, :])
    ring = np.ones((9, 9), dtype=bool)
    ring[3:6, 3:6] = False
    filled = polygon_mask(np.array(outline(largest_part(ring))), ring.shape)
    assert filled.sum() == 81 - 9 - 9 and not (filled & ~ring).any()  # the hole, and one side of it
    assert largest_part(np.zeros((4, 4), dtype=bool)) == []


def test_a_simulation_brings_regions_that_the_truth_bears_out(tmp_path: Path) -> None:
    from usdehaze.simulate import simulate_cine

    out = tmp_path / "scan.h5"
    assert CliRunner().invoke(main, ["simulate", str(out), "--frames", "2", "--seed", "28", "--quiet"]).exit_code == 0
    regions, truth = read_regions(tmp_path / "scan.rois.json", (2, 128, 128)), simulate_cine(2, 28)
    for t in range(2):
        tissue, haze, faint = (regions.mask(role, t) for role in ("tissue", "haze", "faint"))
        assert (truth.labels[t][haze] == 2).all() and not (truth.labels[t][tissue | faint] == 2).any()
        assert truth.tissue[t][tissue].mean() > truth.haze[t][tissue].mean()
        assert truth.tissue[t][faint].mean() < truth.haze[t][faint].mean()
    again = CliRunner().invoke(main, ["simulate", str(out), "--frames", "1"])
    assert again.exit_code == 1 and again.stderr.count("\n") == 1
