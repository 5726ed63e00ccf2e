"""``usdehaze regions``: regions go out as DICOM SEG or labels, and come back as they were."""

import json
import shutil

import numpy as np
import pydicom
import pytest
from _dicom import region, write_dicom
from _dicom_results import complaints, lowered
from _results import REGIONS, SHAPE, make_result
from _scans import fan_frames
from click.testing import CliRunner

from usdehaze.cine import Cartesian
from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.io.dicom import DicomWriter, open_dicom
from usdehaze.io.result import ResultWriter
from usdehaze.validation.regions import read_regions

WALL = {"name": "QUILLFEATHER", "role": "tissue", "frames": [1, 2], "polygon": [[25, 20], [31, 20], [31, 40], [25, 40]]}
CAVITY = {"name": "cavity", "role": "haze", "polygon": [[34, 20], [42, 20], [42, 40], [34, 40]]}
THIN = {"name": "lateral", "role": "faint", "frames": [2, 3], "polygon": [[25, 30], [29, 30], [29, 50], [25, 50]]}
IN_ALL = {"tissue": 255, "haze": 128, "faint": 64}


def drawn(path, *regions):
    path.write_text(json.dumps({"regions": list(regions)}))
    return path


def scan_and_result(folder, n_frames, frames=slice(None), **attributes):
    scan = write_dicom(folder / "scan.dcm", fan_frames(n_frames), regions=[region()], **attributes)
    with open_dicom(scan, frames=frames) as opened, ResultWriter(folder / "scan.dehazed.h5", opened) as result:
        result.append(lowered(opened.read(0, opened.n_frames)))
    return scan, folder / "scan.dehazed.h5"


def converted(result, roi, out, *more):
    return CliRunner().invoke(main, ["regions", str(result), "--roi", str(roi), "-o", str(out), *map(str, more)])


def masks(regions):
    """``(3, T, H, W)`` bool: tissue, haze and faint walls."""
    return np.array([[regions.mask(role, t) for t in range(regions.shape[0])] for role in IN_ALL])


def test_regions_that_change_come_back_from_a_dicom_segmentation_as_they_were(tmp_path):
    highdicom = pytest.importorskip("highdicom", reason="the extra report is not installed")
    scan, result = scan_and_result(tmp_path, 4, slice(1, 4), PatientName="QUILLFEATHER^Zoë")
    roi, shape, out = drawn(tmp_path / "r.json", WALL, CAVITY, THIN), (3, 64, 64), tmp_path / "seg.dcm"
    done = converted(result, roi, out)
    assert done.exit_code == 0, done.output
    before, after = read_regions(roi, shape, 1), read_regions(out, shape, 1)
    assert np.array_equal(masks(after), masks(before)) and masks(before).any(axis=(1, 2, 3)).all()

    image, seg = pydicom.dcmread(scan), highdicom.seg.segread(out)
    assert [item.SegmentLabel for item in seg.SegmentSequence] == ["tissue", "haze", "faint"]
    assert seg.NumberOfFrames == 2 + 3 + 2  # where there is something
    pixels = seg.get_pixels_by_source_frame(image.SOPInstanceUID, [2, 3, 4], ignore_spatial_locations=True)
    assert np.array_equal(np.moveaxis(pixels.astype(bool), 3, 0), masks(before))
    for keyword in ("PatientName", "PatientID", "StudyInstanceUID", "StudyDate"):
        assert seg[keyword].value == image[keyword].value
    assert b"QUILLFEATHER^Zo\xeb" in out.read_bytes() and out.read_bytes().count(b"QUILLFEATHER") == 1
    assert seg.SegmentsOverlap == "YES" and seg.SeriesNumber == 3902 and seg.Modality == "SEG"
    first = seg.PerFrameFunctionalGroupsSequence[0].DerivationImageSequence[0].SourceImageSequence[0]
    assert first.ReferencedSOPClassUID == image.SOPClassUID and first.ReferencedFrameNumber == 2
    if shutil.which("dciodvfy"):
        assert complaints(out) == set()
    assert "is what it is made from" in converted(result, roi, scan, "--overwrite").stderr
    assert converted(result, roi, out).exit_code == 1 and converted(result, roi, out, "--overwrite").exit_code == 0


def test_a_single_image_and_regions_found_by_brightness(tmp_path):
    pytest.importorskip("highdicom", reason="the extra report is not installed")
    frames = fan_frames(1, 96, 96)
    frames[:, :, 48:] //= 4
    scan = write_dicom(tmp_path / "scan.dcm", frames, regions=[region(right=95, bottom=95)])
    with open_dicom(scan) as opened, ResultWriter(tmp_path / "scan.dehazed.h5", opened) as result:
        result.append(lowered(opened.read(0, 1)))
    out = tmp_path / "seg.dcm"
    done = converted(tmp_path / "scan.dehazed.h5", "auto", out)
    assert done.exit_code == 0, done.output
    assert "seg.dcm: regions that nobody drew; figures of it will not say so" in done.stderr
    seg = pydicom.dcmread(out)
    assert [item.SegmentAlgorithmType for item in seg.SegmentSequence] == ["AUTOMATIC"] * 2
    source = seg.PerFrameFunctionalGroupsSequence[0].DerivationImageSequence[0].SourceImageSequence[0]
    assert source.ReferencedSOPInstanceUID == "1.2.3.4.5.6" and "ReferencedFrameNumber" not in source
    found = masks(read_regions(out, (1, 96, 96)))
    assert found[0, :, :, :46].sum() > 200 < found[1, :, :, 50:].sum() and not found[2].any()


@pytest.mark.parametrize("suffix", [".png", ".h5"])
def test_regions_that_stay_come_back_from_labels_as_they_were(tmp_path, suffix):
    make_result(tmp_path / "a.dehazed.h5")
    roi, out = drawn(tmp_path / "r.json", *REGIONS["regions"]), tmp_path / f"labels{suffix}"
    assert converted(tmp_path / "a.dehazed.h5", roi, out).exit_code == 0
    assert np.array_equal(masks(read_regions(out, SHAPE)), masks(read_regions(roi, SHAPE)))


def test_regions_that_change_come_back_from_hdf5_and_are_refused_as_a_picture(tmp_path):
    make_result(tmp_path / "a.dehazed.h5", shape=(4, 64, 64), geometry=Cartesian())
    apart, out, shape = THIN | {"frames": [3]}, tmp_path / "labels.h5", (4, 64, 64)
    overlap = drawn(tmp_path / "o.json", WALL | {"frames": [2]}, CAVITY, THIN)
    assert "one role a pixel" in converted(tmp_path / "a.dehazed.h5", overlap, out).stderr
    roi = drawn(tmp_path / "r.json", WALL, CAVITY, apart)
    assert converted(tmp_path / "a.dehazed.h5", roi, out).exit_code == 0
    labels = {role: (str(level),) for role, level in IN_ALL.items()}
    assert np.array_equal(masks(read_regions(out, shape, labels=labels)), masks(read_regions(roi, shape)))
    done = converted(tmp_path / "a.dehazed.h5", roi, tmp_path / "labels.png")
    assert done.exit_code == 1 and "change from frame to frame" in done.stderr and done.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a.dehazed.h5", "o.json", "r.json", "labels.h5"}


def test_forms_and_sources_that_there_are_not_are_refused_in_one_line(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    roi = drawn(tmp_path / "r.json", *REGIONS["regions"])
    for out, message in (("seg.dcm", "was not made of a DICOM image"), ("r.tif", "no form for .tif")):
        done = converted(tmp_path / "a.dehazed.h5", roi, tmp_path / out)
        assert done.exit_code == 1 and message in done.stderr and done.stderr.count("\n") == 1
        assert not (tmp_path / out).exists()


@pytest.mark.parametrize("what", ["tissue", "haze"])
def test_a_segmentation_of_the_derived_image_counts_the_frames_of_that(tmp_path, what):
    pytest.importorskip("highdicom", reason="the extra report is not installed")
    scan, result = scan_and_result(tmp_path, 6, slice(2, 5))
    derived = tmp_path / ("scan.dehazed.dcm" if what == "tissue" else "scan.dehazed.haze.dcm")
    with open_dicom(scan, frames=slice(2, 5)) as opened, DicomWriter(derived, opened, what=what) as writer:
        writer.append(lowered(opened.read(0, 3)))
    roi = drawn(tmp_path / "r.json", WALL | {"frames": [3]}, CAVITY)  # the result's second frame
    assert converted(result, roi, tmp_path / "seg.dcm").exit_code == 0
    seg, image = pydicom.dcmread(tmp_path / "seg.dcm"), pydicom.dcmread(derived)
    for group in seg.PerFrameFunctionalGroupsSequence:  # as drawn in a viewer that shows the derived image
        source = group.DerivationImageSequence[0].SourceImageSequence[0]
        source.ReferencedSOPInstanceUID = image.SOPInstanceUID
        source.ReferencedFrameNumber -= 2
    seg.save_as(tmp_path / "on-derived.dcm")
    known = read_regions(roi, (3, 64, 64), 2)
    for name in ("seg.dcm", "on-derived.dcm"):
        found = read_regions(tmp_path / name, (3, 64, 64), 2, result=result)
        assert np.array_equal(masks(found), masks(known))
        out = tmp_path / f"{name}.h5"
        assert converted(result, tmp_path / name, out).exit_code == 0
    assert (tmp_path / "seg.dcm.h5").read_bytes() == (tmp_path / "on-derived.dcm.h5").read_bytes()

    source.ReferencedSOPInstanceUID = "1.2.3"
    seg.save_as(tmp_path / "two.dcm")
    with pytest.raises(InputError, match="a DICOM Segmentation of frames of 2 images; expected one"):
        read_regions(tmp_path / "two.dcm", (3, 64, 64), 2, result=result)


@pytest.mark.parametrize("suffix", [".png", ".h5"])
@pytest.mark.parametrize("roles", [("tissue", "haze", "faint"), ("faint",)])
def test_faint_walls_come_back_from_labels_without_being_named(tmp_path, suffix, roles):
    make_result(tmp_path / "a.dehazed.h5")
    wall = {"name": "lateral", "role": "faint", "polygon": [[21, 5], [25, 5], [25, 35], [21, 35]]}
    roi = drawn(tmp_path / "r.json", *(each for each in [*REGIONS["regions"], wall] if each["role"] in roles))
    out = tmp_path / f"labels{suffix}"
    assert converted(tmp_path / "a.dehazed.h5", roi, out).exit_code == 0
    found = masks(read_regions(out, SHAPE))
    assert np.array_equal(found, masks(read_regions(roi, SHAPE))) and found[2].sum() == 5 * 4 * 30


def test_labels_whose_faint_walls_are_in_other_frames_serve_a_result_of_some(tmp_path):
    make_result(tmp_path / "a.dehazed.h5", shape=(4, 64, 64), geometry=Cartesian())
    roi, out = drawn(tmp_path / "r.json", WALL, CAVITY, THIN | {"frames": [3]}), tmp_path / "labels.h5"
    assert converted(tmp_path / "a.dehazed.h5", roi, out).exit_code == 0
    part = {"first_frame": 1, "source_frames": 4}
    assert np.array_equal(masks(read_regions(out, (2, 64, 64), **part)), masks(read_regions(roi, (2, 64, 64), **part)))
