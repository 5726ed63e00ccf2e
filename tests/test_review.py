"""The review page without a browser: what is in the file, and that its numbers are right."""

import base64
import hashlib
import json
import re
import sys
import tracemalloc
import webbrowser
import zlib
from dataclasses import replace

import h5py
import numpy as np
import pytest
from _results import POLAR, REGIONS, SECTOR, SHAPE, make_result
from click.testing import CliRunner
from PIL import Image

from usdehaze.cine import Cartesian
from usdehaze.cli import main
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask
from usdehaze.io import write_result
from usdehaze.review import build_review, default_page_path
from usdehaze.review.frames import residual
from usdehaze.validation.metrics import ks
from usdehaze.validation.risk import StructureRisk


@pytest.fixture
def roi(tmp_path):
    path = tmp_path / "rois.json"
    path.write_text(json.dumps(REGIONS))
    return path


def data_of(page, name):
    """A JSON block of a page."""
    found = re.findall(rf'<script type="application/json" id="{name}-json">(.*?)</script>', page.read_text(), re.S)
    assert len(found) == 1
    return json.loads(found[0])


def frames_of(page):
    """``(T, planes, H, W)`` uint8, unpacked by another way than the page's: pixel by pixel."""
    about = data_of(page, "page")
    shape = len(about["planes"]), about["height"], about["width"]
    frames = []
    for packed in re.findall(r'<script type="text/plain" id="frame-\d+">(.*?)</script>', page.read_text()):
        planes = np.frombuffer(zlib.decompress(base64.b64decode(packed), -15), np.uint8).reshape(shape).astype(int)
        for plane in planes:
            for y, x in np.ndindex(*plane.shape):
                left, up = plane[y, x - 1] if x else 0, plane[y - 1, x] if y else 0
                plane[y, x] = (plane[y, x] + (left + up) // 2) % 256
        frames.append(planes)
    return np.array(frames)


def test_every_plane_of_every_frame_is_the_result_in_8_bit_levels(tmp_path, roi):
    result = make_result(tmp_path / "a.dehazed.h5")
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", roi, with_screen=True)
    assert data_of(page, "page")["planes"] == ["input", "removed", "haze", "std", "risk", "image", "regions"]
    seen, removed, haze, std, risk, image, regions = frames_of(page).transpose(1, 0, 2, 3)
    assert np.array_equal(seen, db_to_grey(result.cine.frames, 60))
    assert np.array_equal((seen - removed) % 256, db_to_grey(result.tissue, 60))
    assert np.array_equal(haze, db_to_grey(result.haze, 60))
    assert np.abs(std * 60 / 255 - np.minimum(result.std, 60)).max() <= 60 / 255 / 2 + 1e-6
    marks = StructureRisk(60.0)
    frames = zip(result.cine.frames, result.tissue, result.std, strict=True)
    assert np.array_equal(risk, [marks.add(*frame) for frame in frames])
    assert (image == image_mask(SECTOR, SHAPE[1:])).all()
    assert (regions == 1).sum() == 5 * 16 * 30 and (regions == 2).sum() == 5 * 18 * 30
    assert (regions[:, 5:35, 4:20] == 1).all() and (regions[:, 5:35, 26:44] == 2).all()


def test_the_residual_of_a_ramp_is_small_and_wraps_around_at_256():
    assert np.array_equal(residual(np.array([[200, 100], [0, 50]], np.uint8)), [[200, 0], [156, 0]])


def test_the_metrics_are_those_of_validate(tmp_path, roi):
    make_result(tmp_path / "a.dehazed.h5", first_frame=7)
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", roi)
    command = ["validate", str(tmp_path / "a.dehazed.h5"), "--roi", str(roi), "--json", str(tmp_path / "m.json")]
    assert CliRunner().invoke(main, command).exit_code == 0
    ours, theirs = data_of(page, "metrics"), json.loads((tmp_path / "m.json").read_text())
    outside = [told for name, told in data_of(page, "page")["provenance"] if name == "to be doubted"]
    assert len(outside) == 2 and all("outside the image" in told for told in outside)
    assert ours["summary"] == theirs["summary"] and ours["summary"]["gcnr"]["input"] is not None
    for mine, other in zip(ours["frames"], theirs["frames"], strict=True):
        assert other.pop("doubts") == outside
        assert mine == {**other, "cine": "ab" * 6}
    assert [record["frame"] for record in ours["frames"]] == [7, 8, 9, 10, 11]
    assert ours["settings"]["estimators"] == theirs["settings"]["estimators"]


def test_regions_come_from_a_folder_and_with_a_byte_order_mark_as_validate_takes_them(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    (tmp_path / "a.rois.json").write_text(json.dumps(REGIONS), encoding="utf-8-sig")
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", tmp_path)
    about = data_of(page, "page")
    assert about["regions"]["names"] == {"tissue": ["septum"], "haze": ["ventricle"]}
    assert [region["name"] for region in about["polygons"]] == ["septum", "ventricle"]


def test_label_images_and_their_margin_are_taken_as_validate_takes_them(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    labels = np.zeros(SHAPE[1:], np.uint8)
    labels[5:35, 4:20], labels[5:35, 26:44] = 170, 85
    Image.fromarray(labels).save(tmp_path / "labels.png")
    page = build_review(
        tmp_path / "a.dehazed.h5",
        tmp_path / "a.html",
        tmp_path / "labels.png",
        labels="tissue=170 haze=85",
        margin_px=1,
    )
    settings = data_of(page, "metrics")["settings"]
    assert settings["n_pixels_range"] == {"tissue": [14 * 28] * 2, "haze": [16 * 28] * 2}
    assert settings["regions"] == {"origin": "given", "margin_px": 1}


def test_faint_regions_of_a_label_image_are_shown_counted_and_measured_as_validate_does(tmp_path):
    result = make_result(tmp_path / "a.dehazed.h5")
    labels = np.zeros((5, 40, 48), np.uint8)
    labels[:, 5:35, 4:20], labels[:, 5:35, 26:44], labels[1:3, 2:38, 21:25] = 255, 128, 60
    with h5py.File(tmp_path / "l.h5", "w") as file:
        file["labels"] = labels
    said = "tissue=255 haze=128 faint=60"
    how = ["--roi", str(tmp_path / "l.h5"), "--labels", said, "--margin", "0", "--json", str(tmp_path / "m.json")]
    assert CliRunner().invoke(main, ["validate", str(tmp_path / "a.dehazed.h5"), *how]).exit_code == 0
    page = build_review(
        tmp_path / "a.dehazed.h5", tmp_path / "a.html", tmp_path / "l.h5", labels=said, margin_px=0, with_screen=True
    )
    about, metrics = data_of(page, "page"), data_of(page, "metrics")
    assert about["regions"]["names"] == {"tissue": ["tissue"], "haze": ["haze"], "faint": ["faint"]}
    assert ((frames_of(page)[:, about["planes"].index("regions")] == 4) == (labels == 60)).all()
    assert sum(about["histograms"]["faint"]["input"]) == 2 * 36 * 4
    assert metrics["summary"] == json.loads((tmp_path / "m.json").read_text())["summary"]
    was, now = (image[1:3][labels[1:3] == 60].mean() for image in (result.cine.frames, result.tissue))
    assert metrics["summary"]["faint_shift_db"]["tissue"] == pytest.approx(now - was, abs=1e-5)


def test_the_page_has_the_times_of_its_frames_as_stored(tmp_path):
    result = make_result(tmp_path / "a.dehazed.h5", first_frame=10)
    times = np.array([5.0, 5.1, 5.2, 6.7, 6.8])
    write_result(tmp_path / "a.dehazed.h5", replace(result, cine=replace(result.cine, frame_times_s=times)), True)
    about = data_of(build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", frames=slice(1, 5)), "page")
    assert about["frame_times_s"] == pytest.approx([0, 0.1, 1.6, 1.7])
    assert about["frame_time_s"] == pytest.approx(0.1)


def test_automatic_regions_are_marked_wherever_they_appear(tmp_path):
    shape = (2, 64, 64)
    make_result(tmp_path / "a.dehazed.h5", Cartesian(), shape=shape, blob=True)
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", "auto")
    metrics, about = data_of(page, "metrics"), data_of(page, "page")
    assert about["regions"]["origin"] == metrics["settings"]["regions"]["origin"] == "automatic"
    assert {record["regions"] for record in metrics["frames"]} == {"automatic"}
    assert any("automatic regions" in warning for warning in metrics["settings"]["warnings"])


def test_tissue_ks_on_the_page_is_that_of_the_stored_frames(tmp_path, roi):
    result = make_result(tmp_path / "a.dehazed.h5")
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", roi, frames=slice(2, 3))
    block = (2, slice(5, 35), slice(4, 20))
    assert data_of(page, "metrics")["summary"]["ks_tissue"]["tissue"] == pytest.approx(
        ks(result.cine.frames[block], result.tissue[block]), abs=1e-12
    )


@pytest.mark.parametrize("with_screen", [False, True])
def test_whole_image_figures_and_histograms_count_the_pixels_of_the_image_above_the_floor(tmp_path, roi, with_screen):
    result = make_result(tmp_path / "a.dehazed.h5")
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", roi, with_screen=with_screen)
    page = data_of(page, "page")
    image = page["image"]
    seen = np.where(image_mask(SECTOR, SHAPE[1:]), result.cine.frames, -60)  # the screen around it is none
    assert (seen > -60).sum() < 0.8 * (result.cine.frames > -60).sum()
    removed = (seen.astype(float) - result.tissue)[seen > -60]
    assert image["n_pixels"] == removed.size
    assert image["removed_mean_db"] == pytest.approx(removed.mean(), rel=1e-6)
    assert image["lowered_share"]["3"] == pytest.approx((removed > 3).mean())
    assert image["largest_rise_db"] == pytest.approx(0, abs=1e-6)
    assert image["std_mean_db"] == pytest.approx(result.std[seen > -60].mean(), rel=1e-5)
    by_frame = [(s.astype(float) - t)[s > -60].mean() for s, t in zip(seen, result.tissue, strict=True)]
    assert image["removed_mean_db_by_frame"] == pytest.approx(by_frame, rel=1e-6)
    expected, _ = np.histogram(db_to_grey(result.tissue, 60)[:, 5:35, 26:44], bins=64, range=(0, 256))
    assert page["histograms"]["haze"]["tissue"] == expected.tolist()
    assert sum(page["histograms"]["image"]["input"]) == removed.size


def test_a_tissue_estimate_above_the_input_shows_up_in_the_figures(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    with h5py.File(tmp_path / "a.dehazed.h5", "r+") as file:
        file["input"][3, 10, 10], file["tissue"][3, 10, 10] = -30, -27.5
    page = data_of(build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html"), "page")
    assert page["image"]["largest_rise_db"] == 2.5


def test_nothing_names_the_patient_unless_asked(tmp_path, roi):
    path = tmp_path / "QUILLFEATHER^ZOE 1950-01-01.dehazed.h5"
    make_result(path)
    text = build_review(path, tmp_path / "a.html", roi).read_text()
    words = re.sub(r"[A-Za-z0-9+/=]{200,}", "", text)  # packed pixels may spell anything
    assert not re.search("quillfeather|zoe|1950", words, re.I)
    assert "ab" * 32 in text and "unet-tissue sha256:00ff" in text and "unet-haze sha256:11ee" in text
    shown = build_review(path, tmp_path / "b.html", roi, show_source_name=True)
    assert ["source", "QUILLFEATHER^ZOE 1950-01-01.h5"] in data_of(shown, "page")["provenance"]
    assert ["source dataset", "Quillfeather/cine"] in data_of(shown, "page")["provenance"]


def test_provenance_names_versions_settings_seed_and_both_files_by_their_hash(tmp_path):
    path = tmp_path / "a.dehazed.h5"
    make_result(path)
    rows = dict(data_of(build_review(path, tmp_path / "a.html"), "page")["provenance"])
    with h5py.File(path) as file:
        assert (
            rows["usdehaze version"] == file.attrs["usdehaze_version"] and rows["result made"] == file.attrs["created"]
        )
    assert (rows["seed"], rows["steps"], rows["guidance"], rows["posterior samples"]) == ("3", "20", "proximal", "4")
    assert rows["caution"] == "0.6"
    assert (rows["strength"], rows["guidance scale (tissue, haze)"], rows["starts from a first guess"]) == (
        "0.75",
        "0.93, 0.88",
        "yes",
    )
    assert "device" not in rows  # not said in this result
    assert rows["source, SHA-256"] == "ab" * 32
    assert rows["result file, SHA-256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_names_of_regions_cannot_become_markup(tmp_path, roi):
    make_result(tmp_path / "a.dehazed.h5")
    hostile = "</script><script>alert(1)</script><!--"
    document = json.loads(json.dumps(REGIONS).replace("septum", hostile))
    roi.write_text(json.dumps(document))
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", roi)
    assert hostile not in page.read_text()
    assert len(re.findall("<script", page.read_text())) == SHAPE[0] + 3
    assert data_of(page, "page")["regions"]["names"]["tissue"] == [hostile]


def test_the_policy_allows_this_script_these_styles_and_no_connection(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    text = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    for kind, pattern in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
        (content,) = re.findall(pattern, text, re.S)
        assert f"{kind} 'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy
    assert not re.search(r"{{|src=|<link(?! rel=\"icon\" href=\"data:,\">)|@import|url\(", text)
    assert set(re.findall(r"https?://[^'\" ]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched


def test_without_regions_samples_and_times_the_page_says_so_and_shows_the_rest(tmp_path):
    make_result(tmp_path / "a.dehazed.h5", with_std=False, times=False)
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html")
    about = data_of(page, "page")
    assert data_of(page, "metrics") is None and about["regions"] is None
    assert about["planes"] == ["input", "removed", "haze", "risk"] and about["image"]["std_mean_db"] is None
    assert (about["frame_time_known"], about["frame_time_s"]) == (False, 0.05)


@pytest.mark.parametrize(
    ("geometry", "expected"),
    [
        (SECTOR, {"kind": "cartesian", "row_per_column": pytest.approx(2 / 3)}),
        (POLAR, {"kind": "polar", "depths_m": POLAR.depths_m.tolist(), "angles_rad": POLAR.angles_rad.tolist()}),
    ],
)
def test_geometry_goes_along(tmp_path, geometry, expected):
    make_result(tmp_path / "a.dehazed.h5", geometry)
    assert data_of(build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html"), "page")["geometry"] == expected


def test_part_of_the_frames_keeps_the_source_s_count(tmp_path):
    result = make_result(tmp_path / "a.dehazed.h5", first_frame=10)
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", frames=slice(1, 3), with_screen=True)
    about = data_of(page, "page")
    assert (about["n_frames"], about["first_frame"], about["frame_time_s"]) == (2, 11, pytest.approx(0.02))
    assert np.array_equal(frames_of(page)[:, 0], db_to_grey(result.cine.frames[1:3], 60))
    with pytest.raises(InputError, match=r"no such frames; expected frames of 0 to 4"):
        build_review(tmp_path / "a.dehazed.h5", tmp_path / "b.html", frames=slice(9, 12))


def test_memory_does_not_grow_with_the_number_of_frames(tmp_path):
    make_result(tmp_path / "a.dehazed.h5", shape=(40, 96, 96))
    peaks = []
    for n_frames in (2, 2, 40):  # the first time for what is loaded once
        tracemalloc.start()
        build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", frames=slice(0, n_frames), overwrite=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    one_frame = 4 * 96 * 96
    assert peaks[2] - peaks[1] < 4 * one_frame


def test_a_page_too_large_for_a_browser_is_refused_with_what_would_fit(tmp_path, monkeypatch):
    make_result(tmp_path / "a.dehazed.h5")
    monkeypatch.setattr("usdehaze.review.page.MAX_PAGE_BYTES", 15_000)
    with pytest.raises(InputError, match=r"a page of 5 frames would be larger .*--frames 0:[1-4]$"):
        build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html")
    assert [p.name for p in tmp_path.iterdir()] == ["a.dehazed.h5"]


def test_what_is_no_result_is_refused_in_one_line(tmp_path, roi):
    with pytest.raises(InputError, match="is not an HDF5 file"):
        build_review(roi, tmp_path / "a.html")
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["cine"] = np.zeros((2, 8, 8), np.float32)
    with pytest.raises(InputError, match=r"is not a usdehaze-result file; expected a file written by usdehaze process"):
        build_review(tmp_path / "scan.h5", tmp_path / "a.html")
    make_result(tmp_path / "a.dehazed.h5")
    with h5py.File(tmp_path / "a.dehazed.h5", "r+") as file:
        file["haze"][2, 3, 4] = np.nan
    with pytest.raises(InputError, match="dataset 'haze' holds values that are not numbers"):
        build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", roi)
    assert not (tmp_path / "a.html").exists() and not list(tmp_path.glob(".*"))


def test_a_page_that_exists_is_replaced_only_when_asked(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    (tmp_path / "a.html").write_text("precious")
    with pytest.raises(InputError, match="exists already; replace it with --overwrite"):
        build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == "precious"
    build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", overwrite=True)
    assert "usdehaze review" in (tmp_path / "a.html").read_text()
    with pytest.raises(InputError, match=r"a.dehazed.h5: would be replaced, and is what it is made from"):
        build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.dehazed.h5", overwrite=True)


def test_the_command_writes_the_page_beside_the_result_and_opens_nothing_without_a_terminal(tmp_path, roi, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    make_result(tmp_path / "scan.dehazed.h5")
    done = CliRunner().invoke(main, ["review", str(tmp_path / "scan.dehazed.h5"), "--roi", str(roi)])
    assert done.exit_code == 0 and done.output.startswith(f"{tmp_path / 'scan.review.html'} (")
    assert data_of(tmp_path / "scan.review.html", "metrics")["summary"]["ks_tissue"]["tissue"] > 0
    again = CliRunner().invoke(main, ["review", str(tmp_path / "scan.dehazed.h5"), "-o", str(tmp_path / "b.html")])
    assert again.exit_code == 0 and (tmp_path / "b.html").exists()
    assert opened == []


@pytest.mark.parametrize(("options", "n_opened"), [([], 1), (["--no-open"], 0)])
def test_at_a_terminal_with_a_screen_the_page_is_opened_unless_told_otherwise(tmp_path, monkeypatch, options, n_opened):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys.modules["usdehaze.cli.review"], "_has_browser", lambda: True)
    make_result(tmp_path / "scan.dehazed.h5")
    assert CliRunner().invoke(main, ["review", str(tmp_path / "scan.dehazed.h5"), *options]).exit_code == 0
    assert opened == [(tmp_path / "scan.review.html").as_uri()] * n_opened


def test_the_page_of_a_result_with_another_name_keeps_its_stem():
    assert default_page_path("out/scan.dehazed.h5").as_posix() == "out/scan.review.html"
    assert default_page_path("out/other.h5").as_posix() == "out/other.review.html"
