"""Axis orders, colour, odd types, MATLAB's files, I/Q in two datasets, channel data by name."""

import h5py
import numpy as np
import pytest
from _scans import fan_frames, in_db, refused, speckled_fan, write
from scipy.io import savemat

import usdehaze as ud
from usdehaze.errors import InputError
from usdehaze.io.hdf5.layouts import axes as rules
from usdehaze.io.hdf5.layouts.blocks import BlockReader


def still(n_frames=12, height=64, width=48, seed=0):
    """``(T, H, W)`` uint8: the same speckle in every frame, with a little noise of its own."""
    rng = np.random.default_rng(seed)
    speckle = np.abs(rng.normal(size=(height, width))) * 60 + rng.normal(size=(n_frames, height, width)) * 3 + 20
    return np.clip(speckle, 0, 255).astype(np.uint8)


def expected(frames):
    return (frames.astype(float) / 255 - 1) * 60


@pytest.mark.parametrize("order", ["THW", "HWT", "THWC", "TCHW"])
@pytest.mark.parametrize("n_frames", [12, 5])
def test_the_frames_are_found_whichever_axis_they_lie_along(tmp_path, order, n_frames):
    frames = still(n_frames)
    axes = {"T": 0, "H": 1, "W": 2, "C": 3}
    stored = np.repeat(frames[..., None], 3, axis=3) if "C" in order else frames
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored.transpose([axes[letter] for letter in order])}))
    assert np.abs(cine.frames - expected(frames)).max() < 1e-4
    assert any(f"Axes taken as {order}" in s for s in cine.source.assumptions) == (order != "THW")


def test_a_colour_still_is_one_frame_of_its_luma(tmp_path):
    rgb = np.zeros((40, 30, 3), np.uint8)
    rgb[:20], rgb[20:, :, 1] = 200, 100
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": rgb}))
    assert cine.frames.shape == (1, 40, 30)
    assert cine.frames[0, 0, 0] == pytest.approx((200 / 255 - 1) * 60, abs=1e-3)  # grey stays what it is
    assert cine.frames[0, 39, 0] == pytest.approx((round(0.587 * 100) / 255 - 1) * 60, abs=1e-3)
    assert "Colour channels taken together as their luma." in cine.source.assumptions


@pytest.mark.parametrize(("n_frames", "written"), [(3, 0), (3, 1), (4, 0), (4, 3)])
@pytest.mark.parametrize("order", ["THW", "HWT"])
def test_one_frame_among_those_never_written_is_no_colour(tmp_path, order, n_frames, written):
    frames = np.zeros((n_frames, 64, 48), np.uint8)
    frames[written] = still(1)[0]
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": frames.transpose(["THW".index(axis) for axis in order])}))
    assert cine.frames.shape == frames.shape and np.abs(cine.frames - expected(frames)).max() < 1e-4


def test_axes_that_are_asked_for_are_obeyed(tmp_path):
    frames = still(3, 24, 20)
    path = write(tmp_path / "a.h5", {"x": frames.transpose(0, 2, 1)})
    assert np.abs(ud.open_cine(path, axes="twh").frames - expected(frames)).max() < 1e-4
    assert not any("Axes" in s for s in ud.open_cine(path, axes="TWH").source.assumptions)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("TH", "each of H and W once"),
        ("THWX", "each of H and W once"),
        ("HHW", "each of H and W once"),
        ("HW", "a letter for each axis"),
        ("CHW", "make 5 colour channels; expected 1, 3 or 4"),
    ],
)
def test_axes_that_do_not_fit_are_refused(tmp_path, axes, message):
    with pytest.raises(InputError, match=message):
        ud.open_cine(write(tmp_path / "a.h5", {"x": still(5)}), axes=axes)


@pytest.mark.parametrize("dtype", [">u2", ">f4", "<f2", ">f8", ">i4"])
def test_byte_order_and_half_floats_make_no_difference(tmp_path, dtype):
    frames = still(2)
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": frames.astype(dtype)}), units="grey")
    assert np.abs(cine.frames - expected(frames)).max() < 1e-3


def test_big_endian_complex_compounds_are_iq(tmp_path):
    rng = np.random.default_rng(0)
    stored = np.empty((2, 32, 32), dtype=[("real", ">f8"), ("imag", ">f8")])
    stored["real"], stored["imag"] = rng.normal(size=(2, 2, 32, 32))
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored}))
    envelope = np.hypot(stored["real"], stored["imag"])
    assert np.abs(cine.frames - np.clip(20 * np.log10(envelope / envelope.max()), -60, 0)).max() < 1e-3


def matlab(path, variables, cells=()):
    """A v7.3 MAT-file: header block, axes the other way round, a class for every array."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in variables.items():
            compound = np.iscomplexobj(array)
            stored = array
            if compound:
                stored = np.empty(array.shape, dtype=[("real", "f8"), ("imag", "f8")])
                stored["real"], stored["imag"] = array.real, array.imag
            file[name] = np.ascontiguousarray(stored.T)
            file[name].attrs["MATLAB_class"] = np.bytes_("double" if compound else array.dtype.name)
        for name, arrays in cells:
            references = np.empty((len(arrays), 1), dtype=h5py.ref_dtype)
            for index, array in enumerate(arrays):
                file[f"#refs#/{index:c<3}"] = np.ascontiguousarray(array.T)
                file[f"#refs#/{index:c<3}"].attrs["MATLAB_class"] = np.bytes_(array.dtype.name)
                references[index] = file[f"#refs#/{index:c<3}"].ref
            file[name] = references
            file[name].attrs["MATLAB_class"] = np.bytes_("cell")
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


@pytest.mark.parametrize("n_frames", [1, 12])
def test_matlab_counts_its_axes_the_other_way_round(tmp_path, n_frames):
    frames = still(n_frames)
    path = matlab(tmp_path / "a.mat", {"cine": frames.transpose(1, 2, 0), "name": np.frombuffer(b"x" * 9, np.uint8)})
    cine = ud.open_cine(path)
    assert np.abs(cine.frames - expected(frames)).max() < 1e-4
    assert any("as MATLAB stores them" in s for s in cine.source.assumptions)


@pytest.mark.parametrize("n_frames", [1, 12])
def test_octave_counts_its_axes_the_other_way_round(tmp_path, n_frames):
    frames, path = still(n_frames), tmp_path / "a.h5"
    shown = frames.transpose(1, 2, 0).squeeze()  # H W T
    with h5py.File(path, "w") as file:
        variables = {"bmode": ("uint8 matrix", shown), "wall": ("bool matrix", shown)}
        for name, (kind, array) in variables.items():
            group = file.create_group(name)
            group.attrs["OCTAVE_NEW_FORMAT"] = np.uint8(1)
            group["type"], group["value"] = np.bytes_(kind), array.T
    cine = ud.open_cine(path)
    assert cine.source.dataset == "bmode/value" and np.abs(cine.frames - expected(frames)).max() < 1e-4
    assert any("as Octave stores them" in note for note in cine.source.assumptions)


def test_complex_frames_of_matlab_are_iq(tmp_path):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(48, 40)) + 1j * rng.normal(size=(48, 40))
    iq = base[..., None] * np.linspace(1, 1.2, 10)
    cine = ud.open_cine(matlab(tmp_path / "a.mat", {"iq": iq}))
    envelope = np.abs(iq).transpose(2, 0, 1)
    assert cine.source.units == "I/Q"
    assert np.abs(cine.frames - np.clip(20 * np.log10(envelope / envelope.max()), -60, 0)).max() < 1e-3


def test_a_cell_array_of_frames_is_a_cine(tmp_path):
    frames = still(4, 30, 22)
    cine = ud.open_cine(matlab(tmp_path / "a.mat", {}, cells=[("frames", list(frames))]))
    assert cine.source.layout == "MATLAB cell array" and cine.source.dataset == "frames"
    assert np.abs(cine.frames - expected(frames)).max() < 1e-4


def test_a_single_cell_holds_a_cine_as_verasonics_keeps_it(tmp_path):
    frames = still(12)
    buffer = frames.transpose(1, 2, 0)[:, :, None]
    cine = ud.open_cine(matlab(tmp_path / "a.mat", {}, cells=[("ImgData", [buffer])]))
    assert cine.source.dataset == "ImgData" and np.abs(cine.frames - expected(frames)).max() < 1e-4
    several = matlab(tmp_path / "b.mat", {}, cells=[("ImgData", [buffer, buffer])])
    refused(several, "cells of 'ImgData' hold 12 frames each", "save one of them as a variable")


def test_a_cell_of_another_shape_is_named(tmp_path):
    frames = still(3, 30, 22)
    path = matlab(tmp_path / "a.mat", {}, cells=[("frames", [frames[0], frames[1][:20], frames[2]])])
    with pytest.raises(InputError, match=r"cell 1 of 'frames' is \(20, 22\) uint8; expected \(30, 22\) uint8"):
        ud.open_cine(path)


def test_logical_masks_and_text_of_matlab_are_no_frames(tmp_path):
    path = matlab(tmp_path / "a.mat", {"bmode": still(1)[0], "mask": still(1)[0], "note": still(1, 20, 20)[0]})
    with h5py.File(path, "r+") as file:
        file["mask"].attrs["MATLAB_class"] = np.bytes_("logical")
        file["note"].attrs["MATLAB_class"] = np.bytes_("char")
    assert ud.open_cine(path).source.dataset == "bmode"


@pytest.mark.parametrize("names", [("real", "imag"), ("Idata", "Qdata"), ("I", "Q")])
def test_a_real_and_an_imaginary_dataset_are_iq_together(tmp_path, names):
    rng = np.random.default_rng(0)
    real, imaginary = rng.normal(size=(2, 3, 32, 40)).astype(np.float32)
    cine = ud.open_cine(write(tmp_path / "a.h5", {f"g/{names[0]}": real, f"g/{names[1]}": imaginary}))
    envelope = np.hypot(real, imaginary)
    assert np.abs(cine.frames - np.clip(20 * np.log10(envelope / envelope.max()), -60, 0)).max() < 1e-3
    assert cine.source.layout == "I/Q in two datasets"


def beating(n_frames=24, height=60, width=40):
    """``(T, H, W)`` I/Q: speckle that stays where it is, its phase turning, and an echo over all of it that moves."""
    rng = np.random.default_rng(0)
    speckle = (rng.normal(size=(height, width)) + 1j * rng.normal(size=(height, width))) * np.linspace(1, 9, width)
    row, column = np.mgrid[:height, :width]
    frames = []
    for index in range(n_frames):
        angle = 2 * np.pi * index / n_frames
        off = np.hypot(row - 30 - 20 * np.cos(angle), column - 20 - 12 * np.sin(angle))
        frames.append(speckle * np.exp(1j * index) + 300 * np.exp(-(off**2) / 8))
    return np.stack(frames)


@pytest.mark.parametrize("order", ["THW", "HWT"])
@pytest.mark.parametrize("parts", [1, 2])
def test_frames_of_iq_are_found_by_its_envelope_however_bright_an_echo_is_that_moves(tmp_path, order, parts):
    iq = beating()
    stored = iq.transpose(["THW".index(letter) for letter in order])
    named = {"iq": stored} if parts == 1 else {"I": stored.real, "Q": stored.imag}
    cine = ud.open_cine(write(tmp_path / "a.h5", named), rectangle=True)
    expected = np.clip(20 * np.log10(np.abs(iq) / np.abs(iq).max()), -60, 0)
    assert cine.frames.shape == iq.shape and np.abs(cine.frames - expected).max() < 1e-3


@pytest.mark.parametrize("n_frames", [3, 4])
@pytest.mark.parametrize("order", ["THW", "HWT"])
def test_frames_of_iq_that_are_alike_are_no_colours(tmp_path, order, n_frames):
    iq = np.stack([beating()[0]] * n_frames)
    path = write(tmp_path / "a.h5", {"iq": iq.transpose(["THW".index(letter) for letter in order])})
    cine = ud.open_cine(path, rectangle=True)
    expected = np.clip(20 * np.log10(np.abs(iq) / np.abs(iq).max()), -60, 0)
    assert cine.frames.shape == iq.shape and np.abs(cine.frames - expected).max() < 1e-3
    refused(path, f"make {n_frames} colour channels of I/Q; expected T", axes=order.replace("T", "C"))


@pytest.mark.parametrize("order", ["THW", "HWT"])
def test_frames_in_decibels_that_are_alike_are_no_colours(tmp_path, order):
    frames = np.stack([in_db(speckled_fan(1))[0]] * 3)
    stored = frames.transpose(["THW".index(letter) for letter in order])
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored}))
    assert cine.frames.shape == frames.shape and np.abs(cine.frames - frames).max() < 1e-3


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("order", ["THW", "TWH", "HWT", "WHT"])
def test_axes_beside_unlike_frames_tell_which_axis_is_theirs(tmp_path, order, parts):
    iq = np.random.default_rng(0).normal(size=(24, 60, 40, 2)) @ [1, 1j]
    stored = iq.transpose(["THW".index(letter) for letter in order])
    named = {"iq": stored} if parts == 1 else {"I": stored.real, "Q": stored.imag}
    across, down = ("x", "z") if parts == 1 else ("lat", "axial")  # the latter as ITKUltrasound reads
    beside = {across: np.arange(40.0), down: np.arange(60.0)}
    cine = ud.open_cine(write(tmp_path / "a.h5", named | beside), rectangle=True)
    expected = np.clip(20 * np.log10(np.abs(iq) / np.abs(iq).max()), -60, 0)
    assert cine.frames.shape == iq.shape and np.abs(cine.frames - expected).max() < 1e-3
    told = f"Axes taken as {order}, by the lengths of the axes beside them."
    assert (told in cine.source.assumptions) == (order != "THW")


def test_axes_beside_what_is_no_cine_do_not_matter(tmp_path):
    iq = np.random.default_rng(0).normal(size=(12, 64, 48, 3, 2)) @ [1, 1j]  # three angles of transmission
    path = write(tmp_path / "a.h5", {"iq": iq, "x": np.arange(48.0), "z": np.arange(64.0)})
    refused(path, "'iq' has shape (12, 64, 48, 3); expected frames (T, H, W) or (H, W)")


def test_lengths_of_axes_do_not_make_columns_of_frames_that_are_alike(tmp_path):
    angles = still(12, 64, 48)  # an image an angle, all much alike
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": angles, "angles": np.arange(12.0), "z": np.arange(64.0)}))
    assert np.abs(cine.frames - expected(angles)).max() < 1e-4


def test_that_the_usual_axis_of_frames_may_be_wrong_is_told(tmp_path):
    rng = np.random.default_rng(0)
    frames = np.clip(rng.normal(130, 20, (64, 48)) + rng.normal(0, 28, (12, 64, 48)), 0, 255).astype(np.uint8)
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": frames.transpose(1, 2, 0)}), rectangle=True)
    note = next(note for note in cine.source.assumptions if note.startswith("Axes taken as THW, the usual order, "))
    assert note.settle == "--axes" and cine.frames.shape == (64, 48, 12)


def test_parts_about_another_value_than_0_are_no_iq(tmp_path):
    real, imaginary = np.random.default_rng(0).normal(2048, 300, size=(2, 3, 32, 40)).astype(np.uint16)
    refused(
        write(tmp_path / "a.h5", {"I": real, "Q": imaginary}), "2 datasets could be the frames: I (3, 32, 40) uint16"
    )


@pytest.mark.parametrize("name", ["grid", "coordinates"])
def test_coordinates_alone_are_no_image(tmp_path, name):
    grid = np.stack(np.meshgrid(np.arange(40), np.arange(32), [0.5]), axis=-1)[:, :, 0]
    path = write(tmp_path / "a.h5", {"iq": np.ones((5, 32, 40, 2)), name: grid})
    refused(
        path,
        "no numeric dataset that could be frames",
        "only iq (5, 32, 40, 2) float64",
        "store I/Q as complex numbers",
    )


@pytest.mark.parametrize("kind", ["h5", "npz", "mat"])
def test_a_larger_array_beside_what_is_taken_is_told(tmp_path, kind):
    save = {"npz": lambda path, parts: np.savez(path, **parts), "mat": savemat, "h5": write}[kind]
    for shape in ((6, 2, 64, 48), (1, 2, 64, 48), (1, 2, 8, 8, 2)):
        save(tmp_path / f"a.{kind}", {"x": still(1)[0], "volumes": np.zeros(shape, np.float32)})
        options = {"dataset": "x"} if shape[0] == 1 and shape[2] == 64 else {}
        notes = ud.open_cine(tmp_path / f"a.{kind}", rectangle=True, **options).source.assumptions
        assert any(note.startswith("A larger array beside it was passed over") for note in notes) == (shape[0] == 6)


def test_an_image_beside_iq_is_not_passed_over(tmp_path):
    real, imaginary = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype(np.float32)
    parts = {"iq/real": real, "iq/imag": imaginary, "mask": fan_frames(3), "x": np.ones((64, 64))}
    assert ud.open_cine(write(tmp_path / "a.h5", parts)).source.units == "I/Q"
    path = write(tmp_path / "b.h5", {**parts, "bmode": fan_frames(3)})
    refused(path, "iq/real and iq/imag could be the frames as I/Q, and so could others: bmode (3, 64, 64) uint8")
    assert [ud.open_cine(path, dataset=name).source.units for name in ("iq/real", "bmode")] == ["I/Q", "8-bit"]


def test_cubdl_keeps_its_beamformed_iq_lines_first_beside_channel_data(tmp_path):
    rng = np.random.default_rng(0)
    real, imaginary = rng.normal(size=(2, 64, 40)).astype(np.float32)
    data = {"beamformed_Idata": real.T, "beamformed_Qdata": imaginary.T, "channel_data": np.zeros((9, 64, 200))}
    cine = ud.open_cine(write(tmp_path / "a.hdf5", data))
    envelope = np.hypot(real, imaginary)
    assert np.abs(cine.frames[0] - np.clip(20 * np.log10(envelope / envelope.max()), -60, 0)).max() < 1e-3
    assert "Axes taken as lines before depth, as in CUBDL's files." in cine.source.assumptions


@pytest.mark.parametrize("n_frames", [1, 4])
def test_picmus_keeps_its_images_lines_first_with_the_axes_of_their_scan(tmp_path, n_frames):
    echoes = speckled_fan(n_frames, 96, 120).astype(np.float32)
    stored = echoes.swapaxes(1, 2) if n_frames > 1 else echoes[0].T
    parts = {"data/real": stored, "data/imag": 0 * stored}
    parts |= {"scan/x_axis": np.linspace(-0.018, 0.018, 120), "scan/z_axis": np.linspace(0.005, 0.05, 96)}
    path = write(tmp_path / "a.hdf5", {f"US/US_DATASET0000/{name}": values for name, values in parts.items()})
    cine = ud.open_cine(path, rectangle=True)
    assert np.abs(cine.frames - in_db(echoes)).max() < 1e-3
    assert cine.geometry.spacing_m == pytest.approx((0.045 / 95, 0.036 / 119))
    assert cine.geometry.origin_m == pytest.approx((0.005, -0.018))
    with h5py.File(path, "r+") as file:  # as another tool writes it, depth first
        for name in ("real", "imag"):
            file.move(f"US/US_DATASET0000/data/{name}", "of")
            file[f"US/US_DATASET0000/data/{name}"] = file["of"][()].swapaxes(-1, -2)
            del file["of"]
    assert np.abs(ud.open_cine(path, rectangle=True).frames - in_db(echoes)).max() < 1e-3


CHANNEL_DATA = {
    "CUBDL": {"channel_data": np.zeros((9, 64, 200), np.float32), "angles": np.zeros(9)},
    "PyBF": {"data/rf_data/frame_1/shot_1": np.zeros((64, 200), np.int16)},
    "PICMUS": {
        "US/US_DATASET0000/data/real": np.zeros((9, 64, 200), np.float32),
        "US/US_DATASET0000/data/imag": np.zeros((9, 64, 200), np.float32),
        "US/US_DATASET0000/probe_geometry": np.zeros((3, 64), np.float32),
        "US/US_DATASET0000/angles": np.zeros(9, np.float32),
    },
}


@pytest.mark.parametrize("layout", CHANNEL_DATA)
def test_channel_data_are_recognised_and_refused_with_advice(tmp_path, layout):
    with pytest.raises(InputError, match=rf"holds channel data \({layout}\); expected .*; beamform it first"):
        ud.open_cine(write(tmp_path / "a.hdf5", CHANNEL_DATA[layout]))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("chunks", [None, (7, 5, 3), (1, 40, 30), (60, 40, 30)])
def test_a_block_reader_gives_every_index_once_whatever_the_chunks(tmp_path, monkeypatch, axis, chunks):
    monkeypatch.setattr("usdehaze.io.hdf5.layouts.blocks.BLOCK_BYTES", 20_000)
    stored = np.arange(60 * 40 * 30, dtype=np.int32).reshape(60, 40, 30)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("x", data=stored, chunks=chunks)
        reader = BlockReader(dataset, axis)
        for index in range(stored.shape[axis]):
            assert np.array_equal(reader(index), stored.take(index, axis))
            assert reader.block.nbytes <= max(20_000, stored[0].nbytes)


def test_a_dataset_that_changes_more_along_time_than_along_depth_is_still_frames_first(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 30, 20)).astype(np.uint8)
    with h5py.File(write(tmp_path / "a.h5", {"x": noise}), "r") as file:
        assert rules.find_axes(file["x"])[0] == {"T": 0, "H": 1, "W": 2}


def test_fans_of_noise_keep_their_usual_order(tmp_path):
    with h5py.File(write(tmp_path / "a.h5", {"x": fan_frames(40)}), "r") as file:
        assert rules.find_axes(file["x"])[0]["T"] == 0


@pytest.mark.parametrize(("n_written", "fill"), [(20, np.nan), (5, np.nan), (5, -60), (1, -60)])
def test_frames_that_were_never_written_are_no_rows_that_are_alike(tmp_path, n_written, fill):
    frames = np.full((40, 64, 64), fill, np.float32)
    frames[:n_written] = fan_frames(n_written) / 255 * 60 - 60
    with h5py.File(write(tmp_path / "a.h5", {"x": frames}), "r") as file:
        assert rules.find_axes(file["x"])[0] == {"T": 0, "H": 1, "W": 2}


def test_frames_that_were_flattened_into_rows_are_no_image(tmp_path):
    flat = still(12, 64, 60).reshape(12, -1)
    np.save(tmp_path / "a.npy", flat.T)
    refused(tmp_path / "a.npy", "which makes images of 3840 x 12")
    path = write(tmp_path / "a.h5", {"x": flat})
    refused(path, "which makes images of 12 x 3840", "give flattened ones their shape")
    assert ud.open_cine(path, axes="HW", rectangle=True).frames.shape == (1, 12, 3840)
    for name, lines in (("b", still(1, 64, 6000)[0]), ("c", still(2, 6600, 64))):  # these are a cine
        read = ud.open_cine(write(tmp_path / f"{name}.h5", {"x": lines}), rectangle=True)
        assert read.frames.shape[1:] == lines.shape[-2:]
