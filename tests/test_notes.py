"""What was guessed reaches everyone: stderr, the result, the review page, DICOM; and --strict refuses it."""

import copy
import json
import pickle
import re
import sys
from types import ModuleType

import numpy as np
import pydicom
import pytest
from _dicom import region, write_dicom
from _scans import fan_frames, in_db, speckled_fan, write
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.io import open_cine, open_scan, read_result
from usdehaze.notes import Guess, in_full, refuse_guesses
from usdehaze.result import Result

LEVEL = (in_db(speckled_fan()) / 60 + 1).astype(np.float32)


@pytest.fixture
def model(monkeypatch):
    """Stands in for the networks: takes 1 dB off everything."""

    class Dehazer:
        @classmethod
        def from_pretrained(cls, **settings):
            return cls()

        def dehaze(self, cine, progress=None):
            tissue = np.maximum(cine.frames - 1, -cine.dynamic_range_db)
            return Result(cine, tissue, tissue, None, {"preset": "fast", "seed": 0})

    module = ModuleType("usdehaze.dehazing.dehazer")
    module.Dehazer = Dehazer
    monkeypatch.setitem(sys.modules, "usdehaze.dehazing.dehazer", module)


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def test_a_guess_is_a_sentence_that_knows_what_settles_it():
    guess = Guess("Axes taken as HWT.", "--axes")
    assert guess == "Axes taken as HWT." and in_full(guess) == "Axes taken as HWT. Decide with --axes."
    for twin in (pickle.loads(pickle.dumps(guess)), copy.deepcopy(guess)):
        assert (twin, twin.settle) == (guess, "--axes")
    assert in_full("Colour is left as it is.") == "Colour is left as it is."


def test_all_guesses_are_refused_in_one_line_and_other_notes_are_not():
    refuse_guesses(["Colour is left as it is."], "a.h5")
    with pytest.raises(InputError) as caught:
        refuse_guesses(["A note.", Guess("One thing.", "--units"), Guess("Another.", "--axes")], "a.h5")
    assert str(caught.value) == (
        "a.h5: not read, as --strict allows no guess: One thing (decide with --units); Another (decide with --axes)"
    )


SCANS = {
    "units": lambda path: write(path / "a.h5", {"x": LEVEL * 3}),
    "axes": lambda path: write(path / "a.h5", {"x": np.rint(LEVEL * 255).astype(np.uint8).transpose(1, 2, 0)}),
    "rectangle": lambda path: write(path / "a.h5", {"x": np.rint(LEVEL * 255).astype(np.uint8)[:, 40:80, 40:80]}),
    "nan": lambda path: write(path / "a.h5", {"x": np.where(speckled_fan() > 0, LEVEL, np.nan)}),
    "dicom": lambda path: write_dicom(path / "a.dcm", fan_frames(3), regions=[region()]),
}


@pytest.mark.parametrize("kind", SCANS)
def test_process_says_on_stderr_what_info_says_and_the_result_keeps_it(tmp_path, model, kind):
    path = SCANS[kind](tmp_path)
    with open_scan(path) as scan:
        notes = scan.source.assumptions
    assert notes
    told = run("info", path)
    assert [line.split(":", 1)[1].strip() for line in told.stdout.splitlines() if "assumption:" in line] == [
        in_full(note) for note in notes
    ]
    done = run("process", path, "--review")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [f"usdehaze: {path}: {' '.join(map(in_full, notes))}"]  # one line a file
    assert read_result(tmp_path / "a.dehazed.h5").attrs["notes"].split("\n") == list(notes)
    page = json.loads(re.search(r'id="page-json">(.*?)</script>', (tmp_path / "a.review.html").read_text())[1])
    assert ["notes", " ".join(notes)] in page["provenance"]
    if kind == "dicom":
        assert " ".join(notes) in pydicom.dcmread(tmp_path / "a.dehazed.dcm").DerivationDescription


def test_quiet_says_nothing_of_them(tmp_path, model):
    assert run("process", SCANS["units"](tmp_path), "--quiet").stderr == ""


def test_strict_refuses_a_guess_and_names_the_option_that_settles_it(tmp_path, model):
    path = SCANS["units"](tmp_path)
    for command in ("process", "info"):
        done = run(command, path, "--strict")
        assert done.exit_code == 1 and done.stderr.count("\n") == 1
        for option in ("--units", "--levels", "--dynamic-range"):
            assert f"decide with {option}" in done.stderr
    assert not (tmp_path / "a.dehazed.h5").exists()
    settled = ["--units", "grey", "--levels", "0:3", "--dynamic-range", "60"]
    done = run("process", path, "--strict", *settled)
    assert done.exit_code == 0, done.output
    assert np.abs(read_result(tmp_path / "a.dehazed.h5").input - (LEVEL * 60 - 60)).max() < 1e-3


@pytest.mark.parametrize(
    ("kind", "option", "settled"),
    [
        ("axes", "--axes", {"axes": "HWT"}),
        ("rectangle", "--rectangle", {"rectangle": True}),
        ("dicom", "--dynamic-range", {}),
    ],
)
def test_an_option_that_settles_a_guess_ends_it(tmp_path, kind, option, settled):
    path = SCANS[kind](tmp_path)
    with pytest.raises(InputError, match=f"decide with {option}"):
        open_cine(path, strict=True)
    assert open_cine(path, strict=True, dynamic_range_db=60.0, **settled).frames.ndim == 3


def test_usual_full_scales_are_no_guess_once_the_units_are_known(tmp_path):
    path = write(tmp_path / "a.h5", {"x": LEVEL})
    assert open_cine(path, strict=True, units="grey", dynamic_range_db=60.0).source.units == "grey"


@pytest.mark.parametrize("value", ["2:2", "0", "a:b", "0:nan", "0:1:2"])
def test_levels_on_the_command_line_are_two_numbers(tmp_path, value):
    done = run("info", tmp_path / "a.h5", "--levels", value)
    assert done.exit_code == 2 and "black and white such as 0:255" in done.stderr
