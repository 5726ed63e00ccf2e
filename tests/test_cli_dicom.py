"""``usdehaze`` on DICOM files: which files it makes, and that no word of a patient leaves them."""

import logging
import struct
import warnings
from types import SimpleNamespace

import numpy as np
import pydicom
import pytest
from _dicom import SENTINEL, dataset, region, save, write_dicom
from _dicom_results import lowered
from _scans import fan_frames, write
from click.testing import CliRunner

import usdehaze.dehazing.dehazer
from usdehaze.cli import main
from usdehaze.io import list_scans, open_cine, read_result

WORDS = ("SENTINEL", "19010203", "19870605", "040302", "S-ID", "A-NUMBER", "1.2.3.4", "ABDOMINAL", "DOCTOR")


@pytest.fixture
def model(monkeypatch):
    """Stands in for the priors: takes 6 dB off the tissue."""
    stand_in = SimpleNamespace(group=1, dehaze=lambda cine, progress=None: lowered(cine))
    monkeypatch.setattr(usdehaze.dehazing.dehazer.Dehazer, "from_pretrained", lambda **_: stand_in)


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_dicom_file_gives_a_result_and_a_derived_image(tmp_path, model):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(3))
    before = path.read_bytes()
    done = run("process", path, "-o", tmp_path / "out", "--save-haze", "--transfer-syntax", "jpeg-ls")
    assert done.exit_code == 0, done.output
    assert files_in(tmp_path / "out") == ["a.dehazed.dcm", "a.dehazed.h5", "a.dehazed.haze.dcm"]
    assert all(name in done.stdout for name in files_in(tmp_path / "out"))
    stored = read_result(tmp_path / "out" / "a.dehazed.h5")
    assert stored.attrs["source_units"] == "8-bit" and stored.attrs["source_dataset"] == "PixelData"
    ds = pydicom.dcmread(tmp_path / "out" / "a.dehazed.dcm")
    assert ds.file_meta.TransferSyntaxUID == pydicom.uid.JPEGLSLossless
    np.testing.assert_allclose(ds.pixel_array, (stored.tissue / 60 + 1) * 255, atol=0.501)
    assert path.read_bytes() == before
    assert run("process", path, "-o", tmp_path / "out").exit_code == 1  # they exist
    assert run("process", path, "-o", tmp_path / "out", "--overwrite").exit_code == 0


def test_derived_images_are_not_dehazed_again_whatever_they_are_called(tmp_path, model):
    """As an archive gives a study back: the source and what was made of it under numbers."""
    run("process", write_dicom(tmp_path / "a.dcm", fan_frames(3)), "-o", tmp_path / "made", "--save-haze")
    study = tmp_path / "study"
    study.mkdir()
    for number, path in enumerate([tmp_path / "a.dcm", *sorted((tmp_path / "made").glob("*.dcm"))], 1):
        path.rename(study / f"IM000{number}.dcm")
    done = run("process", study, "-o", tmp_path / "out")
    assert done.exit_code == 0 and files_in(tmp_path / "out") == ["IM0001.dehazed.dcm", "IM0001.dehazed.h5"]
    assert done.stderr.count("made by usdehaze") == 1
    assert "IM0002.dcm and 1 more: made by usdehaze, left out" in done.stderr
    named = run("process", study / "IM0002.dcm", "-o", tmp_path / "out")
    assert named.exit_code == 1 and named.stderr.count("\n") == 1 and "go on with --force" in named.stderr
    forced = run("process", study / "IM0002.dcm", "-o", tmp_path / "out", "--force")
    assert forced.exit_code == 0 and "of another run" not in forced.stderr
    assert "was made by usdehaze" in forced.stderr
    assert "made by usdehaze" not in run("process", study / "IM0001.dcm", "-o", tmp_path / "out", "--overwrite").stderr


def test_derived_images_that_were_deflated_are_not_dehazed_again(tmp_path, model):
    run("process", write_dicom(tmp_path / "a.dcm", fan_frames(3)), "-o", tmp_path / "made")
    ds = pydicom.dcmread(tmp_path / "made" / "a.dehazed.dcm")
    again = save(tmp_path / "b.dcm", ds, pydicom.uid.DeflatedExplicitVRLittleEndian)
    assert list_scans([tmp_path]) == [tmp_path / "a.dcm"]
    named = run("process", again, "-o", tmp_path / "out")
    assert named.exit_code == 1 and "go on with --force" in named.stderr
    again.write_bytes(again.read_bytes()[:600] + bytes(600))  # damaged
    assert run("process", again, "-o", tmp_path / "out").exit_code == 1


def test_colour_comes_out_of_the_result_file_as_it_went_in(tmp_path, model):
    rgb = np.repeat(fan_frames(2)[..., None], 3, axis=3)
    rgb[:, 20:30, 25:35] = (250, 100, 0)
    run("process", write_dicom(tmp_path / "a.dcm", rgb, "RGB"))
    stored = read_result(tmp_path / "a.dehazed.h5")
    assert np.array_equal(stored.tissue[:, 20:30, 25:35], stored.input[:, 20:30, 25:35])
    assert (stored.haze[:, 20:30, 25:35] == -60).all()
    assert (stored.tissue < stored.input).mean() > 0.3
    assert open_cine(tmp_path / "a.dcm").tissue_mask.shape == (2, 64, 64)


def test_part_of_the_frames(tmp_path, model):
    run("process", write_dicom(tmp_path / "a.dcm", fan_frames(5)), "--frames", "1:3")
    ds = pydicom.dcmread(tmp_path / "a.dehazed.dcm")
    assert ds.NumberOfFrames == 2 and ds.SourceImageSequence[0].ReferencedFrameNumber == [2, 3]


def test_scans_of_other_kinds_give_no_dicom(tmp_path, model):
    done = run("process", write(tmp_path / "a.h5", {"x": fan_frames()}), "--save-haze")
    assert done.exit_code == 0 and files_in(tmp_path) == ["a.dehazed.h5", "a.h5"]


def test_folders_are_searched_by_content(tmp_path, model):
    study = tmp_path / "study" / "series"
    study.mkdir(parents=True)
    write_dicom(study / "IM0001", fan_frames(1))
    write_dicom(study / "IM0002", fan_frames(1))
    write_dicom(study / "x.dehazed.dcm", fan_frames(1))
    write_dicom(study / "x.dehazed.haze.dcm", fan_frames(1))
    directory = dataset(fan_frames(1), SOPClassUID="1.2.840.10008.1.3.10")
    save(tmp_path / "study" / "DICOMDIR", directory)
    assert [path.name for path in list_scans([tmp_path / "study"])] == ["IM0001", "IM0002"]
    done = run("process", tmp_path / "study", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert files_in(tmp_path / "out") == [f"series/IM000{i}.dehazed.{kind}" for i in "12" for kind in ("dcm", "h5")]


def test_what_holds_no_image_does_not_count_in_a_folder_and_is_refused_by_name(tmp_path, model):
    """Reports and presentation states, as most studies of the heart have them."""
    study = tmp_path / "study"
    study.mkdir()
    write_dicom(study / "IM0001", fan_frames(1))
    storage = "1.2.840.10008.5.1.4.1.1."
    for number, kind in enumerate(("88.33", "88.59", "11.1", "104.1", "9.1.1", "66", "66.4", "67"), 2):
        write_dicom(study / f"IM000{number}", fan_frames(1), SOPClassUID=storage + kind)
    done = run("process", study, "-o", tmp_path / "out")
    assert done.exit_code == 0 and "1 scans dehazed, 0 failed" in done.output, done.output
    assert run("info", study).exit_code == 0
    named = run("process", study / "IM0002", "-o", tmp_path / "out")
    assert named.exit_code == 1 and "is a DICOM file of another kind (Comprehensive SR Storage)" in named.stderr
    write_dicom(study / "IM0001", fan_frames(1), SOPClassUID=storage + "2")  # an image is told, of whatever kind
    done = run("process", study, "-o", tmp_path / "out")
    assert done.exit_code == 1 and done.stderr.count("another kind") == 1


def test_info_on_dicom(tmp_path):
    path = write_dicom(
        tmp_path / "a.dcm",
        np.random.default_rng(0).integers(60, 255, (3, 100, 120), dtype=np.uint8),
        regions=[region(20, 30, 79, 89, delta=(0.02, 0.03))],
    )
    lines = [line.strip() for line in run("info", path).stdout.splitlines()]
    for line in (
        "frames:        3",
        "geometry:      rectangle (file): rows 30 to 89, columns 20 to 79",
        "pixel spacing: 0.2 x 0.3 mm (row x column)",
        "frame rate:    25 frames/s",
        "layout:        DICOM Ultrasound Multi-frame Image Storage, Explicit VR Little Endian",
    ):
        assert line in lines, lines


@pytest.mark.parametrize("command", ["review", "validate", "verify"])
def test_who_gives_the_scan_for_its_result_is_told_the_results_name(tmp_path, command):
    done = run(command, write_dicom(tmp_path / "a.dcm", fan_frames(1)))
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert "is not an HDF5 file (DICOM); expected a result of usdehaze process, such as a.dehazed.h5" in done.stderr


@pytest.mark.parametrize("option", [("--units", "grey"), ("--dataset", "x"), ("--axes", "THW")])
def test_options_of_hdf5_are_refused(tmp_path, model, option):
    done = run("process", write_dicom(tmp_path / "a.dcm", fan_frames(1)), *option)
    assert done.exit_code == 1 and done.stderr.count("\n") == 1 and option[0] in done.stderr


def broken(tmp_path):
    """Files that go wrong in many ways, all of the same patient, whose words are everywhere."""
    made = []

    def add(ds, change=lambda content: content, syntax=pydicom.uid.ExplicitVRLittleEndian):
        path = save(tmp_path / f"{len(made):02}.dcm", ds, syntax)
        path.write_bytes(change(path.read_bytes()))
        made.append(path)

    frames = fan_frames(2)
    name = struct.pack("<HH2sH", 0x0010, 0x0010, b"PN", len(SENTINEL))
    rows = struct.pack("<HH2sH", 0x0028, 0x0010, b"US", 2)
    add(dataset(frames))
    add(dataset(frames, Modality="CT", SOPClassUID="1.2.840.10008.5.1.4.1.1.7"))
    add(dataset(frames, SOPClassUID="1.2.3.4.9"))
    add(dataset(frames, PhotometricInterpretation=SENTINEL.replace("^", " ")))
    add(dataset(frames, PixelData=None))
    add(dataset(frames, SpecificCharacterSet="SENTINEL"))
    add(dataset(frames, SeriesNumber=None))
    add(dataset(frames), lambda content: content[:1000])
    add(dataset(frames), lambda content: content[:-3000])
    add(dataset(frames), lambda content: content.replace(name, name[:4] + b"SQ\0\0"))
    add(dataset(frames), lambda content: content.replace(name, name[:4] + b"UI" + name[6:]))
    add(dataset(frames), lambda content: content.replace(name, name[:4] + b"DS" + name[6:]))
    add(dataset(frames), lambda content: content.replace(name, name[:4] + b"??" + name[6:]))
    add(dataset(frames), lambda content: content.replace(name, name[:6] + b"\xff\xff"))
    add(dataset(frames), lambda content: content.replace(rows, rows[:4] + b"LO" + rows[6:]))
    add(dataset(frames), lambda content: content.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.5\0", 1))
    add(dataset(frames), lambda content: content.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2\0\0\0", 1))
    for keyword in ("NumberOfFrames", "FrameTime", "SeriesNumber", "InstanceNumber", "StudyInstanceUID"):
        ds = dataset(frames)
        ds[keyword]._value = SENTINEL  # past pydicom's checks
        ds[keyword].VR = "LO"
        tag = struct.pack("<HH", ds[keyword].tag.group, ds[keyword].tag.element)
        add(ds, lambda content, tag=tag: content.replace(tag + b"LO", tag + b"IS"))
    return made


def test_no_word_of_a_patient_is_told(tmp_path, model, caplog):
    """Not in errors, tracebacks, warnings, logs, file names, nor in the result file."""
    (tmp_path / "in").mkdir()
    paths = broken(tmp_path / "in")
    caplog.set_level(logging.DEBUG)
    caplog.clear()  # of what making them told
    told, codes = "", []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for path in paths:
            for command in (("process", path, "-o", tmp_path / "out", "--save-haze", "--debug"), ("info", path)):
                done = run(*command)
                told += done.output + repr(done.exception)
                codes.append(done.exit_code)
        told += run("process", tmp_path / "in", "-o", tmp_path / "again").output
    told += caplog.text + " ".join(str(warning.message) for warning in caught)
    for path in files_in(tmp_path):
        told += path
        if path.endswith(".h5"):
            told += (tmp_path / path).read_bytes().decode("latin-1")
    assert set(codes) == {0, 1} and codes.count(1) >= 12
    found = [word for word in WORDS if word in told]
    assert not found, [told[max(told.index(word) - 200, 0) : told.index(word) + 50] for word in found]
    assert SENTINEL.encode() in (tmp_path / "out" / "00.dehazed.dcm").read_bytes()
