"""``usdehaze validate`` from result files to table, JSON, CSV and panels."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from usdehaze.cine import Cartesian, Cine, Sector, Source
from usdehaze.cli import main
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.geometry import sector_mask
from usdehaze.result import Result
from usdehaze.validation.command import run
from usdehaze.validation.report import panel

H, W = 40, 60
ROIS = {
    "regions": [
        {"name": "wall", "role": "tissue", "polygon": [[2, 4], [18, 4], [18, 30], [2, 30]]},
        {"name": "cavity", "role": "haze", "polygon": [[25, 4], [55, 4], [55, 34], [25, 34]]},
    ]
}


def write(path: Path, cine: Cine, removed_db: float, left: int = 25) -> Path:
    """A result whose tissue is the input with ``removed_db`` taken off right of the column ``left``."""
    from usdehaze.io.result import write_result

    tissue = cine.frames.copy()
    tissue[:, :, left:] = np.maximum(tissue[:, :, left:] - removed_db, -60)
    write_result(path, Result(cine, tissue, cine.frames - 6, None, {}))
    return path


def result_file(path: Path, source: str = "scan.h5", removed_db: float = 10.0, first_frame: int = 0) -> Path:
    rng = np.random.default_rng(3)
    frames = rng.uniform(-40, -5, (2, H, W)).astype(np.float32)
    return write(path, Cine(frames, Cartesian(), 60.0, None, Source(name=source, first_frame=first_frame)), removed_db)


@pytest.fixture
def roi(tmp_path: Path) -> Path:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(ROIS))
    return path


def test_gcnr_is_never_printed_without_tissue_ks_and_tissue_shift(tmp_path: Path, roi: Path) -> None:
    lines: list[str] = []
    result = result_file(tmp_path / "a.dehazed.h5")
    assert run([result], True, None, roi, None, None, False, lines.append) == 0
    names = [line.split()[0] for line in lines[3:8]]
    assert names == ["gcnr", "gcnr_corrected", "ks_tissue", "tissue_shift_db", "ks_haze"]
    assert "416 pixels" in lines[8]  # 16 x 26 pixels of wall: said to be few
    assert max(map(len, lines)) <= 100
    everything: list[str] = []
    run([result], False, None, roi, None, None, False, everything.append)
    assert any(line.startswith("contrast_db") for line in everything)


def test_json_csv_and_panels_hold_the_same_figures(tmp_path: Path, roi: Path) -> None:
    result = result_file(tmp_path / "a.dehazed.h5")
    report = tmp_path / "report"
    assert run([result], True, 64, roi, tmp_path / "m.json", report, True, pytest.fail) == 0
    document = json.loads((tmp_path / "m.json").read_text())
    assert json.loads((report / "metrics.json").read_text()) == document
    assert document["summary"]["haze_shift_db"]["tissue"] == pytest.approx(-10, abs=1e-3)
    assert document["settings"]["gcnr_bins"] == 64 and document["settings"]["roi"] == "r.json"

    with (report / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    gcnr = [row for row in rows if row["metric"] == "gcnr"]
    assert [float(row["tissue"]) for row in gcnr] == [frame["gcnr"]["tissue"] for frame in document["frames"]]
    assert gcnr[0]["pixels_tissue"] == "416" and gcnr[0]["bins"] == "64"

    panels = sorted(path.name for path in report.glob("*.png"))
    assert panels == ["a.dehazed-frame-000.png", "a.dehazed-frame-001.png"]
    pixels = np.asarray(Image.open(report / panels[0]))
    assert pixels.shape == (H + 16, 3 * (W + 2), 3)
    assert tuple(pixels[16 + 4, 2]) == (64, 224, 96)  # corner of the tissue region, in green
    grey = pixels[16 + 15, 10]  # inside it: the frame itself
    assert len(set(grey.tolist())) == 1


def test_panels_count_frames_as_figures_do_and_results_of_one_name_have_their_own(tmp_path: Path, roi: Path) -> None:
    results = [result_file(tmp_path / folder / "a.dehazed.h5", first_frame=10) for folder in ("b", "c")]
    run(results, True, None, roi, tmp_path / "m.json", tmp_path / "report", True, pytest.fail)
    frames = json.loads((tmp_path / "m.json").read_text())["frames"]
    expected = {f"{frame['cine'][:-3].replace('/', '_')}-frame-{frame['frame']:03d}.png" for frame in frames}
    assert {path.name for path in (tmp_path / "report").glob("*.png")} == expected and len(expected) == 4


def test_without_regions_no_row_says_that_they_were_given(tmp_path: Path) -> None:
    run([result_file(tmp_path / "a.dehazed.h5")], False, None, None, None, tmp_path / "report", True, pytest.fail)
    with (tmp_path / "report" / "metrics.csv").open() as file:
        assert {row["regions"] for row in csv.DictReader(file)} == {""}


def test_automatic_regions_are_marked_wherever_figures_of_them_appear(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    frames = rng.normal(-40, 3, (2, 80, 90)).astype(np.float32)
    frames[:, :, :40] += 22
    path, report, lines = tmp_path / "a.dehazed.h5", tmp_path / "report", []
    write(path, Cine(np.clip(frames, -60, 0), Cartesian(), 60.0, None, Source(name="scan.h5")), 3.0)
    assert run([path], True, None, Path("auto"), tmp_path / "m.json", report, False, lines.append) == 0
    assert "automatic regions" in lines[0] and any(line.startswith("note: automatic regions: ") for line in lines)
    document = json.loads((tmp_path / "m.json").read_text())
    assert document["settings"]["regions"]["origin"] == "automatic"
    assert "high by construction" in " ".join(document["settings"]["warnings"])
    assert {frame["regions"] for frame in document["frames"]} == {"automatic"}
    with (report / "metrics.csv").open() as file:
        assert {row["regions"] for row in csv.DictReader(file)} == {"automatic"}
    plain = panel({"input": frames[0]}, 60.0)
    marked = Image.open(report / "a.dehazed-frame-000.png")
    caption = slice(0, 16), slice(45, 90)  # right of the word "input"
    assert np.asarray(plain)[caption].max() == 0 < np.asarray(marked)[caption].max()


def test_labels_are_used_and_their_erosion_stated(tmp_path: Path) -> None:
    labels = np.zeros((H, W), dtype=np.uint8)
    labels[4:30, 2:18], labels[4:34, 25:55] = 170, 85
    Image.fromarray(labels).save(tmp_path / "scan.png")
    result, lines, path = result_file(tmp_path / "a.dehazed.h5"), [], tmp_path / "m.json"
    for margin, stated, n_tissue in ((None, 3, 20 * 10), (1.0, 1, 24 * 14), (0.0, 0, 26 * 16)):
        arguments = ([result], True, None, tmp_path, path, None, False, lines.append)
        assert run(*arguments, labels="tissue=170 haze=85", margin_px=margin) == 0
        document = json.loads(path.read_text())
        assert document["frames"][0]["n_pixels"]["tissue"] == n_tissue
        regions = {"origin": "given", "source": tmp_path.name, "margin_px": stated}
        assert document["settings"]["regions"] == regions | {"labels": {"tissue": ["170"], "haze": ["85"]}}
    assert "eroded by 3 pixels" in lines[0]
    options = ["--roi", str(tmp_path), "--labels", "tissue=85 haze=170", "--margin", "2", "--json", str(path)]
    assert CliRunner().invoke(main, ["validate", str(result), *options]).exit_code == 0
    assert json.loads(path.read_text())["frames"][0]["n_pixels"] == {"tissue": 26 * 26, "haze": 22 * 12}
    with pytest.raises(UsdehazeError, match="expected a value for each role"):
        run(*arguments, labels="170")


def test_several_results_are_compared_in_pairs_in_the_table(tmp_path: Path, roi: Path) -> None:
    lines: list[str] = []
    results = [result_file(tmp_path / f"{db}.dehazed.h5", removed_db=db) for db in (3.0, 6.0, 9.0)]
    run(results, True, None, roi, None, None, False, lines.append)
    assert "Wilcoxon p" in lines[2]
    gcnr = next(line for line in lines if line.startswith("gcnr "))
    assert gcnr.split()[7] == "0.25"  # three cines, all better: 2 / 2^3
    assert any("; bias 0." in " ".join(pair) for pair in pairwise(lines))


def test_a_result_is_compared_with_the_simulation_it_was_made_of(tmp_path: Path, roi: Path) -> None:
    from usdehaze.io import write_simulation

    rng = np.random.default_rng(4)
    tissue = rng.uniform(-50, -10, (4, H, W)).astype(np.float32)
    known = SimpleNamespace(hazy=tissue + 6, tissue=tissue, haze=tissue - 3, geometry=Cartesian(), frame_times_s=None)
    known.dynamic_range_db, known.seed = 60.0, 1
    write_simulation(tmp_path / "scan.h5", known)
    later = Cine(known.hazy[1:3], Cartesian(), 60.0, None, Source(name="scan.h5", first_frame=1))
    result = write(tmp_path / "scan.dehazed.h5", later, 3.0)  # the right half is 3 dB nearer the truth
    lines, path = [], tmp_path / "m.json"
    for truth in (tmp_path / "scan.h5", tmp_path):
        assert run([result], False, None, roi, path, None, False, lines.append, truth=truth) == 0
        summary = json.loads(path.read_text())["summary"]
        assert summary["psnr_db"]["input"] == pytest.approx(20)
        assert summary["rmse_tissue_db"]["tissue"] == pytest.approx(6, abs=1e-5)
        assert summary["rmse_haze_db"]["tissue"] == pytest.approx(3, abs=1e-5)
    assert run([result], False, None, None, path, None, False, lines.append, truth=tmp_path / "scan.h5") == 0
    document = json.loads(path.read_text())
    assert {"psnr_db", "ssim", "edges_lost"} <= set(document["summary"]) and [
        f["frame"] for f in document["frames"]
    ] == [1, 2]
    other = result_file(tmp_path / "other.dehazed.h5")
    with pytest.raises(InputError, match="hazy frames are not the input"):
        run([other], False, None, None, None, None, True, pytest.fail, truth=tmp_path / "scan.h5")


def test_regions_without_results_are_wrong_usage() -> None:
    done = CliRunner().invoke(main, ["validate", "--roi", "auto"])
    assert done.exit_code == 2 and "need a RESULT" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["validate"], ["review"], ["regions", "-o", "r.png"]])
@pytest.mark.parametrize("option", [["--margin", "5"], ["--labels", "tissue=1 haze=2"]])
def test_options_of_drawn_regions_are_refused_for_automatic_ones_which_they_would_not_change(
    tmp_path: Path, command: list[str], option: list[str]
) -> None:
    result = result_file(tmp_path / "a.dehazed.h5")
    done = CliRunner().invoke(main, [*command, str(result), "--roi", "auto", *option])
    assert done.exit_code == 2 and "for regions that somebody drew" in done.stderr and done.stderr.count("\n") == 1


def test_several_results_are_pooled_by_cine_and_a_bad_one_does_not_stop_them(
    tmp_path: Path, roi: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [result_file(tmp_path / f"{name}.dehazed.h5") for name in "ab"]
    bad = tmp_path / "c.dehazed.h5"
    bad.write_bytes(b"not a result")
    path = tmp_path / "m.json"
    assert run([*results, bad], True, None, roi, path, None, True, pytest.fail) == 1
    assert "c.dehazed.h5" in capsys.readouterr().err
    document = json.loads(path.read_text())
    assert document["settings"]["n_cines"] == 2 and document["settings"]["n_frames"] == 4
    assert document["settings"]["results"] == ["a.dehazed.h5", "b.dehazed.h5"]  # those that the figures are of
    assert "1 of 3 results could not be measured" in document["settings"]["warnings"]
    with pytest.raises(InputError, match=r"c\.dehazed\.h5"):
        run([bad], True, None, roi, None, None, True, pytest.fail)


def test_a_folder_of_regions_serves_every_source_by_its_stem(tmp_path: Path) -> None:
    (tmp_path / "rois").mkdir()
    (tmp_path / "rois" / "scan-1.rois.json").write_text(json.dumps(ROIS))
    result = result_file(tmp_path / "renamed.dehazed.h5", source="scan-1.h5")
    assert run([result], True, None, tmp_path / "rois", None, None, True, pytest.fail) == 0
    other = result_file(tmp_path / "other.dehazed.h5", source="scan-2.h5")
    with pytest.raises(InputError, match=r"scan-2\.rois\.json: cannot be read"):
        run([other], True, None, tmp_path / "rois", None, None, True, pytest.fail)


def test_frames_are_counted_as_in_the_source(tmp_path: Path, roi: Path) -> None:
    document = json.loads(roi.read_text())
    for region in document["regions"]:
        region["frames"] = [5]
    roi.write_text(json.dumps(document))
    result = result_file(tmp_path / "a.dehazed.h5", first_frame=4)
    run([result], True, None, roi, tmp_path / "m.json", None, True, pytest.fail)
    assert [frame["frame"] for frame in json.loads((tmp_path / "m.json").read_text())["frames"]] == [5]
    with pytest.raises(InputError, match="names frame 5; expected 0 to 1"):
        run([result_file(tmp_path / "b.dehazed.h5")], True, None, roi, None, None, True, pytest.fail)


def test_an_output_that_cannot_be_written_is_found_before_the_work(tmp_path: Path, roi: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        run([tmp_path / "missing.dehazed.h5"], True, None, roi, tmp_path, None, True, pytest.fail)


@pytest.mark.parametrize("target", ["a.dehazed.h5", "r.json", "truth.h5"])
def test_figures_never_replace_what_they_are_made_from(tmp_path: Path, roi: Path, target: str) -> None:
    result, truth = result_file(tmp_path / "a.dehazed.h5"), tmp_path / "truth.h5"
    truth.touch()
    before = {path: path.read_bytes() for path in (result, roi, truth)}
    with pytest.raises(InputError, match=f"{target}: would be replaced, and is what it is made from"):
        run([result], True, None, roi, tmp_path / target, None, True, pytest.fail, truth=truth)
    assert {path: path.read_bytes() for path in before} == before


def test_what_a_pattern_named_by_mistake_is_not_replaced(tmp_path: Path, roi: Path) -> None:
    """As in ``--json *.h5``, where the first scan is the name and the others are measured."""
    scan, result = result_file(tmp_path / "a.dehazed.h5"), result_file(tmp_path / "b.dehazed.h5")
    before = scan.read_bytes()
    with pytest.raises(InputError, match=r"a\.dehazed\.h5: is there, and is of another kind"):
        run([result], True, None, roi, scan, None, True, pytest.fail)
    assert scan.read_bytes() == before
    metrics = tmp_path / "m.json"
    metrics.touch()
    for _ in range(2):  # an empty file, and earlier figures, are replaced
        run([result], True, None, roi, metrics, None, True, pytest.fail)
    assert "summary" in json.loads(metrics.read_text())


def test_a_result_that_is_named_twice_or_linked_counts_once_and_results_of_one_source_are_told(
    tmp_path: Path, roi: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    source = Source("scan.h5", "ab" * 32)
    cine = Cine(rng.uniform(-40, -5, (2, H, W)).astype(np.float32), Cartesian(), 60.0, None, source)
    one, other = (write(tmp_path / f"{n}.dehazed.h5", cine, removed) for n, removed in (("one", 5.0), ("other", 10.0)))
    link = tmp_path / "link.dehazed.h5"
    link.symlink_to(one)
    path = tmp_path / "m.json"
    assert run([one, link, one], True, None, roi, path, None, True, pytest.fail) == 1
    assert capsys.readouterr().err.count("is named twice; expected every result once") == 2
    settings = json.loads(path.read_text())["settings"]
    assert (settings["n_cines"], settings["n_frames"]) == (1, 2) and not any(
        "source" in w for w in settings["warnings"]
    )

    assert run([one, other], True, None, roi, path, None, True, pytest.fail) == 0
    settings = json.loads(path.read_text())["settings"]
    assert settings["n_cines"] == 2 and any("several results are of one source" in w for w in settings["warnings"])


def test_results_that_were_not_made_alike_are_told(tmp_path: Path, roi: Path) -> None:
    from usdehaze.io.result import write_result

    frames = np.random.default_rng(3).uniform(-40, -5, (2, H, W)).astype(np.float32)
    results = []
    for k, caution in enumerate((0.5, 0.85, 0.85)):
        cine = Cine(frames, Cartesian(), 60.0 if k else 50.0, None, Source(f"{k}.h5"))
        settings = {"caution": caution, "seed": 3, "device": f"cuda:{k}"}
        results.append(tmp_path / f"{k}.dehazed.h5")
        write_result(results[-1], Result(cine, frames - 1, frames - 6, None, settings))
    told = []
    for asked in (results, results[1:]):
        assert run(asked, True, None, roi, tmp_path / "m.json", None, True, pytest.fail) == 0
        warnings = json.loads((tmp_path / "m.json").read_text())["settings"]["warnings"]
        told.append([warning for warning in warnings if "alike" in warning])
    assert told == [["results were not made alike: they differ in caution, dynamic range db"], []]


def test_a_folder_stands_for_the_results_in_it(tmp_path: Path, roi: Path) -> None:
    (tmp_path / "out").mkdir()
    result_file(tmp_path / "real" / "b.dehazed.h5")
    (tmp_path / "out" / "linked").symlink_to(tmp_path / "real")
    result_file(tmp_path / "out" / "a.dehazed.h5", removed_db=5.0)
    path = tmp_path / "m.json"
    done = CliRunner().invoke(main, ["validate", str(tmp_path / "out"), "--roi", str(roi), "--json", str(path)])
    assert done.exit_code == 0
    assert json.loads(path.read_text())["settings"]["results"] == ["a.dehazed.h5", "b.dehazed.h5"]
    (tmp_path / "none").mkdir()
    done = CliRunner().invoke(main, ["validate", str(tmp_path / "none"), "--roi", str(roi)])
    assert done.exit_code == 1 and done.stderr.startswith(f"usdehaze: no result in {tmp_path / 'none'}; expected files")


@pytest.mark.parametrize(
    "result, source, regions",
    [
        ("a.dehazed.h5", "a.nii.gz", "a"),
        ("1.2.55.1.dehazed.h5", "1.2.55.1", "1.2.55.1"),  # a UID, not a name with the suffix ".1"
        ("a.hdf5.dehazed.h5", "a.hdf5", "a.hdf5"),  # beside that of a.h5
        ("seed1.dehazed.h5", "a.h5", "a"),
        ("seed2.dehazed.h5", "a.h5", "seed2"),  # as review --serve saves them
        ("a.dehazed.h5", "", "a"),
    ],
)
def test_regions_in_a_folder_are_those_of_the_scan(tmp_path: Path, result: str, source: str, regions: str) -> None:
    (tmp_path / "rois").mkdir()
    for name in ("a", "1.2.55", "1.2.55.1", "a.hdf5", "seed2"):  # of all but the right ones the tissue is moved
        moved = json.dumps(ROIS).replace("[2, 4]", "[2, 4]" if name == regions else "[2, 20]")
        (tmp_path / "rois" / f"{name}.rois.json").write_text(moved)
    path = tmp_path / "m.json"
    assert run([result_file(tmp_path / result, source)], True, None, tmp_path / "rois", path, None, True, print) == 0
    assert json.loads(path.read_text())["settings"]["n_pixels_range"]["tissue"] == [416, 416]


def test_the_csv_says_how_many_pixels_a_faint_region_has(tmp_path: Path) -> None:
    wall = {"name": "thin", "role": "faint", "frames": [1], "polygon": [[2, 32], [18, 32], [18, 36], [2, 36]]}
    (tmp_path / "r.json").write_text(json.dumps({"regions": [*ROIS["regions"], wall]}))
    result = result_file(tmp_path / "a.dehazed.h5")
    assert run([result], True, None, tmp_path / "r.json", None, tmp_path / "report", True, pytest.fail) == 0
    with (tmp_path / "report" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["frame"], row["pixels_faint"]) for row in rows} == {("0", ""), ("1", "64")}


def test_regions_of_which_the_margin_leaves_nothing_are_told(tmp_path: Path) -> None:
    result, path = result_file(tmp_path / "a.dehazed.h5"), tmp_path / "m.json"
    labels = np.zeros((H, W), np.uint8)
    labels[4:30, 2:18], labels[4:34, 25:55], labels[4:30, 20:23] = 255, 128, 64  # a faint wall of three columns
    Image.fromarray(labels).save(tmp_path / "r.png")
    words = "tissue=255 haze=128 faint=64"
    assert run([result], True, None, tmp_path / "r.png", path, None, True, pytest.fail, labels=words) == 0
    document = json.loads(path.read_text())
    assert "faint_shift_db" not in document["summary"]
    told = "a.dehazed.h5: Its faint regions hold no pixel in these frames once eroded by 3 pixels."
    assert told in document["settings"]["warnings"]


def test_scans_of_one_name_do_not_share_the_regions_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    results = []
    for patient, sha256 in (("p1", "ab"), ("p2", "cd"), ("p1-again", "ab")):
        frames = rng.uniform(-40, -5, (2, H, W)).astype(np.float32)
        cine = Cine(frames, Cartesian(), 60.0, None, Source("scan.h5", 32 * sha256))
        results.append(write(tmp_path / patient / "scan.dehazed.h5", cine, 5.0))
    (tmp_path / "rois").mkdir()
    (tmp_path / "rois" / "scan.rois.json").write_text(json.dumps(ROIS))
    path = tmp_path / "m.json"
    assert run(results, True, None, tmp_path / "rois", path, None, True, pytest.fail) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "p2/scan.dehazed.h5: its regions, " in line and "are those of another scan of this name" in line
    assert json.loads(path.read_text())["settings"]["n_cines"] == 2
    assert run(results, True, None, tmp_path / "rois" / "scan.rois.json", path, None, True, pytest.fail) == 0


def test_regions_that_leave_the_image_are_told(tmp_path: Path, roi: Path) -> None:
    rng = np.random.default_rng(3)
    fan = Sector(29.5, -20.0, 10.0, 70.0, -0.5, 0.5)
    frames = np.where(sector_mask(fan, (H, W)), rng.uniform(-40, -5, (2, H, W)), -60).astype(np.float32)
    cine = Cine(frames, Cartesian(sector=fan, found_by="file"), 60.0, None, Source("scan.h5"))
    result, path = write(tmp_path / "a.dehazed.h5", cine, 5.0), tmp_path / "m.json"
    assert run([result], True, None, roi, path, None, True, pytest.fail) == 0
    wall = np.zeros((H, W), bool)
    wall[4:30, 2:18] = True
    share = round(100 * float((~sector_mask(fan, (H, W)))[wall].mean()))
    warnings = json.loads(path.read_text())["settings"]["warnings"]
    assert share > 10
    told = f"a.dehazed.h5: Up to {share} % of the pixels of its tissue regions in a frame are outside the image."
    assert told in warnings
    others = [result]
    for name, less in (("b", 5), ("c", 0)):
        other = replace(cine, geometry=Cartesian(sector=replace(fan, r_min=10.0 + less), found_by="file"))
        others.append(write(tmp_path / f"{name}.dehazed.h5", other, 5.0))
    assert run(others, True, None, roi, path, None, True, pytest.fail) == 0
    (line,) = [w for w in json.loads(path.read_text())["settings"]["warnings"] if "tissue regions" in w]
    assert line == f"3 cines, such as {told}"
    tissue, haze = ROIS["regions"]
    tissue, haze = (
        tissue | {"polygon": [[26, 5], [34, 5], [34, 15]]},
        haze | {"polygon": [[26, 20], [34, 20], [34, 35]]},
    )
    roi.write_text(json.dumps({"regions": [tissue, haze]}))
    assert run([result], True, None, roi, path, None, True, pytest.fail) == 0
    assert not any("outside the image" in warning for warning in json.loads(path.read_text())["settings"]["warnings"])
