"""Whatever is changed in a result is noticed, by verify, validate and the review page; and values that cannot be."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from test_io_result import a_result

from usdehaze.cine import Cartesian
from usdehaze.cli import main
from usdehaze.io import read_result, write_result
from usdehaze.io.digest import digest_of
from usdehaze.io.doubts import doubts_of
from usdehaze.review import build_review

RECTANGLE = Cartesian((2e-4, 3e-4))


def sound_result(**changes):
    """A result whose values can be: tissue below the input."""
    result = a_result()
    cine = replace(result.cine, geometry=changes.pop("geometry", RECTANGLE))
    tissue = np.maximum(cine.frames - 3, -cine.dynamic_range_db).astype(np.float32)
    return replace(result, cine=cine, tissue=tissue, **changes)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.dehazed.h5"
    write_result(path, sound_result())
    return path


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_result_as_written_is_beyond_doubt(path, tmp_path):
    assert doubts_of(path) == []
    with h5py.File(path) as file:
        assert file.attrs["digest"] == digest_of(file, path) and file.attrs["digest"].startswith("sha256:")
    done = run("verify", path)
    assert done.exit_code == 0 and done.stdout == f"{path}: as it was written\n" and done.stderr == ""
    assert run("verify", tmp_path).exit_code == 0


def test_a_mutation_of_any_field_is_noticed(path):
    """One at a time: every attribute of every group and dataset, every dataset; things added and taken away."""
    content = path.read_bytes()
    places = []
    with h5py.File(path) as file:
        file.visit(places.append)
        fields = [(place, name) for place in ("/", *places) for name in file[place].attrs]
        datasets = [place for place in places if isinstance(file[place], h5py.Dataset)]
    assert len(fields) > 20 and len(datasets) >= 4

    def noticed(change, *args):
        path.write_bytes(content)
        with h5py.File(path, "r+") as file:
            change(file, *args)
        with h5py.File(path) as file:
            return file.attrs.get("digest") != digest_of(file, path)

    def alter(file, place, name):
        value = file[place].attrs[name]
        file[place].attrs[name] = value + "x" if isinstance(value, str) else np.asarray(value) + 1

    def nudge(file, place):
        values = file[place][...]
        values.reshape(-1)[-1] = np.nextafter(values.reshape(-1)[-1], values.dtype.type(-np.inf))
        file[place][...] = values

    for field in fields:
        assert noticed(alter, *field), field
        assert noticed(lambda file, place, name: file[place].attrs.__delitem__(name), *field), field
    for place in datasets:
        assert noticed(nudge, place), place
    assert noticed(lambda file: file.attrs.__setitem__("reviewed_by", "nobody"))
    assert noticed(lambda file: file.create_dataset("more", data=[1.0]))
    assert noticed(lambda file: file.create_group("more"))
    assert noticed(lambda file: file.__setitem__("more", h5py.SoftLink("/tissue")))
    assert noticed(lambda file: file.move("haze", "fog"))
    assert not noticed(lambda file: None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: replace(r, tissue=np.minimum(r.tissue + 5, 0)), "Its tissue is brighter than its input in"),
        (lambda r: replace(r, haze=r.haze - 50), "Its haze has values outside -"),
        (lambda r: replace(r, settings={**r.settings, "steps": -3}), "Its steps cannot be"),
        (lambda r: replace(r, settings={**r.settings, "caution": 7.0}), "Its caution cannot be"),
        (lambda r: replace(r, cine=replace(r.cine, geometry=Cartesian((3.0, 3.0)))), "mm apart"),
        (
            lambda r: replace(r, cine=replace(r.cine, frame_times_s=-np.arange(len(r.tissue), dtype=float))),
            "Its frame times fall",
        ),
        (
            lambda r: replace(r, cine=replace(r.cine, dynamic_range_db=900.0)),
            "Its dynamic range is 900 dB",
        ),
    ],
    ids=["brighter", "range", "steps", "caution", "spacing", "times", "dynamic-range"],
)
def test_values_that_cannot_be_are_said_even_under_a_digest_that_fits(tmp_path, change, said):
    path = tmp_path / "a.dehazed.h5"
    write_result(path, change(sound_result()))
    try:
        doubts = doubts_of(path)
    except Exception as error:
        doubts = [str(error)]
    assert any(said in doubt or "times" in doubt for doubt in doubts), doubts
    done = run("verify", path)
    assert done.exit_code == 1 and done.stdout == "" and "a.dehazed.h5" in done.stderr


def test_verify_goes_through_folders_and_says_each_by_name(tmp_path):
    for name in ("a", "b", "c"):
        write_result(tmp_path / f"{name}.dehazed.h5", sound_result())
    with h5py.File(tmp_path / "b.dehazed.h5", "r+") as file:
        file["tissue"][0, 0, 0] -= 1
    with h5py.File(tmp_path / "c.dehazed.h5", "r+") as file:
        del file.attrs["digest"]
    done = run("verify", tmp_path)
    lines = done.stderr.splitlines()
    assert done.exit_code == 1 and len(lines) == 2 and "a.dehazed.h5: as it was written" in done.stdout
    assert "b.dehazed.h5: Its digest does not fit" in lines[0] and "c.dehazed.h5: It has no digest" in lines[1]
    (tmp_path / "empty").mkdir()
    assert run("verify", tmp_path / "empty").exit_code == 1
    assert run("verify", tmp_path / "nothing.h5").stderr.count("\n") == 1


def test_validate_and_the_review_page_say_it(path, tmp_path):
    with h5py.File(path, "r+") as file:
        file.attrs["seed"] = 99
    roi = {"regions": []}
    for role, x in (("tissue", 1), ("haze", 6)):
        polygon = [[x, 1], [x + 4, 1], [x + 4, 10], [x, 10]]
        roi["regions"].append({"name": role, "role": role, "frames": [5], "polygon": polygon})
    (tmp_path / "roi.json").write_text(json.dumps(roi))
    done = run("validate", path, "--roi", tmp_path / "roi.json", "--json", tmp_path / "m.json")
    assert done.exit_code == 0, done.output
    assert "Its digest does not fit" in done.stderr and "note: a.dehazed.h5: Its digest does not fit" in done.stdout
    assert any("digest" in text for text in json.loads((tmp_path / "m.json").read_text())["settings"]["warnings"])
    told = []
    build_review(path, tmp_path / "a.html", tell=told.append)
    assert told == ["Its digest does not fit: it has been changed since it was written."]
    assert "to be doubted" in (tmp_path / "a.html").read_text()
    done = run("review", path, "--no-open", "-o", tmp_path / "b.html")
    assert done.exit_code == 0 and "Its digest does not fit" in done.stderr


def test_the_same_moment_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("a", "b"):
        write_result(tmp_path / name, sound_result(created=None))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_result(tmp_path / "a").created == "2023-11-14T22:13:20+00:00"
