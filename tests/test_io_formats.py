"""The table of file formats and the list of HDF5 layouts: a format or a layout is one file and one line."""

import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from _dicom import write_dicom
from _scans import fan_frames, write
from PIL import Image
from test_io_images import mha

from usdehaze import open_cine
from usdehaze.errors import InputError
from usdehaze.io import formats, kind_of, list_scans
from usdehaze.io.formats import DICOM, FORMATS, HDF5, IMAGE, IMAGE_FOLDER, META_IMAGE, FileFormat, format_of
from usdehaze.io.hdf5 import layouts
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan

FRAMES = fan_frames(3)


class ToyScan(StoredScan):
    """The word TOY, then frames of 64 x 64 grey levels."""

    def _open(self):
        frames = np.frombuffer(self.path.read_bytes()[3:], np.uint8).reshape(-1, 64, 64)
        return StoredCine("toy", "", frames.shape, frames.dtype, frames.__getitem__)


TOY = FileFormat(
    name="toy", signature=lambda path, start: start.startswith(b"TOY"), open_scan=ToyScan, holds="grey levels"
)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "FORMATS", [*FORMATS, TOY])
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "scan.any"
    path.write_bytes(b"TOY" + FRAMES.tobytes())
    return path


def test_a_new_format_is_opened_and_found_in_folders(toy):
    cine = open_cine(toy, frames=slice(1, 3), dynamic_range_db=50)
    np.testing.assert_allclose(cine.frames, 50 * (FRAMES[1:] / 255 - 1), atol=1e-4)
    assert (cine.source.layout, cine.source.units, cine.source.first_frame) == ("toy", "8-bit", 1)
    assert kind_of(toy) == "toy" and list_scans([toy.parent]) == [toy]
    with pytest.raises(InputError, match=r"has no datasets \(toy\)"):
        open_cine(toy, dataset="x")
    with pytest.raises(InputError, match="no --units: toy images hold grey levels"):
        open_cine(toy, units="dB")


def test_without_its_row_the_format_is_unknown(toy, monkeypatch):
    monkeypatch.setattr(formats, "FORMATS", FORMATS)
    assert format_of(toy) is None and list_scans([toy.parent]) == [toy.parent]
    with pytest.raises(InputError, match=r"is no scan \(unknown content\)"):
        open_cine(toy)


def test_a_new_image_format_may_lie_in_a_folder_of_images(toy, monkeypatch):
    class ToyImage:
        def __init__(self, path: Path) -> None:
            self.frame = np.frombuffer(path.read_bytes()[3:], np.uint8).reshape(64, 64)

        def stored(self):
            return StoredCine("toy image", "", (1, 64, 64), self.frame.dtype, lambda index: self.frame)

        def close(self) -> None:
            pass

    image = FileFormat(
        name="toy image", signature=TOY.signature, open_scan=ToyScan, open_image=ToyImage, is_alone=lambda path: False
    )
    monkeypatch.setattr(formats, "FORMATS", [*FORMATS, image])
    toy.unlink()
    for index, frame in enumerate(FRAMES):
        (toy.parent / f"{index}.toy").write_bytes(b"TOY" + frame.tobytes())
    assert list_scans([toy.parent.parent]) == [toy.parent]
    np.testing.assert_allclose(open_cine(toy.parent).frames, 60 * (FRAMES / 255 - 1), atol=1e-4)


def test_a_new_layout_is_read(tmp_path, monkeypatch):
    def recognise(file, path, reading):
        if file.attrs.get("made_by") != "toy":
            return None
        stored = file[reading.dataset or "a"]
        return StoredCine("toy layout", stored.name, stored.shape, stored.dtype, lambda index: 255 - stored[index])

    path = write(tmp_path / "a.h5", {"a": 255 - FRAMES, "b": FRAMES}, made_by="toy")
    with pytest.raises(InputError, match="2 datasets could be the frames"):
        open_cine(path)
    monkeypatch.setattr(layouts, "LAYOUTS", [recognise, *layouts.LAYOUTS])
    cine = open_cine(path)
    assert cine.source.layout == "toy layout"
    np.testing.assert_allclose(cine.frames, 60 * (FRAMES / 255 - 1), atol=1e-4)
    assert open_cine(path, dataset="b").source.dataset == "/b"


def test_hdf5_is_found_behind_a_user_block_of_any_size(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=2**22) as file:
        file["x"] = FRAMES
    np.testing.assert_allclose(open_cine(tmp_path / "a.h5").frames, 60 * (FRAMES / 255 - 1), atol=1e-4)


def test_content_decides_whatever_the_suffix(tmp_path):
    named = {
        HDF5: write(tmp_path / "a.dcm", {"x": FRAMES}),
        DICOM: write_dicom(tmp_path / "b.h5", FRAMES),
        META_IMAGE: mha(tmp_path / "c.png", FRAMES),
        IMAGE: tmp_path / "d.mha",
    }
    Image.fromarray(FRAMES[0]).save(named[IMAGE], "PNG")
    for expected, path in named.items():
        assert format_of(path) is expected and kind_of(path) == expected.name
        frames = open_cine(path).frames
        np.testing.assert_allclose(frames, 60 * (FRAMES[: len(frames)] / 255 - 1), atol=1e-4)
    assert format_of(tmp_path) is IMAGE_FOLDER


def test_lines_that_nearly_are_a_header_are_looked_through_once(tmp_path):
    (tmp_path / "a").write_bytes(b"a=    \n" * 100)  # every blank may belong to the sign or to the value
    began = time.process_time()
    assert kind_of(tmp_path / "a") == "unknown content"
    assert time.process_time() - began < 1
