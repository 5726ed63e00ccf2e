"""Files that cannot be used: each gives one line that names the file, what was found, and what would have worked."""

import gzip

import h5py
import numpy as np
import pytest
from _scans import fan_frames, refused, write

from usdehaze.dehazing.masking import keep_what_is_no_tissue
from usdehaze.errors import InputError
from usdehaze.io import kind_of, list_scans, open_cine, open_scan
from usdehaze.result import Result


def test_what_is_not_hdf5(tmp_path):
    refused(tmp_path / "none.h5", "no such file")
    refused(tmp_path, "is a folder")
    for name, content, found in (
        ("text.h5", b"no scan at all", "is no scan (unknown content)"),
        ("a.seq.nrrd", b"NRRD0004\ntype: uint8\n", "is no scan (NRRD, which is not read); expected"),
        ("a.hdr", b"\x5c\1\0\0" + bytes(344), "is no scan (a header of NIfTI or Analyze alone)"),
        ("a.hdf", b"\x0e\3\x13\1" + bytes(40), "is no scan (HDF4, which is not read; HDF5 is)"),
        ("a.mat", b"# Created by Octave 8.4.0\n# name: x\n", "is no scan (text of Octave's, which is not read"),
        ("a.vol", b"KRETZFILE 1.0   ", "is no scan (a volume of Kretz (GE Voluson), which is not read)"),
        ("a.nc", b"CDF\1\0\0\0\0", "is no scan (netCDF 3, which is not read; netCDF 4 is HDF5)"),
        ("empty.h5", b"", "is no scan (empty)"),
        ("study.zip", b"PK\3\4" + bytes(40), "is no scan (a zip or gzip archive, to be unpacked)"),
        ("a.dcm.gz", gzip.compress(bytes(400)), "is no scan (a zip or gzip archive, to be unpacked)"),
    ):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, found, "expected an HDF5 or DICOM file, a MetaImage, or images")


def test_hdf5_is_known_by_its_signature_behind_a_user_block_too(tmp_path):
    path = tmp_path / "no_suffix"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["x"] = fan_frames()
    assert kind_of(path) == "HDF5"
    assert open_cine(path).source.dataset == "x"


def test_files_cut_off_at_any_place(tmp_path):
    whole = write(tmp_path / "whole.h5", {"x": fan_frames(4)}).read_bytes()
    for share in (0.01, 0.2, 0.6, 0.95):
        cut = tmp_path / "cut.h5"
        cut.write_bytes(whole[: int(len(whole) * share)])
        refused(cut, "cannot be read as HDF5", "cut off or damaged")


def test_no_numeric_dataset(tmp_path):
    path = write(
        tmp_path / "a.h5", {"name": "scan", "gain": 3.0, "table": np.zeros((3, 2748)), "planes": np.ones((2, 9, 9, 5))}
    )
    refused(
        path, "no numeric dataset that could be frames", "planes (2, 9, 9, 5) float64", "table (3, 2748)", "expected"
    )


def test_several_candidates_are_listed_with_their_shapes(tmp_path):
    path = write(tmp_path / "a.h5", {"b/one": fan_frames(3), "two": fan_frames(1)[0].astype(np.float32)})
    refused(path, "2 datasets could be the frames: b/one (3, 64, 64) uint8, two (64, 64) float32", "--dataset")
    assert open_cine(path, dataset="/b/one").frames.shape == (3, 64, 64)


def test_named_datasets_that_are_not_frames(tmp_path):
    path = write(
        tmp_path / "a.h5", {"g/planes": np.zeros((2, 32, 32, 5), np.uint8), "text": np.array([[b"a"] * 9] * 9)}
    )
    refused(path, "no dataset 'nope'", "usdehaze info", dataset="nope")
    refused(path, "'g' is not a dataset", dataset="g")
    refused(path, "shape (2, 32, 32, 5); expected frames (T, H, W) or (H, W); say with --axes", dataset="g/planes")
    refused(path, "holds |S1; expected numbers", dataset="text")


@pytest.mark.parametrize("level", [0, 7])
def test_a_frame_of_one_value_among_others_comes_out_as_it_went_in(tmp_path, level):
    frames = fan_frames(3)
    frames[1] = level
    path = write(tmp_path / "flat.h5", {"x": frames})
    with open_scan(path) as scan:
        assert not any("one value" in note for note in scan.source.assumptions)
        cine = scan.read()
        told = [note for note in cine.source.assumptions if "one value" in note]
        assert told == [note for note in scan.source.assumptions if "one value" in note] and len(told) == 1
    assert cine.tissue_mask.all(axis=(1, 2)).tolist() == [True, False, True] and not cine.tissue_mask[1].any()
    kept = keep_what_is_no_tissue(Result(cine, cine.frames - 1, cine.frames, None, {}))
    assert np.array_equal(kept.tissue[1], cine.frames[1]) and (kept.haze[1] == -60).all()
    with open_scan(path, frames=slice(0, 1)) as scan:
        assert scan.read().tissue_mask is None
    refused(path, "frame 1 of dataset 'x' is constant", frames=slice(1, 2))


def test_empty_and_constant_frames(tmp_path):
    refused(write(tmp_path / "empty.h5", {"x": np.zeros((0, 64, 64), np.uint8)}), "is empty, shape (0, 64, 64)")
    refused(write(tmp_path / "zero.h5", {"x": np.zeros((2, 32, 32), np.float32)}), "frame 0", "constant")
    refused(write(tmp_path / "iq.h5", {"x": np.zeros((2, 32, 32), np.complex64)}), "every value is 0")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_numbers(tmp_path, bad):
    frames = np.abs(np.random.default_rng(0).normal(size=(3, 32, 32))) * 50
    frames[1, 4, 4:7] = bad
    refused(write(tmp_path / "a.h5", {"x": frames}), "frame 1 of dataset 'x' has 3 values that are not numbers")
    refused(write(tmp_path / "b.h5", {"x": np.full((1, 32, 32), bad)}), "holds no finite value")


def test_rf_lines(tmp_path):
    rf = (np.random.default_rng(0).normal(size=(64, 200)) * 900).astype(np.int16)
    refused(write(tmp_path / "a.h5", {"x": rf}), "values of both signs", "RF and channel data must be beamformed first")


def test_links_and_storage_that_lead_out_of_the_file_are_not_followed(tmp_path):
    secret = write(tmp_path / "secret.h5", {"x": fan_frames()})
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["out"] = h5py.ExternalLink(str(secret), "/x")
        file["soft"] = h5py.SoftLink("/out")
        layout = h5py.VirtualLayout((2, 64, 64), np.uint8)
        layout[...] = h5py.VirtualSource(str(secret), "x", (2, 64, 64))
        file.create_virtual_dataset("virtual", layout)
        raw = tmp_path / "raw.bin"
        raw.write_bytes(bytes(range(256)) * 32)
        file.create_dataset("external", (2, 64, 64), np.uint8, external=[(str(raw), 0, 8192)])
    refused(path, "'out' is a link into another file", dataset="out")
    refused(path, "'soft' is a soft link; name the dataset itself: /out", dataset="soft")
    refused(path, "'virtual' is virtual", dataset="virtual")
    refused(path, "'external' keeps its data in another file", dataset="external")
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["out"] = h5py.ExternalLink(str(secret), "/x")
    refused(tmp_path / "links.h5", "no numeric dataset that could be frames", "links are not followed (out)")


def test_names_that_are_no_text_are_no_links(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple((16, 16))
        h5py.h5d.create(file.id, "séquence".encode("latin-1"), h5py.h5t.NATIVE_UINT8, space)
    refused(tmp_path / "a.h5", "names that are not UTF-8 are not read, rename them (s\ufffdquence)")


def test_links_that_go_round_in_circles_end(tmp_path):
    path = write(tmp_path / "a.h5", {"g/x": fan_frames()})
    with h5py.File(path, "r+") as file:
        file["g/again"] = file["/"]
    assert open_cine(path).source.dataset == "g/x"


def test_sizes_that_are_declared_but_not_stored_take_no_memory(tmp_path):
    with h5py.File(tmp_path / "void.h5", "w") as file:
        file.create_dataset("x", (10**6, 4096, 4096), np.uint8, chunks=(1, 4096, 4096))
    refused(tmp_path / "void.h5", "holds no data")
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        bomb = file.create_dataset("x", (10**6, 4096, 4096), np.uint8, chunks=(1, 64, 64), compression="gzip")
        bomb[0, :64, :64] = 1
    refused(tmp_path / "bomb.h5", "declares 1.68e+04 GB")


def test_too_many_frames_at_once_are_refused_with_advice(tmp_path, monkeypatch):
    monkeypatch.setattr("usdehaze.io.limits.MAX_FRAMES_BYTES", 2**14)
    path = write(tmp_path / "a.h5", {"x": fan_frames(3)})
    refused(path, "3 frames of 64 x 64 need", "--frames")
    assert len(open_cine(path, frames=slice(1, 2)).frames) == 1


def test_folders_give_every_scan_in_them_sorted_without_results_and_other_files(tmp_path):
    for name in ("b.h5", "a/z.hdf5", "a/y", "a/y.dehazed.h5", ".hidden.h5", ".cache/c.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, {"x": fan_frames()})
    (tmp_path / "a" / "notes.h5").write_text("not HDF5")
    (tmp_path / "a" / "gone.h5").symlink_to("nowhere")
    assert [str(p.relative_to(tmp_path)) for p in list_scans([tmp_path])] == ["b.h5", "a/y", "a/z.hdf5"]
    assert list_scans([tmp_path / "a" / "notes.h5"]) == [tmp_path / "a" / "notes.h5"]


def test_real_channel_data_are_refused(data_dir):
    for name in ("muscle", "simulated"):
        refused(data_dir / "rf" / f"{name}_rf_pybf_layout.hdf5", "holds channel data (PyBF)", "beamform it first")
    path = data_dir / "rf" / "muscle_rf_pybf_layout.hdf5"
    refused(path, "must be beamformed first", dataset="data/rf_data/frame_1/shot_1")


def test_a_compression_that_is_not_installed_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=fan_frames(), compression="gzip")
    monkeypatch.setattr("usdehaze.io.hdf5.access.h5py.h5z.filter_avail", lambda code: False)
    refused(path, "'x' is compressed with deflate (HDF5 filter 1), which is not installed; get it with")


def test_a_damaged_file_is_refused_or_read_but_never_anything_else(tmp_path):
    rng = np.random.default_rng(0)
    whole = np.frombuffer(write(tmp_path / "whole.h5", {"g/x": fan_frames(2, 24, 24)}).read_bytes(), np.uint8)
    for _ in range(60):
        damaged = whole.copy()
        damaged[rng.integers(8, 1500, 6)] = rng.integers(0, 256, 6)
        path = tmp_path / "damaged.h5"
        path.write_bytes(damaged.tobytes())
        try:
            open_cine(path)
        except InputError as error:
            assert "\n" not in str(error)
