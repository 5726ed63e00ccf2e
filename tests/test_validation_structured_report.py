"""``usdehaze validate --sr``: the figures as a DICOM structured report of the source's patient and study."""

import json
import shutil
import subprocess

import numpy as np
import pydicom
import pytest
from _dicom import SENTINEL, region, write_dicom
from _dicom_results import complaints, lowered
from _scans import fan_frames, write
from click.testing import CliRunner

import usdehaze
from usdehaze.cli import main
from usdehaze.io.dicom import DicomWriter, open_dicom
from usdehaze.io.result import ResultWriter

highdicom = pytest.importorskip("highdicom", reason="the extra report is not installed")

ROIS = [
    {"name": "QUILLFEATHER", "role": "tissue", "frames": [1, 2], "polygon": [[25, 20], [31, 20], [31, 40], [25, 40]]},
    {"name": "cavity", "role": "haze", "polygon": [[34, 20], [42, 20], [42, 40], [34, 40]]},
]
COUNTED = ("fewest_pixels", "most_pixels")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A DICOM scan of frames 0 to 3, and beside it a result and a derived image of its frames 1 to 3, and regions."""
    folder = tmp_path_factory.mktemp("report")
    who = {"PatientName": "QUILLFEATHER^Zoë", "PatientWeight": "61.5"}
    scan = write_dicom(folder / "scan.dcm", fan_frames(4), regions=[region()], **who)
    with (
        open_dicom(scan, frames=slice(1, 4)) as opened,
        ResultWriter(folder / "scan.dehazed.h5", opened) as result,
        DicomWriter(folder / "scan.dehazed.dcm", opened) as derived,
    ):
        part = lowered(opened.read(0, 3), posterior="späth sha256:00")
        part.tissue[:, :, 33:] = np.maximum(part.tissue[:, :, 33:] - 5, -60)
        result.append(part)
        derived.append(part)
    (folder / "rois.json").write_text(json.dumps({"regions": ROIS}))
    return folder


@pytest.fixture(scope="module")
def reported(original):
    """The same with the report, and the figures as Metrics JSON."""
    done = validate(original, "--roi", original / "rois.json")
    assert done.exit_code == 0, done.output
    return original


@pytest.fixture
def made(original, tmp_path):
    """The scan, result and derived image, to be changed."""
    for name in ("scan.dcm", "scan.dehazed.h5", "scan.dehazed.dcm"):
        shutil.copy(original / name, tmp_path)
    return tmp_path


def validate(folder, *more, result="scan.dehazed.h5"):
    words = [
        "validate",
        str(folder / result),
        "--quiet",
        "--json",
        str(folder / "m.json"),
        "--sr",
        str(folder / "r.dcm"),
    ]
    return CliRunner().invoke(main, [*words, *map(str, more)])


def groups_of(path):
    """(finding, what it is of) to the group of measurements, as highdicom reads it."""
    groups = highdicom.sr.srread(path).content.get_image_measurement_groups()
    return {(group.finding_type.value, group.tracking_identifier.split(", ")[1]): group for group in groups}


def figures_of(group):
    return {
        (m.name.value, None if m.derivation is None else m.derivation.value): (m.value, m.unit.value)
        for m in group.get_measurements()
    }


def texts_in(items):
    """Every text of a report's content, its codes' meanings too."""
    for item in items:
        yield from (str(item.get(keyword, "")) for keyword in ("TextValue", "UID"))
        codes = ("ConceptNameCodeSequence", "ConceptCodeSequence")
        yield from (code.CodeMeaning for keyword in codes for code in item.get(keyword, []))
        yield from texts_in(item.get("ContentSequence", []))


def test_the_report_holds_the_figures_of_the_metrics_json_with_roles_units_and_references(reported):
    summary, groups = json.loads((reported / "m.json").read_text())["summary"], groups_of(reported / "r.dcm")
    assert {key for key in groups if "image" not in key[0]} == {
        *(("regions_both", part) for part in ("input", "output", "change")),
        *((f"region_{role}", part) for role in ("tissue", "haze") for part in ("input", "output", "change")),
    }
    before, after, change = (figures_of(groups["regions_both", part]) for part in ("input", "output", "change"))
    assert before["gcnr", "373098007"] == (pytest.approx(summary["gcnr"]["input"], abs=1e-6), "1")
    assert after["contrast_db", "373098007"] == (pytest.approx(summary["contrast_db"]["tissue"], abs=1e-6), "dB")
    assert change["gcnr", "373098007"][0] > 0.05
    assert change["gcnr", "373098007"][0] == pytest.approx(summary["gcnr"]["delta"], abs=1e-6)
    ends = [change["gcnr", end][0] for end in ("ci95_low", "ci95_high")]
    assert ends == pytest.approx(summary["gcnr"]["ci95"], abs=1e-6)
    shift = figures_of(groups["region_tissue", "change"])
    assert shift["tissue_shift_db", "373098007"] == (pytest.approx(-6, abs=0.5), "dB")
    assert shift["most_pixels", None] == (120, "{pixels}")
    written = {key[0] for group in groups.values() for key in figures_of(group)} - set(COUNTED)
    assert written == set(summary)  # every figure, whatever it is of

    scan, derived = (pydicom.dcmread(reported / name) for name in ("scan.dcm", "scan.dehazed.dcm"))
    sources = {
        part: {
            image.referenced_sop_instance_uid: list(image.referenced_frame_numbers)
            for image in groups["regions_both", part].source_images
        }
        for part in ("input", "output", "change")
    }
    assert sources["input"] == {scan.SOPInstanceUID: [2, 3]} and sources["output"] == {derived.SOPInstanceUID: [1, 2]}
    assert sources["change"] == sources["input"] | sources["output"]
    assert groups["regions_both", "input"].method.value == "regions_given"


def test_every_group_refers_to_the_frames_that_its_own_region_was_measured_in(made):
    faint = {"name": "wall", "role": "faint", "frames": [3], "polygon": [[30, 14], [34, 14], [34, 20], [30, 20]]}
    (made / "rois.json").write_text(json.dumps({"regions": [*ROIS, faint]}))
    done = validate(made, "--roi", made / "rois.json")
    assert done.exit_code == 0, done.output
    groups = groups_of(made / "r.dcm")
    numbers = {key: [list(i.referenced_frame_numbers) for i in group.source_images] for key, group in groups.items()}
    assert numbers["regions_both", "change"] == [[2, 3], [1, 2]] and numbers["region_haze", "input"] == [[2, 3]]
    assert numbers["region_faint", "change"] == [[4], [3]]
    assert "eroded" not in " ".join(texts_in(pydicom.dcmread(made / "r.dcm").ContentSequence))


def test_the_report_says_that_regions_were_eroded(made):
    (made / "rois.json").write_text(json.dumps({"regions": ROIS}))
    assert validate(made, "--roi", made / "rois.json", "--margin", "1").exit_code == 0
    assert "regions eroded by 1 pixels" in list(texts_in(pydicom.dcmread(made / "r.dcm").ContentSequence))


def test_the_report_is_of_the_sources_patient_and_says_who_made_it_and_how(reported):
    report, scan = pydicom.dcmread(reported / "r.dcm"), pydicom.dcmread(reported / "scan.dcm")
    for keyword in ("PatientName", "PatientID", "PatientWeight", "StudyInstanceUID", "StudyDate", "AccessionNumber"):
        assert report[keyword].value == scan[keyword].value
    raw = b"QUILLFEATHER^Zo\xeb"
    assert raw in (reported / "r.dcm").read_bytes() and "Zoë" in str(report.PatientName)
    assert (report.Modality, report.Manufacturer, report.SoftwareVersions) == ("SR", "usdehaze", usdehaze.__version__)
    assert report.SeriesInstanceUID != scan.SeriesInstanceUID and report.SeriesNumber == 3901
    text = "\n".join(texts_in(report.ContentSequence))
    assert "QUILLFEATHER" not in text and SENTINEL not in text and "scan.dcm" not in text
    assert "posterior sp?th sha256:00" in text and "caution 0.5" in text and "usdehaze gcnr" in text
    assert "overlap of the histograms" in text and report.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    [study] = report.CurrentRequestedProcedureEvidenceSequence
    evidence = {
        image.ReferencedSOPInstanceUID for of in study.ReferencedSeriesSequence for image in of.ReferencedSOPSequence
    }
    assert evidence == {scan.SOPInstanceUID, pydicom.dcmread(reported / "scan.dehazed.dcm").SOPInstanceUID}


@pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="dicom3tools are not installed")
def test_other_tools_find_nothing_wrong_with_the_report(reported):
    assert complaints(reported / "r.dcm") == set()
    if shutil.which("dsrdump"):
        command = ["dsrdump", reported / "r.dcm"]
        dumped = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        assert dumped.returncode == 0 and "gCNR" in dumped.stdout and dumped.stderr == ""


def test_without_regions_the_figures_are_of_the_whole_image_and_without_a_derived_image_of_the_source_alone(made):
    (made / "scan.dehazed.dcm").unlink()
    assert validate(made).exit_code == 0
    groups = groups_of(made / "r.dcm")
    assert set(groups) == {("image", "change")} and groups["image", "change"].method is None
    [image] = groups["image", "change"].source_images
    assert image.referenced_sop_instance_uid == "1.2.3.4.5.6" and list(image.referenced_frame_numbers) == [2, 3, 4]


def test_a_derived_image_of_another_run_is_not_referred_to(made):
    with open_dicom(made / "scan.dcm") as opened, DicomWriter(made / "scan.dehazed.dcm", opened, overwrite=True) as out:
        out.append(lowered(opened.read(0, 4), 3))
    assert validate(made).exit_code == 0
    assert len(groups_of(made / "r.dcm")["image", "change"].source_images) == 1


def refused(folder, *more, result="scan.dehazed.h5"):
    """The one line of a run that fails before it measures and leaves no report."""
    done = validate(folder, *more, result=result)
    assert done.exit_code in (1, 2) and done.stderr.count("\n") == 1 and not (folder / "r.dcm").exists()
    assert not (folder / "m.json").exists()
    return done.stderr


def test_no_input_is_replaced_by_a_report(made):
    for name in ("scan.dcm", "scan.dehazed.h5", "scan.dehazed.dcm"):
        before = (made / name).read_bytes()
        done = CliRunner().invoke(main, ["validate", str(made / "scan.dehazed.h5"), "--sr", str(made / name)])
        assert done.exit_code == 1 and "is what it is made from" in done.stderr
        assert (made / name).read_bytes() == before


def test_a_name_keeps_its_bytes_whatever_the_character_set_says(tmp_path):
    path = write_dicom(tmp_path / "scan.dcm", fan_frames(1), regions=[region()], PatientName="QUILLFEATHER^Zoë")
    path.write_bytes(path.read_bytes().replace(b"ISO_IR 100", b"ISO_IR 192"))
    with open_dicom(path) as opened, ResultWriter(tmp_path / "scan.dehazed.h5", opened) as result:
        result.append(lowered(opened.read(0, 1)))
    assert validate(tmp_path).exit_code == 0
    assert b"QUILLFEATHER^Zo\xeb" in (tmp_path / "r.dcm").read_bytes()


def test_reports_without_a_source_of_known_identity_are_refused_in_one_line(made):
    elsewhere = made / "moved.dcm"
    shutil.move(made / "scan.dcm", elsewhere)
    assert "name it with --source FILE" in refused(made)
    assert "is not there" in refused(made, "--source", made / "none.dcm")
    assert "is not the file that scan.dehazed.h5 was made of" in refused(made, "--source", made / "scan.dehazed.dcm")
    assert "belongs to --sr" in CliRunner().invoke(main, ["validate", "a.h5", "--source", "a.dcm"]).stderr
    assert "one RESULT" in CliRunner().invoke(main, ["validate", "a.h5", "b.h5", "--sr", "a.dcm"]).stderr
    assert validate(made, "--source", elsewhere).exit_code == 0


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"PatientName": "", "PatientID": None}, "names no patient"),
        ({"StudyInstanceUID": None}, "has no Study Instance UID"),
    ],
)
def test_images_that_do_not_say_whose_they_are_are_refused(tmp_path, attributes, message):
    scan = write_dicom(tmp_path / "scan.dcm", fan_frames(1), regions=[region()], **attributes)
    with open_dicom(scan) as opened, ResultWriter(tmp_path / "scan.dehazed.h5", opened) as result:
        result.append(lowered(opened.read(0, 1)))
    assert message in refused(tmp_path)


def test_results_of_other_files_are_refused(tmp_path):
    from usdehaze import open_scan

    with open_scan(write(tmp_path / "scan.h5", {"cine": fan_frames(2)})) as opened:
        with ResultWriter(tmp_path / "scan.dehazed.h5", opened) as result:
            result.append(lowered(opened.read(0, 2)))
    assert "was not made of a DICOM image" in refused(tmp_path)


def test_single_images_are_referred_to_without_frame_numbers(tmp_path):
    scan = write_dicom(tmp_path / "scan.dcm", fan_frames(1), regions=[region()])
    with open_dicom(scan) as opened, ResultWriter(tmp_path / "scan.dehazed.h5", opened) as result:
        result.append(lowered(opened.read(0, 1)))
    assert validate(tmp_path).exit_code == 0
    [image] = groups_of(tmp_path / "r.dcm")["image", "change"].source_images
    assert image.referenced_frame_numbers is None
    assert np.isfinite(
        [value for value, _ in figures_of(groups_of(tmp_path / "r.dcm")["image", "change"]).values()]
    ).all()


def test_attributes_that_an_object_needs_are_there_where_the_image_lacks_them(tmp_path):
    lacking = {"ReferringPhysicianName": None, "LossyImageCompression": "01", "NumberOfFrames": 1, "SeriesNumber": None}
    scan = write_dicom(tmp_path / "scan.dcm", fan_frames(1), regions=[region()], **lacking)
    with open_dicom(scan) as opened, ResultWriter(tmp_path / "scan.dehazed.h5", opened) as result:
        result.append(lowered(opened.read(0, 1)))
    assert validate(tmp_path).exit_code == 0
    report = pydicom.dcmread(tmp_path / "r.dcm")
    assert not report.ReferringPhysicianName and report.SeriesNumber == 901
    [image] = groups_of(tmp_path / "r.dcm")["image", "change"].source_images
    assert image.referenced_frame_numbers is None  # the class is of single images
    if shutil.which("dciodvfy"):
        assert complaints(tmp_path / "r.dcm") == set()
