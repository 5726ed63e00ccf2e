"""Whatever a file holds, what is printed is harmless, short, and on one line; spreadsheets see no formula."""

import csv
import io
import sys

import h5py
import numpy as np
import pytest
from _scans import fan_frames, write
from click.testing import CliRunner
from test_io_digest import sound_result

from usdehaze.cli import main
from usdehaze.cli.group import Console, traceback_of
from usdehaze.errors import InputError, foreign
from usdehaze.io import write_result
from usdehaze.plain_text import MOST, brief, cell, one_line, shortened
from usdehaze.validation.report import write_csv

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202e"
LONG = "x" * 5000


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def harmless(text):
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("name", [f"cine{ESCAPE}", LONG, f'it\'s {LONG} "quoted" {LONG}', "a\tb\\n", "''''''" * 900])
@pytest.mark.parametrize("command", ["info", "process"])
def test_names_in_files_reach_no_terminal_as_they_are(tmp_path, name, command):
    files = {
        "one.h5": {name: fan_frames(1)},  # fine
        "flat.h5": {name: np.zeros((1, 32, 32), np.uint8)},  # constant
        "two.h5": {name: fan_frames(2), f"{name}2": fan_frames(2)},  # which of them?
        "line.h5": {name: np.zeros((7,), np.float32)},
    }
    for file, datasets in files.items():
        path = write(tmp_path / file, datasets)
        command_line = [command, path] if command == "info" else ["process", path, "--dataset", "no"]
        for options in ([], ["--debug"]):
            done = run(*command_line, *options)
            told = done.stdout + done.stderr
            assert harmless(told) and told, (file, told)
            assert max(map(len, told.splitlines())) < 2000 and "x" * (MOST + 1) not in told.replace(str(tmp_path), "")


def test_attributes_and_names_of_results_are_printed_harmlessly(tmp_path):
    path = tmp_path / "a.dehazed.h5"
    write_result(path, sound_result())
    with h5py.File(path, "r+") as file:
        for name in ("source_name", "source_dataset", "preset", "tissue_prior", "created"):
            file.attrs[name] = ESCAPE + LONG
    for args in (("info", path), ("verify", path), ("validate", path, "--roi", tmp_path / "no.json")):
        done = run(*args)
        told = done.stdout + done.stderr
        assert told and harmless(told) and "x" * (MOST + 1) not in told, args


def test_names_of_files_are_printed_harmlessly(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    bad, good = folder / f"bad{ESCAPE[:12]}.h5", folder / "go\rod.h5"
    bad.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    write(good, {"x": fan_frames(1)})
    for args in (
        ("info", folder),
        ("verify", bad),
        ("validate", bad, "--roi", "auto"),
        ("review", bad),
        ("process", bad),
    ):
        done = run(*args)
        assert harmless(done.stdout + done.stderr), args
    assert "go?od.h5" in run("info", folder).stdout


def test_unexpected_errors_quote_nothing_even_with_debug(capsys):
    patient = "^".join(("Doe", "Jane"))
    try:
        try:
            float(patient)
        except ValueError as error:
            raise KeyError(patient) from error
    except KeyError as error:
        met = error
    for debug in (False, True):
        Console(debug=debug).report(met, "a.dcm")
        told = capsys.readouterr().err
        assert patient not in told and "a.dcm: unexpected KeyError" in told and ("Traceback" in told) == debug
    lines = traceback_of(met)
    assert lines[-1] == "builtins.KeyError" and "builtins.ValueError" in lines
    assert any("float(patient)" in line for line in lines)
    ours = InputError("a.h5", "is empty")
    assert traceback_of(ours)[-1] == "usdehaze.errors.InputError: a.h5: is empty"
    assert foreign(FileNotFoundError(2, "No such file", patient)) == "FileNotFoundError (No such file)"


def test_messages_have_one_line_and_quote_80_characters_at_most():
    assert one_line("a\n  b\x1b[2J\u202e'c'") == "a b?[2J?'c'"
    assert shortened(f"dataset '{LONG}' and \"{LONG}\", 'short'") == (
        f"dataset '{'x' * 80}...' and \"{'x' * 80}...\", 'short'"
    )
    assert brief(LONG) == "x" * 80 + "..." and brief("short") == "short"
    error = InputError("/a/folder/" + LONG, f"holds {LONG}", f"{LONG}", "do this")
    assert len(str(error)) < 5000 + 1800 and str(error).startswith("/a/folder/" + LONG)


def test_cells_of_a_csv_are_no_formulas(tmp_path):
    assert [cell(v) for v in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")] == [
        "'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'\r=1",
    ]  # fmt: skip
    assert [cell(v) for v in (-1.5, 3, None, "a=b", "", np.float32(-2))] == [-1.5, 3, "", "a=b", "", np.float32(-2)]
    for name in ('=HYPERLINK("http://x")', "+a", "-a", "@a", "=cmd|' /C calc'!A0"):
        record = {"cine": name, "frame": 0, "cnr": {"input": -1.0, "tissue": 2.0, "delta": 3.0}}
        write_csv(tmp_path / "m.csv", {"frames": [record]})
        rows = list(csv.reader(io.StringIO((tmp_path / "m.csv").read_text(encoding="utf-8"))))
        assert rows[1][0] == "'" + name and rows[1][3] == "-1.0"


@pytest.mark.skipif(sys.platform == "win32", reason="such names are not to be had there")
def test_names_that_are_not_unicode_are_printed(tmp_path):
    import os

    path = os.fsencode(tmp_path) + b"/herz\xe9.h5"
    write(os.fsdecode(path), {"x": fan_frames(1)})
    done = run("info", tmp_path)
    assert done.exit_code == 0 and "herz?.h5" in done.stdout
