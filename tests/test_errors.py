"""Errors of readers carry no words of others, which may quote what a file holds: neither themselves nor as a cause."""

import ast
import traceback
import zipfile
from pathlib import Path

import h5py
import pytest
from test_io_result import a_result

import usdehaze as ud
from usdehaze.errors import InputError
from usdehaze.io import read_result, write_result
from usdehaze.training.images import read_images

PACKAGE = Path(__file__).resolve().parents[1] / "usdehaze"
READERS = ("io", "priors", "training/images.py", "training/checkpoint.py", "validation/regions")
OF_OUR_VALUES = ("io/dicom/write.py", "io/scan.py")  # errors there
HARMLESS = {"OSError", "BlockingIOError", "ImportError", "InputError", "UsdehazeError"}  # words of the system, and ours
NAME = "QUILLFEATHER^ZOE"


def causes(path):
    """Lines of ``raise ... from error`` with the kinds that are caught there."""
    for handler in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ExceptHandler)):
        caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        kinds = {"everything" if kind is None else ast.unparse(kind) for kind in caught}
        for node in ast.walk(handler):
            if isinstance(node, ast.Raise) and node.exc is not None:
                told = isinstance(node.exc, ast.Name) and node.exc.id == handler.name
                if not told and not (isinstance(node.cause, ast.Constant) and node.cause.value is None):
                    yield node.lineno, kinds


def test_errors_of_other_libraries_are_no_causes_of_ours_where_files_are_read():
    files = {file for room in READERS for file in [PACKAGE / room, *(PACKAGE / room).rglob("*.py")] if file.is_file()}
    assert len(files) > 60
    found = []
    for file in files - {PACKAGE / name for name in OF_OUR_VALUES}:
        found += [(file.name, line, kinds - HARMLESS) for line, kinds in causes(file) if kinds - HARMLESS]
    assert found == []


def test_the_check_sees_a_cause_and_a_missing_from_none(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("try:\n  f()\nexcept (ValueError, OSError) as e:\n  raise A from e\nexcept E:\n  raise B\n")
    assert list(causes(file)) == [(4, {"ValueError", "OSError"}), (6, {"E"})]
    file.write_text("try:\n  f()\nexcept ValueError as e:\n  raise A from None\nexcept E as e:\n  raise\n")
    assert list(causes(file)) == []


def metaimage(path):
    text = f"NDims = 2\nDimSize = 40 {NAME}\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
    path.with_suffix(".mha").write_text(text)
    return ud.open_cine(path.with_suffix(".mha"))


def numpy_header(path):
    path = path.with_suffix(".npy")
    header = f"{{'descr': '{NAME}', 'fortran_order': False, 'shape': (40, 40), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    return ud.open_cine(path)


def result_geometry(path):
    path = path.with_suffix(".dehazed.h5")
    write_result(path, a_result())
    with h5py.File(path, "r+") as file:
        for name in file["geometry"].attrs:
            file["geometry"].attrs[name] = NAME
    return read_result(path)


def numpy_archive(path):
    path = path.with_suffix(".npz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00\x20\x00{'descr': '" + NAME.encode() + b"'}\n".rjust(8))
    return read_images([path], (32, 32))


@pytest.mark.parametrize("read", [metaimage, numpy_header, result_geometry, numpy_archive])
def test_neither_an_error_nor_its_traceback_quotes_a_name_in_a_file(tmp_path, read):
    with pytest.raises(InputError) as caught:
        read(tmp_path / "a")
    told = "".join(traceback.format_exception(caught.value))
    assert NAME not in told and "QUILL" not in told, told
