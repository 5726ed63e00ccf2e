"""Which scans a folder holds, links and names of every kind included, and what their results are called."""

import errno
import os
import subprocess
import sys

import nibabel
import numpy as np
import pytest
from _dicom import write_dicom
from _scans import fan_frames, write
from PIL import Image

from usdehaze.cli.plan import plan_jobs
from usdehaze.errors import InputError
from usdehaze.io import formats, list_results, list_scans, open_cine, read_result, write_result
from usdehaze.io.atomic import atomic
from usdehaze.io.detect import look_in, lost_in, stem_of
from usdehaze.result import Result

FRAMES = fan_frames(1)


def scan(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, {"cine": FRAMES})


def found(folder):
    return [str(path.relative_to(folder)) for path in list_scans([folder])]


def test_linked_folders_are_followed_once(tmp_path):
    scan(tmp_path / "in" / "p0" / "a.h5")
    scan(tmp_path / "store" / "p1" / "a.h5")
    (tmp_path / "in" / "p1").symlink_to(tmp_path / "store" / "p1")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "store" / "p1")
    (tmp_path / "in" / "a-p0").symlink_to("p0")
    assert found(tmp_path / "in") == ["p0/a.h5", "again/a.h5"]


def test_links_in_linked_folders_are_followed_and_cycles_end(tmp_path):
    scan(tmp_path / "b" / "deep" / "x.h5")
    (tmp_path / "b" / "up").symlink_to(tmp_path / "in")
    scan(tmp_path / "in" / "y.h5")
    (tmp_path / "in" / "b").symlink_to("../b")
    (tmp_path / "in" / "self").symlink_to(".")
    (tmp_path / "in" / "loop").symlink_to("loop")
    assert found(tmp_path / "in") == ["y.h5", "b/deep/x.h5"]
    assert list(lost_in([tmp_path / "in"])) == [tmp_path / "in" / "loop"]


def test_a_folder_given_by_a_link_is_searched(tmp_path):
    scan(tmp_path / "store" / "s" / "a.h5")
    (tmp_path / "in").symlink_to("store")
    assert found(tmp_path / "in") == ["s/a.h5"]


def test_links_that_lead_nowhere_and_folders_that_cannot_be_read_are_named(tmp_path):
    scan(tmp_path / "a.h5")
    (tmp_path / "gone.h5").symlink_to("nowhere")
    (tmp_path / "p2").symlink_to(tmp_path / "unmounted" / "p2")
    lost = lost_in([tmp_path])
    assert sorted(path.name for path in lost) == ["gone.h5", "p2"]
    assert str(lost[tmp_path / "p2"]) == f"{tmp_path / 'p2'}: is a link that leads nowhere"
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0)
        assert "cannot be read (Permission denied)" in str(lost_in([tmp_path])[tmp_path / "closed"])


def test_files_that_are_called_scans_and_are_none_are_lost_and_those_of_other_kinds_named(tmp_path):
    scan(tmp_path / "a.h5")
    write_dicom(tmp_path / "IM1", FRAMES)
    headless = (tmp_path / "IM1").read_bytes()[132:]
    others = {
        "empty.h5": b"", "page.dcm": b"<html>404", "old.MAT": bytes(99), "x.nrrd": b"NRRD0004\n", "IM2": headless,
        "notes.txt": b"hi", "P2": b"P2 of", "README": b"", "t.png": b"", "deep/er/0.png": b"", "deep/er/1.png": b"",
        "slides/x.jp2": b"\0\0\0\x0cjP  ", "y.docx": b"PK\3\4" + bytes(26) + b"[Content_Types].xml",
        ".x.h5": b"", "b.dehazed.h5": b"",
    }  # fmt: skip
    for name, content in others.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    inside = look_in(tmp_path)
    assert inside.scans == [tmp_path / "IM1", tmp_path / "a.h5"] and not inside.own
    lost = {str(path.relative_to(tmp_path)): str(error) for path, error in inside.lost.items()}
    assert sorted(lost) == ["deep/er/0.png", "empty.h5", "old.MAT", "page.dcm"]
    advice = "expected one, as its name says; mend it, or take it away"
    assert lost["empty.h5"] == f"{tmp_path / 'empty.h5'}: is no scan (empty); {advice}"
    assert "0.png: is no image (empty)" in lost["deep/er/0.png"] and "(unknown content)" in lost["page.dcm"]
    foreign = {str(path.relative_to(tmp_path)): kind for path, kind in inside.foreign.items()}
    assert sorted(foreign) == ["IM2", "slides/x.jp2", "x.nrrd"] and foreign["x.nrrd"] == "NRRD, which is not read"
    assert "without the header of a DICOM file" in foreign["IM2"]


def test_masks_beside_their_scans_are_left_out_and_told(tmp_path):
    for name in (
        "ED.nii.gz",
        "ED_gt.nii.gz",
        "es.h5",
        "es-Segmentation 2.h5",
        "seg.h5",
        "other_mask.h5",
        "esgt.h5",
    ):
        if name.endswith(".h5"):
            scan(tmp_path / name)
        else:
            nibabel.save(nibabel.Nifti1Image(FRAMES[0].T, np.eye(4)), tmp_path / name)
    inside = look_in(tmp_path)
    assert [path.name for path in inside.scans] == ["ED.nii.gz", "es.h5", "esgt.h5", "other_mask.h5", "seg.h5"]
    told = {path.name: why for path, why in inside.foreign.items()}
    assert told == dict.fromkeys(["ED_gt.nii.gz", "es-Segmentation 2.h5"], "named as the mask of another")
    assert list_scans([tmp_path / "ED_gt.nii.gz"]) == [tmp_path / "ED_gt.nii.gz"]  # by name


def test_images_beside_scans_are_told(tmp_path):
    scan(tmp_path / "a.h5")
    for name in ("0.png", "1.png", "a.dehazed.png"):
        Image.fromarray(FRAMES[0]).save(tmp_path / name)
    inside = look_in(tmp_path)
    assert inside.scans == [tmp_path / "a.h5"]
    why = "an image beside scans, not in a folder of its own"
    assert inside.foreign == {tmp_path / "0.png": why, tmp_path / "1.png": why}


def test_where_all_that_is_left_is_the_mask_of_a_damaged_image_that_image_is_told(tmp_path):
    Image.fromarray(FRAMES[0]).save(tmp_path / "a_mask.png")
    (tmp_path / "a.png").write_bytes(b"no image")
    inside = look_in(tmp_path)
    assert inside.scans == [] and list(inside.lost) == [tmp_path / "a.png"]


def test_a_folder_of_nothing_but_lost_scans_is_told_once(tmp_path):
    (tmp_path / "a.h5").touch()
    inside = look_in(tmp_path)
    assert inside.scans == [] and list(inside.lost) == [tmp_path / "a.h5"] and list_scans([tmp_path]) == [tmp_path]


def test_every_file_of_a_folder_is_looked_at_once(tmp_path, monkeypatch):
    for name in ("a.h5", "b.h5"):
        scan(tmp_path / name)
    (tmp_path / "img").mkdir()
    for index in range(3):
        Image.fromarray(FRAMES[0]).save(tmp_path / "img" / f"{index}.png")
    looked, look = [], formats._look
    monkeypatch.setattr(formats, "_look", lambda path: looked.append(path) or look(path))
    found = look_in(tmp_path)
    assert found.scans == [tmp_path / name for name in ("a.h5", "b.h5", "img")]
    assert len(looked) == len(set(looked)) == 5


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.h5", "a"),
        ("a.HDF5", "a"),
        ("a.nii.gz", "a"),
        ("scan.v2.mha", "scan.v2"),
        ("1.2.276.0.7230010.3.1.4.55.1", "1.2.276.0.7230010.3.1.4.55.1"),
        ("1.2.840.10008.dcm", "1.2.840.10008"),
        ("IM.A", "IM.A"),
        ("IMG0001", "IMG0001"),
        (".h5", ".h5"),
    ],
)
def test_stems_lose_suffixes_of_formats_alone(tmp_path, name, stem):
    assert stem_of(tmp_path / name) == stem


def test_scans_named_by_uid_have_a_result_each(tmp_path):
    names = [f"1.2.276.0.55.{end}" for end in ("1", "2", "10", "1.1")]
    for name in names:
        write_dicom(tmp_path / name, FRAMES)
    one_by_one = [plan_jobs((str(tmp_path / name),), None)[0].result.name for name in names]
    assert one_by_one == [f"{name}.dehazed.h5" for name in names]
    assert {job.dicom.name for job in plan_jobs((str(tmp_path),), None)} == {f"{name}.dehazed.dcm" for name in names}


def test_no_two_scans_of_a_folder_write_one_file(tmp_path):
    for name in ("a.h5", "a.hdf5", "a.hdf", "a.h5.h5", "a.h5.hdf5", "a"):
        scan(tmp_path / name)
    for options in ({}, {"preview": "png", "zea": True, "review": True}):
        jobs = plan_jobs((str(tmp_path),), str(tmp_path / "out"), **options)
        targets = [target for job in jobs for target in job.targets]
        assert len(jobs) == 6 and len(set(targets)) == len(targets)


@pytest.mark.skipif(sys.platform != "linux", reason="names are any bytes there alone")
@pytest.mark.parametrize("name", [b"\xe9cho.h5", b"\xff\xfe.h5", "\u00e9cho \u5fc3.h5".encode(), b"a\nb.h5"])
def test_names_in_any_encoding_are_read_and_kept_readable(tmp_path, name):
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    os.replace(scan(tmp_path / "tmp.h5"), path)
    (listed,) = list_scans([tmp_path])
    cine = open_cine(listed)
    assert cine.source.name == name.decode("utf-8", "backslashreplace")
    result = plan_jobs((path,), None)[0].result
    write_result(result, Result(cine, cine.frames, cine.frames, None, {"seed": 0}))
    assert os.fsencode(result.name) == name.removesuffix(b".h5") + b".dehazed.h5"
    assert read_result(result).cine.source.name == cine.source.name


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_nothing_stays_beside_the_file(tmp_path, monkeypatch, code):
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_):
        raise OSError(code, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for content in ("first", "second"):
        with atomic(tmp_path / "a.txt", overwrite=True) as part:
            part.write_text(content)
    with pytest.raises(ValueError), atomic(tmp_path / "b.txt") as part:
        raise ValueError
    assert os.listdir(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "second"


def killed_writer(path, libver, swmr=False):
    """A file as a program leaves it that was killed while it had it open."""
    np.save(path.with_suffix(".npy"), fan_frames(2))
    lines = ["import h5py, numpy as np, os, sys", f"file = h5py.File(sys.argv[1], 'w', libver={libver!r})"]
    lines += ["file['cine'] = np.load(sys.argv[2])", f"file.swmr_mode = {swmr}" if swmr else "", "file.flush()"]
    code = "\n".join([*lines, "os._exit(0)"])
    subprocess.run([sys.executable, "-c", code, path, path.with_suffix(".npy")], check=True)
    path.with_suffix(".npy").unlink()
    return path


def test_a_file_open_for_writing_elsewhere_is_read(tmp_path):
    cine = open_cine(killed_writer(tmp_path / "a.h5", "latest", swmr=True))
    assert np.abs(cine.frames - 60 * (fan_frames(2) / 255 - 1)).max() < 1e-4
    assert "The file is open for writing elsewhere: read as it stood." in cine.source.assumptions
    assert np.array_equal(open_cine(killed_writer(tmp_path / "b.h5", None)).frames, cine.frames)


def test_a_file_that_its_writer_does_not_share_says_so(tmp_path):
    with pytest.raises(InputError, match="is open for writing elsewhere, or was when its writer crashed") as caught:
        open_cine(killed_writer(tmp_path / "a.h5", "latest"))
    assert "h5clear" in str(caught.value) and "\n" not in str(caught.value)


def test_of_a_result_and_links_to_it_in_a_folder_there_is_one(tmp_path):
    folder, elsewhere = tmp_path / "in", tmp_path / "elsewhere.dehazed.h5"
    folder.mkdir()
    for path in (folder / "m.dehazed.h5", elsewhere):
        path.touch()
    (folder / "a.dehazed.h5").symlink_to("m.dehazed.h5")
    (folder / "z.dehazed.h5").symlink_to("m.dehazed.h5")
    (folder / "b.dehazed.h5").symlink_to(elsewhere)
    assert sorted(list_results([folder])) == [folder / "b.dehazed.h5", folder / "m.dehazed.h5"]
