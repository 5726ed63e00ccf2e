"""The files of a scan are one thing: killed between two names, told to stop, or mixed with those of another run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _results import make_result
from _scans import fan_frames, write

from usdehaze.errors import InputError
from usdehaze.io import open_scan
from usdehaze.io.atomic import PartFile, atomic, part_name
from usdehaze.io.detect import files_beside
from usdehaze.io.runs import of_several_runs, run_of
from usdehaze.io.sink import SinkSet
from usdehaze.io.together import commit, finish, prepare, remove_left_overs
from usdehaze.preview import PreviewWriter


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_after_any_rename_or_told_to_stop_nothing_is_lost_and_the_next_run_is_exact(tmp_path):
    script = Path(__file__).with_name("_kills.py")
    command = [sys.executable, str(script), str(tmp_path), "4", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes["between names"] >= 1


def parts_of(folder, *names):
    parts = [PartFile(folder / name) for name in names]
    for part in parts:
        part.path.write_text(part.target.name)
    return parts


def test_a_list_of_names_is_there_only_while_names_are_given(tmp_path):
    parts = parts_of(tmp_path, "a.h5", "a.dcm")
    prepare(parts)
    assert json.loads((tmp_path / ".a.h5.set").read_text()) == {".a.h5.part": "a.h5", ".a.dcm.part": "a.dcm"}
    commit(parts)
    assert sorted(os.listdir(tmp_path)) == ["a.dcm", "a.h5"]
    assert (tmp_path / "a.dcm").read_text() == "a.dcm"


def test_a_set_that_was_prepared_is_finished_and_only_once(tmp_path):
    parts = parts_of(tmp_path, "a.h5", "a.dcm")
    prepare(parts)
    os.replace(parts[0].path, parts[0].target)
    with pytest.raises(InputError, match="is being written by another run"):
        finish(tmp_path / "a.h5")
    for part in parts:
        part.release()
    assert finish(tmp_path / "a.h5") == [tmp_path / "a.h5", tmp_path / "a.dcm"]
    assert sorted(os.listdir(tmp_path)) == ["a.dcm", "a.h5"] and finish(tmp_path / "a.h5") == []


@pytest.mark.parametrize(
    "names",
    [
        '{".a.part": "../b"}',
        '{"../a.part": "b"}',
        '{".a.part": ".b"}',
        '{"a": "b"}',
        "[1]",
        '{".a.part": "b',
        "",
        "9" * 10**5,
    ],
)
def test_a_list_of_anything_else_moves_nothing(tmp_path, names):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in (".a.part", "a", "../a.part"):
        (folder / name).write_text("kept")
    (folder / ".a.h5.set").write_text(names)
    assert finish(folder / "a.h5") == []
    assert sorted(os.listdir(folder)) == [".a.part", "a"] and sorted(os.listdir(tmp_path)) == ["a.part", "in"]


def test_what_nobody_writes_any_more_is_removed_and_what_somebody_writes_is_not(tmp_path, monkeypatch):
    mine, other = parts_of(tmp_path, "a.dehazed.h5", "b.dehazed.h5")
    (tmp_path / ".a.dehazed.gif.part").write_text("half")
    (tmp_path / ".a.b.dehazed.gif.part").write_text("of another scan")
    monkeypatch.setattr(os, "scandir", None)  # a folder may hold a hundred thousand files
    monkeypatch.setattr(os, "listdir", None)
    assert remove_left_overs(files_beside(tmp_path / "a.dehazed.h5")) == [tmp_path / ".a.dehazed.gif.part"]
    assert mine.path.exists() and other.path.exists() and (tmp_path / ".a.b.dehazed.gif.part").exists()


@pytest.mark.parametrize("stem", ["a", "é" * 121])
def test_what_is_left_of_any_file_of_a_scan_is_removed(tmp_path, stem):
    files = files_beside(tmp_path / f"{stem}.dehazed.h5")
    assert files[0].name == f"{stem}.dehazed.h5" and len(files) == 8
    for file in files:
        part_name(file).write_text("half")
    assert sorted(remove_left_overs(files)) == sorted(map(part_name, files)) and not os.listdir(tmp_path)


def test_long_names_have_parts_that_are_not_too_long(tmp_path):
    first, second = tmp_path / ("é" * 121 + "a.h5"), tmp_path / ("é" * 121 + "b.h5")
    assert len(os.fsencode(part_name(first).name)) < 230 and part_name(first) != part_name(second)
    with atomic(first) as part:
        part.write_text("whole")
    assert first.read_text() == "whole"


def test_a_result_tells_its_run_and_files_of_several_runs_are_noticed(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    make_result(tmp_path / "b.dehazed.h5")
    make_result(tmp_path / "c.dehazed.h5", settings={"seed": 4})
    first, same, other = (tmp_path / f"{name}.dehazed.h5" for name in "abc")
    assert run_of(first) == run_of(same) != run_of(other) and len(run_of(first)) == 32
    (tmp_path / "none.gif").write_bytes(b"GIF89a")
    assert of_several_runs([first, same, tmp_path / "none.gif", tmp_path / "missing.dcm"]) == {}
    assert of_several_runs([first, other]) == {first: run_of(first), other: run_of(other)}


def replaced(path):
    os.replace(write(path.with_name("other.h5"), {"x": fan_frames(seed=1)}), path)


def cut_off(path):
    os.truncate(path, path.stat().st_size // 2)


def changed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def removed(path):
    path.unlink()


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (replaced, "was replaced by another file while it was read"),
        (cut_off, r"changed while it was read \(\d+ bytes then, \d+ now\)"),
        (changed, "changed while it was read; process it again"),
        (removed, "was removed while it was read"),
    ],
)
def test_a_source_that_is_another_in_the_end_is_refused_by_what_happened(tmp_path, happens, told):
    path = write(tmp_path / "a.h5", {"x": fan_frames()})
    with open_scan(path) as scan:
        happens(path)
        with pytest.raises(InputError, match=told):
            with SinkSet([PreviewWriter(tmp_path / "a.dehazed.gif", scan, "gif")], scan) as files:
                files.sinks[0].n_done = scan.n_frames
                files.sinks[0].part.path.write_text("whole")
                files.finish()
                files.commit()
    assert not (tmp_path / "a.dehazed.gif").exists() and not list(tmp_path.glob(".*"))


def test_a_source_that_was_touched_but_is_the_same_counts_as_the_same(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames()})
    with open_scan(path) as scan:
        os.utime(path, ns=(1, 1))
        scan.check_unchanged()


def test_an_image_that_is_added_to_a_folder_or_changed_in_it_is_noticed(tmp_path):
    from PIL import Image

    for index, frame in enumerate(fan_frames(3)):
        Image.fromarray(frame).save(tmp_path / f"{index}.png")
    with open_scan(tmp_path) as scan:
        Image.fromarray(frame).save(tmp_path / "3.png")
        with pytest.raises(InputError, match=r"3\.png was added to it while it was read"):
            scan.check_unchanged()
        (tmp_path / "3.png").unlink()
        scan.check_unchanged()
        Image.fromarray(255 - frame).save(tmp_path / "1.png")
        with pytest.raises(InputError, match=r"1\.png in it"):
            scan.check_unchanged()
