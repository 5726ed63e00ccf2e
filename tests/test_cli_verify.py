"""``usdehaze verify``: that what lies beside a result belongs to it."""

import os
import shutil

from _dicom import write_dicom
from _results import make_result
from _scans import fan_frames
from test_cli_process import model, run  # noqa: F401  (a fixture)

ALL = ("--preview", "gif", "--format", "zea", "--review", "--save-haze")


def test_a_whole_set_is_of_one_run_and_files_of_another_or_of_none_are_named(tmp_path, model, monkeypatch):  # noqa: F811
    monkeypatch.setattr("usdehaze.io.doubts._absurd", lambda result: [])  # the stand-in's haze is
    scan, out = tmp_path / "a.dcm", tmp_path / "out"
    write_dicom(scan, fan_frames(2))
    assert run("process", scan, "-o", out, *ALL).exit_code == 0
    names = ["zea.hdf5", "dcm", "haze.dcm", "gif"]
    beside = ", ".join([*(f"a.dehazed.{name}" for name in names), "a.review.html"])
    result = out / "a.dehazed.h5"
    done = run("verify", result)
    assert (
        done.stderr == ""
        and done.exit_code == 0
        and done.stdout == f"{result}: as it was written; of its run are {beside}\n"
    )

    assert run("process", scan, "-o", tmp_path / "other", "--seed", "9", *ALL).exit_code == 0
    for name in ("a.dehazed.gif", "a.review.html"):
        shutil.copy(tmp_path / "other" / name, out / name)
    done = run("verify", out)
    assert done.exit_code == 1 and done.stdout == ""
    assert "Of another run are a.dehazed.gif, a.review.html." in done.stderr
    for name in ("a.dehazed.gif", "a.review.html"):
        (out / name).write_bytes(b"GIF89a of somebody")
    done = run("verify", out)
    assert done.exit_code == 1 and "Which run made a.dehazed.gif, a.review.html is not said there." in done.stderr
    for name in ("a.dehazed.gif", "a.review.html"):
        (out / name).unlink()
    (out / "a.dehazed.txt").write_text("a note of somebody")
    assert run("verify", out).exit_code == 0


def test_linked_folders_are_followed_and_folders_that_cannot_be_read_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("usdehaze.io.doubts._absurd", lambda result: [])
    make_result(tmp_path / "real" / "a.dehazed.h5")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "linked").symlink_to(tmp_path / "real")
    done = run("verify", tmp_path / "out")
    assert done.exit_code == 0 and done.stdout == f"{tmp_path}/out/linked/a.dehazed.h5: as it was written\n"

    walk = os.walk

    def denied(top, onerror):
        onerror(PermissionError(13, "Permission denied", f"{tmp_path}/out/private"))
        return walk(top, onerror=onerror)

    monkeypatch.setattr("os.walk", denied)
    done = run("verify", tmp_path / "out")
    assert done.exit_code == 1 and "out/private: cannot be read (Permission denied)" in done.stderr
