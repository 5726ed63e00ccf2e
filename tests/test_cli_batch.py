"""``usdehaze process`` on folders: resuming, the log of a batch, and results that belong to another scan."""

import csv
import errno
import hashlib
import io
import json
import os
import subprocess
import sys

import h5py
import pytest
from _dicom import dataset, save, write_dicom
from _scans import fan_frames, write
from _tiny_priors import write_tiny_posterior
from PIL import Image
from pydicom.dataset import Dataset
from test_cli_process import failed, model, run  # noqa: F401  (a fixture)

from usdehaze.io import list_scans, read_result
from usdehaze.io.detect import sha256_of

FRAMES = fan_frames(2)


@pytest.fixture
def study(tmp_path):
    for name in ("p1/a.h5", "p1/b.h5", "p2/a.h5"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / "in" / name, {"cine": FRAMES})
    return tmp_path / "in"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_folder_is_gone_on_with(tmp_path, model, study):  # noqa: F811
    out = tmp_path / "out"
    (study / "p1" / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n broken")
    done = run("process", study, "-o", out, "--skip-existing")
    assert done.exit_code == 1 and "3 scans dehazed, 1 failed, 0 skipped" in done.stdout
    (out / "p1" / "b.dehazed.h5").unlink()
    before = (out / "p1" / "a.dehazed.h5").stat().st_mtime_ns
    done = run("process", study, "-o", out, "--skip-existing")
    assert done.exit_code == 1 and "1 scans dehazed, 1 failed, 2 skipped" in done.stdout
    assert (out / "p1" / "a.dehazed.h5").stat().st_mtime_ns == before and (out / "p1" / "b.dehazed.h5").exists()
    failed(2, "process", study, "--skip-existing", "--overwrite", names=["exclude each other"])


def test_a_scan_that_changed_and_a_set_that_is_not_whole_are_done_again(tmp_path, model, study):  # noqa: F811
    result = study / "p1" / "a.dehazed.h5"
    run("process", study / "p1" / "a.h5")
    first = read_result(result).cine.source.sha256
    write(study / "p1" / "a.h5", {"cine": FRAMES[::-1]})
    later = result.stat().st_mtime_ns + 10**9
    os.utime(study / "p1" / "a.h5", ns=(later, later))
    done = run("process", study / "p1" / "a.h5", "--skip-existing")
    assert done.exit_code == 0 and read_result(result).cine.source.sha256 != first
    os.utime(study / "p1" / "a.h5", ns=(later + 10**10, later + 10**10))  # touched, but the same
    assert "there already" in run("process", study / "p1" / "a.h5", "--skip-existing").stdout
    done = run("process", study / "p1" / "a.h5", "--skip-existing", "--preview", "png")
    assert done.exit_code == 0 and (study / "p1" / "a.dehazed.png").exists()


def test_a_scan_that_was_replaced_by_an_older_one_is_done_again(tmp_path, model, study):  # noqa: F811
    scan, images = study / "p1" / "a.h5", study / "p1" / "images"
    images.mkdir()
    for index, frame in enumerate(fan_frames(3)):
        Image.fromarray(frame).save(images / f"{index}.png")
    run("process", study)
    write(study / "other", {"cine": FRAMES[::-1]})
    os.utime(study / "other", ns=(10**18, 10**18))  # as cp -p and rsync -t leave it
    os.replace(study / "other", scan)
    (images / "2.png").unlink()
    done = run("process", study, "--skip-existing")
    assert done.exit_code == 0 and "2 scans dehazed, 0 failed, 2 skipped" in done.stdout
    assert read_result(study / "p1" / "a.dehazed.h5").cine.source.sha256 == sha256_of(scan)
    assert len(read_result(study / "p1" / "images.dehazed.h5").tissue) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--seed", "3"), "seed 0, now 3"),
        (("--strength", "0.5"), "strength 1, now 0.5"),
        (("--caution", "0.7"), "caution "),
        (("--frames", "1:2"), "frames 0:2 of 2, now 1:2"),
        (("--frames", "0:1"), "frames 0:2 of 2, now 0:1"),
        (("--dynamic-range", "50"), "source options none, now --dynamic-range 50"),
        (("--levels", "200:0"), "source options none, now --levels 200:0"),
        (("--rectangle",), "source options none, now --rectangle"),
    ],
)
def test_a_result_of_other_settings_is_made_anew(tmp_path, model, study, options, told):  # noqa: F811
    scan, result = study / "p1" / "a.h5", study / "p1" / "a.dehazed.h5"
    run("process", scan)
    for given in (options, ()):  # and back
        done = run("process", scan, "--skip-existing", *given)
        assert done.exit_code == 0 and "made anew" in done.stdout, done.stdout
        assert told in done.stdout or not given
        before = result.stat().st_mtime_ns
        assert "there already" in run("process", scan, "--skip-existing", *given).stdout
        assert result.stat().st_mtime_ns == before
    assert len(read_result(result).cine.frames) == len(FRAMES)


def test_frames_are_the_same_however_they_are_asked_for(tmp_path, model, study):  # noqa: F811
    run("process", study / "p1" / "a.h5", "--frames", "0:2")
    for options in ((), ("--frames", ":9"), ("--frames", "0:")):
        assert "there already" in run("process", study / "p1" / "a.h5", "--skip-existing", *options).stdout


def test_a_result_that_does_not_say_of_how_many_frames_it_is_is_made_anew(tmp_path, model, study):  # noqa: F811
    run("process", study / "p1" / "a.h5")
    with h5py.File(study / "p1" / "a.dehazed.h5", "a") as file:  # as of older versions
        del file.attrs["source_frames"], file.attrs["source_options"]
    done = run("process", study / "p1" / "a.h5", "--skip-existing")
    assert "(frames 0:2 of an unknown number, now all): made anew" in done.stdout


def test_nothing_is_loaded_where_nothing_is_left_to_do(tmp_path, study):
    write_tiny_posterior(tmp_path / "tiny.safetensors")
    options = (
        "-o",
        tmp_path / "out",
        "--skip-existing",
        "--posterior",
        tmp_path / "tiny.safetensors",
        "--device",
        "cpu",
    )
    assert run("process", study, *options).exit_code == 0
    code = "import sys; from usdehaze.cli import main; main(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
    again = subprocess.run([sys.executable, "-c", code, "process", study, *options], capture_output=True, text=True)
    assert again.returncode == 0 and "0 scans dehazed, 0 failed, 3 skipped" in again.stdout, again.stderr
    assert not {"torch", "usdehaze.dehazing.dehazer"} & set(again.stdout.split())
    card = tmp_path / "tiny.json"
    card.write_text(card.read_text().replace("tiny-posterior", "another"))
    other = run("process", study / "p1", *options[2:], "-o", tmp_path / "out" / "p1")
    assert "posterior tiny-posterior sha256:" in other.stdout and "now another sha256:" in other.stdout


def test_a_network_that_cannot_be_used_is_no_fault_of_a_scan(tmp_path, study):
    write_tiny_posterior(tmp_path / "tiny.safetensors")
    given = ("--posterior", tmp_path / "tiny.safetensors", "--device", "cpu", "--skip-existing")
    assert run("process", study, *given).exit_code == 0
    (tmp_path / "tiny.json").write_text("{}")
    failed(1, "process", study, *given, names=["tiny.safetensors", "not a usable posterior"])


@pytest.mark.parametrize("option", ["--overwrite", "--skip-existing"])
def test_the_result_of_another_scan_is_never_replaced(tmp_path, model, option):  # noqa: F811
    write(tmp_path / "a.h5", {"cine": FRAMES})
    assert run("process", tmp_path / "a.h5").exit_code == 0
    kept = sha256_of(tmp_path / "a.dehazed.h5")
    write_dicom(tmp_path / "a.dcm", FRAMES[:1])
    for other in ("a.dcm",):
        failed(1, "process", tmp_path / other, option, names=["a.dehazed.h5", "result of another scan, a.h5"])
    assert sha256_of(tmp_path / "a.dehazed.h5") == kept
    assert run("process", tmp_path, "--overwrite").exit_code == 0  # together, each has its own
    assert (tmp_path / "a.dcm.dehazed.h5").exists() and (tmp_path / "a.h5.dehazed.h5").exists()


def test_the_log_has_a_line_a_file_and_becomes_a_table(tmp_path, model, study):  # noqa: F811
    (study / "p1" / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n broken")
    (study / "gone").symlink_to("nowhere")
    log = tmp_path / "logs" / "batch.jsonl"
    done = run("process", study, "-o", tmp_path / "out", "--log", log)
    assert done.exit_code == 1 and "3 scans dehazed, 2 failed" in done.stdout
    lines = {line["scan"]: line for line in lines_of(log)}
    assert {line["outcome"] for line in lines.values()} == {"dehazed", "failed"} and len(lines) == 5
    assert lines[str(study / "gone")]["error"].endswith("is a link that leads nowhere")
    assert "cannot be read as HDF5" in lines[str(study / "p1" / "broken.h5")]["error"]
    one = lines[str(study / "p2" / "a.h5")]
    source = study / "p2" / "a.h5"
    assert one["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest() and one["frames"] == 2
    assert "Dynamic range assumed to be 60 dB." in one["notes"] and one["seconds"] >= 0
    result = tmp_path / "out" / "p2" / "a.dehazed.h5"
    assert one["results"] == {str(result): sha256_of(result)}
    with open(log.with_suffix(".csv"), newline="") as file:
        rows = {row["scan"]: row for row in csv.DictReader(file)}
    assert {scan: row["outcome"] for scan, row in rows.items()} == {s: line["outcome"] for s, line in lines.items()}
    again = run("process", study, "-o", tmp_path / "out", "--log", log, "--skip-existing")
    assert "0 scans dehazed, 2 failed, 3 skipped" in again.stdout and len(lines_of(log)) == 10
    with open(log.with_suffix(".csv"), newline="") as file:
        outcomes = {row["scan"]: row["outcome"] for row in csv.DictReader(file)}
    assert outcomes == {scan: row["outcome"] for scan, row in rows.items()}


def test_a_line_that_was_cut_off_costs_no_other(tmp_path, model, study):  # noqa: F811
    log = tmp_path / "batch.jsonl"
    run("process", study / "p1" / "a.h5", "-o", tmp_path / "x", "--log", log)
    log.write_text(log.read_text() + '{"scan": "p1/b.h5", "outc')  # as a full disk leaves it
    run("process", study / "p2" / "a.h5", "-o", tmp_path / "y", "--log", log)
    with open(log.with_suffix(".csv"), newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["scan"] for row in rows] == [str(study / name / "a.h5") for name in ("p1", "p2")]


def test_the_log_holds_no_attribute_of_a_patient_and_no_formula(tmp_path, model, monkeypatch):  # noqa: F811
    (tmp_path / "in").mkdir()
    write_dicom(tmp_path / "in" / "=cmd.dcm", FRAMES, PatientName="Doe^Jane", PatientID="PID-77")
    monkeypatch.chdir(tmp_path / "in")
    assert run("process", "=cmd.dcm", "--log", tmp_path / "log.jsonl").exit_code == 0
    text = (tmp_path / "log.jsonl").read_text() + (tmp_path / "log.csv").read_text()
    assert "Doe" not in text and "PID-77" not in text
    assert "\n'=cmd.dcm,dehazed" in (tmp_path / "log.csv").read_text()


def test_nothing_but_a_log_is_written_to(tmp_path, model, study):  # noqa: F811
    scan = study / "p1" / "a.h5"
    before = sha256_of(scan)
    failed(2, "process", scan, "--log", scan, names=["--log"])
    failed(2, "process", scan, "--log", study / "p1" / "a.dehazed.h5", names=["--log"])
    (tmp_path / "mine.csv").write_text("my own table")
    failed(2, "process", scan, "--log", tmp_path / "mine.jsonl", names=["mine.csv"])
    failed(2, "process", scan, "--log", tmp_path / "mine.csv", names=["mine.csv"])
    (tmp_path / "list.jsonl").write_text('{"id": 1}\n')
    failed(2, "process", scan, "--log", tmp_path / "list.jsonl", names=["list.jsonl"])
    assert sha256_of(scan) == before and (tmp_path / "mine.csv").read_text() == "my own table"


class FullDisk(io.StringIO):
    """A file on a full disk: what it could not write it tries to write again as it is closed."""

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self):
        self.flush()


def test_a_log_on_a_full_disk_is_named(tmp_path, model, study, monkeypatch):  # noqa: F811
    monkeypatch.setattr("usdehaze.cli.batch.open", lambda *args, **options: FullDisk(), raising=False)
    log = tmp_path / "log.jsonl"
    failed(1, "process", study / "p1" / "a.h5", "--log", log, names=[f"{log}: cannot be written (No space left"])


def directory(folder, files):
    """A DICOMDIR of (file ID components, SOP class) with a patient's record before them."""
    ds = dataset(FRAMES[:1], SOPClassUID="1.2.840.10008.1.3.10")
    del ds.PixelData
    ds.DirectoryRecordSequence = []
    for parts, kind in [(None, None), *files]:
        record = Dataset()
        record.DirectoryRecordType = "IMAGE" if parts else "PATIENT"
        if parts:
            record.ReferencedFileID, record.ReferencedSOPClassUIDInFile = parts, kind
        ds.DirectoryRecordSequence.append(record)
    save(folder / "DICOMDIR", ds)
    return folder / "DICOMDIR"


def test_a_dicomdir_stands_for_the_ultrasound_that_it_lists(tmp_path, model):  # noqa: F811
    cd = tmp_path / "cd"
    (cd / "images").mkdir(parents=True)
    for name in ("IM1", "IM2", "CT1"):
        write_dicom(cd / "images" / name, FRAMES)
    us, ct = "1.2.840.10008.5.1.4.1.1.3.1", "1.2.840.10008.5.1.4.1.1.2"
    path = directory(cd, [(["IMAGES", "IM2"], us), (["IMAGES", "IM1"], us), (["IMAGES", "CT1"], ct)])
    assert list_scans([path]) == [cd / "images" / "IM2", cd / "images" / "IM1"]
    assert run("process", path, "-o", tmp_path / "out").exit_code == 0
    assert sorted(p.name for p in (tmp_path / "out" / "images").glob("*.h5")) == ["IM1.dehazed.h5", "IM2.dehazed.h5"]


def test_a_dicomdir_that_lists_nothing_or_what_is_not_there(tmp_path, model):  # noqa: F811
    us = "1.2.840.10008.5.1.4.1.1.3.1"
    failed(1, "process", directory(tmp_path, []), names=["DICOMDIR that lists no ultrasound image"])
    write_dicom(tmp_path / "IM1", FRAMES)
    path = directory(tmp_path, [(["IM1"], us), (["IM9"], us), (["NOT", "IM1"], us)])
    done = run("process", path)
    assert done.exit_code == 1 and done.stderr.count("no such file") == 2 and "1 scans dehazed" in done.stdout
