"""NumPy's files, MAT-files before v7.3 and NIfTI as scans."""

import errno
import gzip
import io
import logging
import os
import pickle
import struct
import tempfile
import tracemalloc
import zipfile

import h5py
import nibabel
import numpy as np
import pytest
from _scans import fan_frames, in_db, refused, speckled_fan, write
from scipy.io import savemat

import usdehaze as ud
from usdehaze.errors import InputError
from usdehaze.io import kind_of, list_scans, open_scan
from usdehaze.io.arrays import npy

FRAMES = fan_frames(12, 72, 80)


def close(cine, frames=FRAMES, atol=1e-3):
    return np.abs(cine.frames - 60 * (frames.astype(float) / 255 - 1)).max() < atol


@pytest.mark.parametrize("stored", ["C", "F", "big", "u2", "one", "HWT", "colour"])
def test_npy_in_any_order_and_type(tmp_path, stored):
    array = {
        "C": FRAMES,
        "F": np.asfortranarray(FRAMES),
        "big": FRAMES.astype(">u2") * 257,
        "u2": FRAMES.astype(np.uint16) * 257,
        "one": FRAMES[0],
        "HWT": FRAMES.transpose(1, 2, 0),
        "colour": np.repeat(FRAMES[..., None], 3, axis=3),
    }[stored]
    np.save(tmp_path / "a.npy", array)
    axes = "HWT" if stored == "HWT" else None
    assert close(ud.open_cine(tmp_path / "a.npy", axes=axes), FRAMES[:1] if stored == "one" else FRAMES)


def test_npy_frames_are_read_where_they_lie_in_any_order_and_processes(tmp_path):
    np.save(tmp_path / "a.npy", FRAMES)
    with open_scan(tmp_path / "a.npy") as scan:
        assert (scan.source.layout, scan.n_frames, kind_of(scan.path)) == ("NumPy array", 12, "NumPy array")
        again = pickle.loads(pickle.dumps(scan))
        for start, stop in ((7, 9), (0, 2), (11, 12)):
            assert np.array_equal(again.read_db(start, stop), scan.read_db(start, stop))
            assert np.abs(scan.read_db(start, stop) - 60 * (FRAMES[start:stop] / 255 - 1)).max() < 1e-3


@pytest.mark.parametrize("order", ["THW", "HWT", "HTW"])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
def test_npy_larger_than_what_is_read_at_once(tmp_path, monkeypatch, order, layout):
    monkeypatch.setattr(npy, "_PIECE_BYTES", 100)
    array = layout(FRAMES[None].transpose([0, *("THW".index(letter) + 1 for letter in order)]))
    np.save(tmp_path / "a.npy", array)
    assert close(ud.open_cine(tmp_path / "a.npy", axes=order))
    with open(tmp_path / "a.npy", "rb") as file:
        stored = npy.array_in(file, "a.npy")
        for part in ((), (0, slice(3, 7)), (slice(None), slice(None), slice(5, 60, 7), 3)):
            assert np.array_equal(stored[part], array[part])


def test_npy_cut_off_while_it_is_read_is_one_line(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.repeat(FRAMES, 20, axis=0))
    with open_scan(path) as scan:
        os.truncate(path, 1000)
        with pytest.raises(InputError, match="changed while it was read"):
            scan.read(200, 201)


def test_empty_arrays_beside_the_frames_do_not_count(tmp_path):
    nothing = np.zeros((0, 72, 80), np.uint8)
    np.savez(tmp_path / "a.npz", roi=nothing, image=FRAMES)
    savemat(tmp_path / "a.mat", {"roi": nothing, "image": FRAMES.transpose(1, 2, 0)})
    write(tmp_path / "a.h5", {"roi": nothing, "image": FRAMES})
    for path in tmp_path.iterdir():
        assert close(ud.open_cine(path))
    refused(write(tmp_path / "b.h5", {"roi": nothing}), "dataset 'roi' is empty")


def test_messages_on_a_file_of_one_array_do_not_name_it(tmp_path):
    np.save(tmp_path / "a.npy", np.full((3, 64, 64), np.nan))
    refused(tmp_path / "a.npy", "its array holds no finite value")
    np.save(tmp_path / "a.npy", np.zeros((5, 6, 7, 8)))
    refused(tmp_path / "a.npy", "its array has shape (5, 6, 7, 8)")
    refused(nifti(tmp_path / "a.nii", np.full((64, 64), np.nan)), "its array holds no finite value")


def test_npz_without_room_to_unpack_it_says_so(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, block):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    np.savez(tmp_path / "a.npz", image=FRAMES)
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    refused(tmp_path / "a.npz", "cannot be unpacked into /scratch (No space left on device)", "TMPDIR")


def test_what_is_far_too_large_is_refused_before_it_is_read(tmp_path):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9, 6000, 6000), }".ljust(117) + b"\n"
    with open(tmp_path / "a.npy", "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
        file.truncate(file.tell() + 9 * 6000 * 6000)
    tracemalloc.start()
    refused(tmp_path / "a.npy", "frames of 6000 x 6000")
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()


def test_npy_that_cannot_be_frames(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused(path, "holds Python objects, which are not unpickled")
    np.save(path, np.zeros((4, 0, 8)))
    refused(path, "empty array")
    np.save(path, FRAMES)
    path.write_bytes(path.read_bytes()[:-9])
    refused(path, "declares 69120 bytes but stores 69111")
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999, 8192, 8192), }".ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
    refused(path, "but stores 0")
    np.save(path, FRAMES)
    refused(path, "a .npy holds one array", dataset="x")
    np.save(path, np.ones((5, 32, 40, 2)))
    refused(path, "shape (5, 32, 40, 2)", "; store I/Q as complex numbers")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_the_array_that_could_be_frames(tmp_path, save):
    save(tmp_path / "a.npz", mask=FRAMES > 99, label=FRAMES, fps=np.array(50), image=FRAMES)
    cine = ud.open_cine(tmp_path / "a.npz")
    assert close(cine) and cine.source.dataset == "image"
    assert any("Passed over label" in note for note in cine.source.assumptions)
    save(tmp_path / "b.npz", before=FRAMES, after=FRAMES[::-1])
    refused(tmp_path / "b.npz", "2 datasets could be the frames", "--dataset")
    assert close(ud.open_cine(tmp_path / "b.npz", dataset="after"), FRAMES[::-1])
    refused(tmp_path / "b.npz", "no array 'x'", "before, after", dataset="x")


def test_npz_that_declares_more_than_it_stores_takes_no_memory(tmp_path):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999, 8192, 8192), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
    refused(tmp_path / "a.npz", "declares 6.71e+03 GB but stores")
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", b"x")
    refused(tmp_path / "b.npz", "is compressed or encrypted as NumPy does not")


@pytest.mark.parametrize("packed", [False, True])
def test_mat_files_have_their_axes_as_matlab_counts_them(tmp_path, packed):
    path = tmp_path / "a.mat"
    turned = FRAMES.transpose(1, 2, 0)  # H W T
    savemat(path, {"bmode": turned, "fs": 40e6, "name": "x"}, do_compression=packed)
    cine = ud.open_cine(path)
    assert close(cine) and (cine.source.layout, cine.source.dataset) == ("MAT-file", "bmode")
    assert "Axes taken as HWT, as MATLAB stores them." in cine.source.assumptions
    assert close(ud.open_cine(path, axes="HWT"))
    savemat(path, {"frame": FRAMES[0]}, do_compression=packed)
    assert close(ud.open_cine(path), FRAMES[:1])
    savemat(path, {"iq": (turned + 1j * turned).astype(np.complex64)}, do_compression=packed)
    assert ud.open_cine(path).source.units == "I/Q"


def test_mat_files_with_frames_in_structures_and_cells(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"scan": {"data": {"img": FRAMES.transpose(1, 2, 0), "depth": np.arange(72.0)}, "fps": 50}})
    cine = ud.open_cine(path)
    assert close(cine) and cine.source.dataset == "scan/data/img"
    assert close(ud.open_cine(path, dataset="scan/data/img"))
    cells = np.empty(12, object)
    cells[:] = list(FRAMES)
    savemat(path, {"cine": cells})
    assert close(ud.open_cine(path))
    buffers = np.empty(2, object)
    buffers[:] = [FRAMES.transpose(1, 2, 0)[:, :, None], FRAMES[::-1].transpose(1, 2, 0)[:, :, None]]
    savemat(path, {"ImgData": buffers[:1]})  # as Verasonics has it
    assert close(ud.open_cine(path))
    savemat(path, {"ImgData": buffers})
    refused(path, "2 datasets could be the frames: ImgData/1 (72, 80, 12) uint8")
    assert close(ud.open_cine(path, dataset="ImgData/2"), FRAMES[::-1])
    movie = np.zeros(12, [("cdata", object), ("colormap", object)])
    for frames in (FRAMES, np.repeat(FRAMES[..., None], 3, axis=3)):
        movie["cdata"], movie["colormap"] = list(frames), [np.zeros((0, 0))] * 12
        savemat(path, {"mov": movie})
        cine = ud.open_cine(path)
        assert close(cine) and cine.source.dataset == "mov/cdata"
        assert close(ud.open_cine(path, dataset="mov/3/cdata"), FRAMES[2:3])
    delays = np.zeros(12, [("Delay", object)])
    delays["Delay"] = list(FRAMES[:, 0])
    savemat(path, {"TX": delays})
    refused(path, "no numeric dataset that could be frames")
    savemat(path, {"a": FRAMES, "b": FRAMES})
    refused(path, "2 datasets could be the frames: a (12, 72, 80) uint8")


@pytest.mark.parametrize("names", [("x", "z"), ("lateral_mm", "depth_mm"), ("xAxis", "zAxis"), ("theta", "r")])
@pytest.mark.parametrize("kind", ["npz", "mat", "h5"])
def test_axes_beside_an_image_tell_which_way_it_lies(tmp_path, kind, names):
    save = {"npz": lambda path, parts: np.savez(path, **parts), "mat": savemat, "h5": write}[kind]
    frames = np.random.default_rng(0).integers(60, 200, (12, 40, 30), np.uint8)
    beside = {names[0]: np.linspace(-1, 1, 30), names[1]: np.linspace(0, 1, 40), "radius": [[0.06]]}
    for lying in (True, False):
        stored = frames.swapaxes(1, 2) if lying else frames
        save(tmp_path / f"a.{kind}", {"bmode": np.moveaxis(stored, 0, 2) if kind == "mat" else stored, **beside})
        cine = ud.open_cine(tmp_path / f"a.{kind}", rectangle=True)
        assert close(cine, frames)
        told = [note for note in cine.source.assumptions if "by the lengths of the axes beside them" in note]
        assert len(told) == lying


def test_axes_beside_an_image_of_matlab_are_told_where_they_turn_it_back_to_the_usual_order(tmp_path):
    frames = np.random.default_rng(0).integers(60, 200, (12, 40, 30), np.uint8)
    path = write(tmp_path / "a.mat", {"bmode": frames, "x": np.zeros((1, 30)), "z": np.zeros((1, 40))})
    with h5py.File(path, "r+") as file:
        file["bmode"].attrs["MATLAB_class"] = np.bytes_("uint8")
    cine = ud.open_cine(path, rectangle=True)
    assert close(cine, frames)
    assert "Axes taken as THW, by the lengths of the axes beside them." in cine.source.assumptions


def test_times_beside_the_frames_of_an_archive_or_a_mat_file(tmp_path):
    turned, times_s = FRAMES.transpose(1, 2, 0), np.arange(12) ** 1.5 / 100
    np.savez(tmp_path / "a.npz", frames=FRAMES, fps=50)
    np.savez(tmp_path / "b.npz", frames=FRAMES, fps="50", times_ms=1000 * times_s)
    savemat(tmp_path / "c.mat", {"img": turned, "frameRate": 50.0})
    savemat(tmp_path / "d.mat", {"scan": {"img": turned, "time_s": times_s}, "fps": 9.0})
    savemat(tmp_path / "e.mat", {"scan": {"img": turned}, "fps": 50})
    for name in ("a.npz", "b.npz", "c.mat", "d.mat", "e.mat"):
        expected = times_s if name[0] in "bd" else np.arange(12) / 50
        np.testing.assert_allclose(ud.open_cine(tmp_path / name).frame_times_s, expected, atol=1e-9)


def as_matlab_saves_doubles(path, **variables):
    """Whole numbers of class double, stored as uint8: savemat's uint8 arrays under another class."""
    savemat(path, variables)
    flags = struct.pack("<2I", 6, 8)  # element: array flags, 8 bytes, the class first
    path.write_bytes(path.read_bytes().replace(flags + b"\x09", flags + b"\x06"))
    return path


def test_the_class_of_a_mat_file_says_what_its_bytes_are(tmp_path):
    db = np.rint(in_db(speckled_fan(12)))
    stored = np.moveaxis(db + 60, 0, 2).astype(np.uint8)
    cells = np.empty(12, object)
    cells[:] = list((db + 60).astype(np.uint8))
    for number, variable in enumerate((stored, {"img": stored, "iq": stored[:9, :9, 0] + 1j}, cells)):
        cine = ud.open_cine(
            as_matlab_saves_doubles(tmp_path / f"{number}.mat", x=variable), dataset=("x", "x/img", "x")[number]
        )
        assert cine.source.units == "dB" and np.abs(cine.frames - db).max() < 1e-3
    path = as_matlab_saves_doubles(tmp_path / "iq.mat", x={"img": stored, "iq": stored + 1j * stored[::-1]})
    iq = ud.open_cine(path, dataset="x/iq")
    assert iq.source.units == "I/Q" and np.ptp(iq.frames) == 60
    savemat(path, {"x": {"wall": FRAMES.transpose(1, 2, 0) > 99, "img": FRAMES.transpose(1, 2, 0)}})
    cine = ud.open_cine(path)  # logical arrays are no frames
    assert cine.source.dataset == "x/img" and cine.source.units == "8-bit"


def test_mat_files_that_cannot_be_used(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"rf_data": np.random.default_rng(0).normal(size=(64, 64))})
    refused(path, "holds channel data")
    savemat(path, {"x": 1.0})
    refused(path, "no numeric dataset that could be frames")
    savemat(path, {"x": FRAMES})
    path.write_bytes(path.read_bytes()[:-99])
    refused(path, "has a damaged variable at byte 128")


def nifti(path, array, zooms=None, units=("mm", "sec"), slope=None):
    """``array`` as nibabel counts the axes: columns, rows, ..."""
    image = nibabel.Nifti1Image(array, np.eye(4))
    if zooms is not None:
        image.header.set_zooms(zooms)
    image.header.set_xyzt_units(*units)
    if slope is not None:
        image.header.set_slope_inter(slope, 0)
    nibabel.save(image, path)
    return path


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_nifti_as_camus_stores_it(tmp_path, name):
    path = nifti(tmp_path / name, FRAMES.transpose(2, 1, 0), (0.3, 0.2, 1.5))
    assert kind_of(path) == "NIfTI" and list_scans([tmp_path]) == [path]
    cine = ud.open_cine(path)
    assert close(cine) and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    assert cine.frame_times_s is None and "The third axis taken as frames." in cine.source.assumptions
    with open_scan(path) as scan:
        for start, stop in ((7, 9), (0, 2), (11, 12)):
            assert np.abs(scan.read_db(start, stop) - 60 * (FRAMES[start:stop] / 255 - 1)).max() < 1e-3


def test_nifti_with_a_time_axis_has_frame_times(tmp_path):
    path = nifti(tmp_path / "a.nii.gz", FRAMES.transpose(2, 1, 0)[:, :, None], (3e2, 2e2, 1, 20), ("micron", "msec"))
    cine = ud.open_cine(path)
    assert close(cine) and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    np.testing.assert_allclose(cine.frame_times_s, 0.02 * np.arange(12))
    frames = FRAMES.transpose(2, 1, 0)[:, :, None]
    for zooms, told in (((3e2, 2e2, 1, 0.02), "do not say in which unit"), ((3e2, 2e2, 1, 1), "No frame times")):
        cine = ud.open_cine(nifti(path, frames, zooms, ("micron", "unknown")))
        assert cine.frame_times_s is None and any(told in note for note in cine.source.assumptions)


@pytest.mark.parametrize(("zooms", "unit"), [((3e-4, 2e-4, 1), "mm"), ((0.3, 0.2, 1), "meter")])
def test_nifti_whose_spacing_is_in_another_unit_than_it_says(tmp_path, zooms, unit):
    cine = ud.open_cine(nifti(tmp_path / "a.nii", FRAMES.transpose(2, 1, 0), zooms, (unit, "sec")))
    assert close(cine) and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    assert any(note.endswith("mm apart in the file taken as 0.2 x 0.3 mm.") for note in cine.source.assumptions)


def test_nifti_of_one_frame_of_rows_first_and_of_scaled_values(tmp_path):
    assert close(ud.open_cine(nifti(tmp_path / "a.nii", FRAMES[0].T)), FRAMES[:1])
    rows_first = nifti(tmp_path / "b.nii", FRAMES.transpose(1, 2, 0), (0.2, 0.3, 1))
    for axes in ("TWH", None):  # told, or noticed
        cine = ud.open_cine(rows_first, axes=axes)
        assert close(cine) and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    assert any("lies on its side in the file: axes taken as TWH" in note for note in cine.source.assumptions)
    scaled = nifti(tmp_path / "c.nii.gz", (FRAMES.transpose(2, 1, 0) // 5).astype(np.int16), slope=5)
    assert close(ud.open_cine(scaled, units="grey"), FRAMES // 5 * 5)


def test_nifti_with_vectors_is_colour_where_it_could_be(tmp_path):
    def vectors(array, intent="vector"):
        image = nibabel.Nifti1Image(array, np.eye(4))
        image.header.set_intent(intent)
        image.header.set_zooms((0.3, 0.2, *[1] * (array.ndim - 2)))
        nibabel.save(image, tmp_path / "a.nii")
        return tmp_path / "a.nii"

    grey = FRAMES.transpose(2, 1, 0)
    one = ud.open_cine(vectors(np.repeat(grey[:, :, :1, None, None], 3, axis=4)))
    assert close(one, FRAMES[:1]) and one.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    assert one.source.units == "8-bit" and "Colour channels taken together as their luma." in one.source.assumptions
    for several in (grey[:, :, :, None, None], grey[:, :, None, :, None]):
        assert close(ud.open_cine(vectors(np.repeat(several, 3, axis=4))))
    refused(
        vectors(np.repeat(grey[:, :, :1, None, None], 2, axis=4)), "holds 2 components a pixel (uint8)", "code 1007"
    )
    moved = np.repeat(grey[:, :, :1, None, None], 3, axis=4).astype(np.float32)
    refused(vectors(moved), "holds 3 components a pixel (float32)")
    refused(vectors(moved, "displacement vector"), "as its intent code 1006 says")


@pytest.mark.parametrize("components", ["RGB", "RGBA"])
def test_nifti_of_colours_as_dcm2niix_writes_ultrasound(tmp_path, components):
    grey = FRAMES.transpose(2, 1, 0)
    stored = np.zeros(grey.shape, [(component, "u1") for component in components])
    for component in components:
        stored[component] = grey
    stored["R"][:20, :10] = 255
    path = nifti(tmp_path / "a.nii.gz", stored, (0.3, 0.2, 1))
    for axes in (None, "THW"):
        cine = ud.open_cine(path, axes=axes)
        assert cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4)) and cine.source.units == "8-bit"
        assert close(ud.Cine(cine.frames[:, 10:], cine.geometry, 60), FRAMES[:, 10:])
        assert not cine.tissue_mask[FRAMES < 200][:1].all() and cine.tissue_mask[:, 10:].all()
        assert not any("Axes taken" in note for note in cine.source.assumptions)
    nifti(path, stored[:, :, :1])
    assert close(ud.Cine(ud.open_cine(path).frames[:, 10:], cine.geometry, 60), FRAMES[:1, 10:])


def test_nibabel_says_nothing_of_what_it_mends(tmp_path, caplog):
    path = nifti(tmp_path / "a.nii", FRAMES.transpose(2, 1, 0), (0.3, 0.2, 1.5))
    content = bytearray(path.read_bytes())
    struct.pack_into("<2f", content, 80, -0.3, -0.2)  # pixdim
    path.write_bytes(content)
    with caplog.at_level(logging.DEBUG, "nibabel.global"):
        cine = ud.open_cine(path)
    assert close(cine) and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4)) and not caplog.records


def test_nifti_that_cannot_be_frames(tmp_path):
    refused(nifti(tmp_path / "a.nii", np.zeros((16, 16, 4, 4), np.uint8)), "an array of shape (16, 16, 4, 4)")
    path = nifti(tmp_path / "b.nii", FRAMES.transpose(2, 1, 0))
    content = bytearray(path.read_bytes())
    struct.pack_into("<h", content, 46, 30000)  # frames
    path.write_bytes(content)
    refused(path, "declares 0.173 GB but stores")
    packed = tmp_path / "c.nii.gz"
    packed.write_bytes(gzip.compress(bytes(content))[:4000])
    refused(packed, "declares 0.173 GB")
