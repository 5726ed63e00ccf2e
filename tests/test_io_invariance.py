"""One fan in every form that can hold it is read back as the same decibels, the right way up, with the same sector.

To add a file format: a row in `FORMATS`, a function that writes 8-bit frames ``(T, H, W)`` as a scan.
"""

import h5py
import numpy as np
import pytest
from _dicom import write_dicom
from _scans import in_db, speckled_fan
from PIL import Image

from usdehaze.io import open_cine

GREY = np.rint(in_db(speckled_fan(3)) / 60 * 255 + 255).astype(np.uint8)  # 0 to 255
DB = GREY / 255 * 60 - 60
ECHOES = np.where(GREY > 0, 10 ** (DB / 20), 0)
OUTSIDE = np.broadcast_to((GREY == 0).all(axis=0), GREY.shape)


def compound(values):
    pair = np.empty(values.shape, [("r", "f4"), ("i", "f4")])
    pair["r"], pair["i"] = values.real, values.imag
    return pair


def with_phase(values):
    return values * np.exp(1j * np.random.default_rng(0).uniform(0, 7, values.shape))


FORMS = {  # of the values
    **{dtype: GREY.astype(dtype) for dtype in ("u1", "i2", "u2", ">u2", "i4", "u4", "i8", "f2", "f4", ">f4", "f8")},
    "signed bytes": (GREY.astype(int) - 128).astype("i1"),
    "bytes without their sign": GREY.view("i1"),
    "16 bits": GREY.astype("u2") * 257,
    "12 bits, signed": GREY.astype("i2") * 16 - 2048,
    **{f"to 1, {dtype}": (GREY / 255).astype(dtype) for dtype in ("f2", "f4", "f8")},
    "to 100": (GREY / 2.55).astype("f4"),
    "from -1 to 1": (GREY / 127.5 - 1).astype("f4"),
    "standardised": ((GREY - GREY.mean()) / GREY.std()).astype("f4"),
    "scaled and shifted": (GREY * 0.37 + 11).astype("f4"),
    "NaN outside": np.where(OUTSIDE, np.nan, GREY / 255).astype("f4"),
    **{f"dB, {dtype}": DB.astype(dtype) for dtype in ("f2", "f4", "f8")},
    "dB, -inf outside": np.where(OUTSIDE, -np.inf, DB).astype("f4"),
    "dB, NaN outside": np.where(OUTSIDE, np.nan, DB).astype("f4"),
    "dB above the floor": (DB + 60).astype("f4"),
    "dB above 40": (DB + 100).astype("f4"),
    "envelope": ECHOES.astype("f4"),
    "envelope to 5000": (ECHOES * 5000).astype("f8"),
    "I/Q": with_phase(ECHOES).astype("c8"),
    "I/Q in a compound": compound(with_phase(ECHOES)),
}
ORDERS = ["THW", "TWH", "HWT", "WHT"]
STORAGE = {  # of the dataset
    "chunks": {"chunks": (1, 48, 60)},
    "gzip": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "checked": {"fletcher32": True, "chunks": True},
    "growing": {"maxshape": (None, None, None)},
}


def colours(frames):
    return np.repeat(frames[..., None], 3, axis=3)


def write_h5(path, values, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("scan/data", data=values, **options)
    return path


def write_matlab(path, frames):
    """``H x W x T`` in MATLAB."""
    write_h5(path, np.ascontiguousarray(frames.transpose(0, 2, 1)))
    with h5py.File(path, "r+") as file:
        file["scan/data"].attrs["MATLAB_class"] = np.bytes_("uint8")
    return path


def write_tiff(path, frames):
    first, *others = map(Image.fromarray, frames)
    first.save(path, "TIFF", save_all=True, append_images=others)
    return path


def write_folder(path, frames):
    path.mkdir()
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(path / f"{index}.png")
    return path


def write_mha(path, frames):
    size = " ".join(map(str, frames.shape[::-1]))
    header = f"ObjectType = Image\nNDims = 3\nDimSize = {size}\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
    path.write_bytes(header.encode() + frames.tobytes())
    return path


FORMATS = {  # of the file, from 8-bit frames
    "HDF5, THWC": lambda path, frames: write_h5(path, colours(frames)),
    "HDF5, TCHW": lambda path, frames: write_h5(path, colours(frames).transpose(0, 3, 1, 2)),
    "HDF5, HWCT": lambda path, frames: write_h5(path, colours(frames).transpose(1, 2, 3, 0)),
    "HDF5, axes of length 1": lambda path, frames: write_h5(path, frames[:, None, :, :, None]),
    "MATLAB": write_matlab,
    "TIFF": write_tiff,
    "folder of PNG": write_folder,
    "MetaImage": write_mha,
    "DICOM": write_dicom,
    "DICOM, RGB": lambda path, frames: write_dicom(path, colours(frames), "RGB"),
}


@pytest.fixture(scope="module")
def sector(tmp_path_factory):
    """The sector of the fan as it is."""
    return open_cine(write_h5(tmp_path_factory.mktemp("fan") / "a.h5", GREY)).geometry.sector


def check(path, sector, **options):
    cine = open_cine(path, **options)
    assert cine.frames.shape == DB.shape and cine.dynamic_range_db == 60
    assert np.abs(cine.frames - DB).max() < 60 / 255
    found = cine.geometry.sector
    ends = [(s.apex_x, s.apex_y, s.r_min, s.r_max, 100 * s.angle_min, 100 * s.angle_max) for s in (found, sector)]
    assert np.abs(np.subtract(*ends)).max() < 2  # px, and hundredths of a radian


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", FORMS)
def test_values_of_any_kind_in_any_order(tmp_path, sector, form, order):
    values = FORMS[form].transpose(["THW".index(letter) for letter in order])
    check(write_h5(tmp_path / "a.h5", np.ascontiguousarray(values)), sector)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("form", ["u1", "f4"])
def test_datasets_stored_in_any_way(tmp_path, sector, storage, form):
    check(write_h5(tmp_path / "a.h5", FORMS[form], **STORAGE[storage]), sector)


@pytest.mark.parametrize("format_", FORMATS)
def test_files_of_any_format(tmp_path, sector, format_):
    check(FORMATS[format_](tmp_path / "a", GREY), sector)
