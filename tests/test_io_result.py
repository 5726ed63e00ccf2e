"""Result and simulation files: the contract, the round trip, and that they appear whole or not at all."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from _results import POLAR as FAN
from _results import make_result

from usdehaze.cine import Cartesian, Cine, Polar, Sector, Source
from usdehaze.errors import InputError
from usdehaze.io import open_cine, open_result, read_result, read_truth, write_result, write_simulation
from usdehaze.provenance import plain
from usdehaze.result import Result

SECTOR = Cartesian((2e-4, 3e-4), (0.001, -0.02), Sector(31.3, -2.6, 1 / 3, 60.1, -0.6, 0.61, 2 / 3), "sector finder")
POLAR = Polar(np.linspace(0.005, 0.15, 16), np.linspace(-0.65, 0.65, 12, dtype=np.float32))
SETTINGS = {
    "preset": "fast",
    "guidance": "proximal",
    "steps": 20,
    "seed": 3,
    "strength": 0.5,
    "scale": (0.93, 0.88),
    "from_guess": True,
    "samples": 1,
    "tissue_prior": "unet-tissue sha256:00ff",
    "haze_prior": "unet-haze sha256:11ee",
    "device": "cpu",
    "precision": None,
}


def a_result(geometry=SECTOR, n_frames=3, with_std=False, times=True):
    rng = np.random.default_rng(0)
    input_db, tissue, haze, std = rng.uniform(-60, 0, (4, n_frames, 16, 12)).astype(np.float32)
    source = Source("scan.h5", "ab" * 32, "g/cine", "HDF5 dataset", "8-bit", ("One thing.", "Another."), 5)
    frame_times_s = np.cumsum(rng.uniform(0.01, 0.03, n_frames)) if times else None
    cine = Cine(input_db, geometry, 60.0, frame_times_s, source)
    return Result(cine, tissue, haze, std if with_std else None, dict(SETTINGS))


def test_the_file_is_what_the_contract_says(tmp_path):
    path, result = tmp_path / "scan.dehazed.h5", a_result()
    write_result(path, result)
    with h5py.File(path) as file:
        assert set(file) == {"tissue", "haze", "input", "geometry", "frame_times_s"}
        assert {key: plain(file.attrs[key]) for key in SETTINGS if key != "precision"} == {
            key: value for key, value in SETTINGS.items() if key != "precision"
        }
        assert file.attrs["notes"] == file.attrs["assumptions"] == "One thing.\nAnother."
        assert file.attrs["format"] == "usdehaze-result" and file.attrs["format_version"] == 1
        assert (file.attrs["source_name"], file.attrs["source_sha256"]) == ("scan.h5", "ab" * 32)
        assert file.attrs["dynamic_range_db"] == 60.0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", file.attrs["created"])
        assert re.match(r"\d", file.attrs["usdehaze_version"])
        for name, array in (("tissue", result.tissue), ("haze", result.haze), ("input", result.cine.frames)):
            dataset = file[name]
            assert (dataset.dtype, dataset.chunks, dataset.compression) == (np.float32, (1, 16, 12), "gzip")
            assert np.array_equal(dataset[()], array)


@pytest.mark.parametrize("geometry", [SECTOR, POLAR, Cartesian()], ids=["sector", "polar", "rectangle"])
@pytest.mark.parametrize("several", [False, True])
def test_everything_comes_back_bit_for_bit(tmp_path, geometry, several):
    path, result = tmp_path / "r.h5", a_result(geometry, with_std=several, times=several)
    write_result(path, result)
    back = read_result(path)
    for ours, theirs in ((back.input, result.cine.frames), (back.tissue, result.tissue), (back.haze, result.haze)):
        assert np.array_equal(ours, theirs)
    assert (back.std is None) != several and (not several or np.array_equal(back.std, result.std))
    assert back.cine.source == result.cine.source
    assert back.settings == {key: value for key, value in SETTINGS.items() if value is not None}
    assert back.attrs["tissue_prior"] == SETTINGS["tissue_prior"] and back.attrs["steps"] == 20
    if several:
        assert np.array_equal(back.cine.frame_times_s, result.cine.frame_times_s)
    else:
        assert back.cine.frame_times_s is None
    if geometry is POLAR:
        assert np.array_equal(back.cine.geometry.depths_m, POLAR.depths_m)
        assert np.array_equal(back.cine.geometry.angles_rad, POLAR.angles_rad)
        assert back.cine.geometry.angles_rad.dtype == np.float32
    else:
        assert back.cine.geometry == geometry


@pytest.mark.parametrize("several", [False, True])
def test_an_open_result_has_all_that_a_result_has_and_reads_single_frames(tmp_path, several):
    path = tmp_path / "r.h5"
    write_result(path, a_result(with_std=several))
    whole = read_result(path)
    with open_result(path) as lazy:
        for name in ("input", "tissue", "haze", *(["std"] if several else [])):
            frames = getattr(lazy, name)
            assert frames.shape == whole.tissue.shape and len(frames) == 3
            assert np.array_equal(frames[1], getattr(whole, name)[1])
            assert np.array_equal(frames[1:3], getattr(whole, name)[1:3])
        for name in (field.name for field in dataclasses.fields(whole) if field.name not in ("cine", "tissue", "haze")):
            assert getattr(lazy, name) is None or name == "std" or getattr(lazy, name) == getattr(whole, name), name
        assert lazy.attrs == whole.attrs and (lazy.std is None) == (whole.std is None)
        for name in ("geometry", "dynamic_range_db", "source", "tissue_mask"):
            assert getattr(lazy.cine, name) == getattr(whole.cine, name)
        assert np.array_equal(lazy.cine.frames[2], whole.cine.frames[2])
        assert np.array_equal(lazy.cine.frame_times_s, whole.cine.frame_times_s)
        part = lazy.read(1, 3)
    assert np.array_equal(part.tissue, whole.tissue[1:]) and np.array_equal(part.input, whole.input[1:])
    assert part.cine.source.first_frame == whole.cine.source.first_frame + 1 == 6


def test_a_frame_of_an_open_result_is_read_whatever_the_others_hold(tmp_path):
    path = tmp_path / "r.h5"
    write_result(path, a_result())
    with h5py.File(path, "r+") as file:
        file["tissue"][1, 2, 3] = np.inf
    with open_result(path) as lazy:
        assert np.isfinite(lazy.tissue[0]).all() and np.isfinite(lazy.tissue[2]).all()
        with pytest.raises(InputError, match="dataset 'tissue' holds values that are not numbers"):
            lazy.tissue[1]


def test_a_result_that_is_written_again_still_says_what_made_it_and_when(tmp_path):
    made = dataclasses.replace(a_result(), usdehaze_version="0.0.1", created="2024-02-29T12:00:00+00:00")
    write_result(tmp_path / "a.h5", made)
    write_result(tmp_path / "b.h5", read_result(tmp_path / "a.h5"))
    with h5py.File(tmp_path / "a.h5") as a, h5py.File(tmp_path / "b.h5") as b:
        assert (b.attrs["usdehaze_version"], b.attrs["created"]) == ("0.0.1", "2024-02-29T12:00:00+00:00")
        assert {key: plain(value) for key, value in a.attrs.items()} == {k: plain(v) for k, v in b.attrs.items()}


def test_a_file_that_has_assumptions_and_no_notes_keeps_them(tmp_path):
    write_result(tmp_path / "r.h5", a_result())
    with h5py.File(tmp_path / "r.h5", "r+") as file:
        del file.attrs["notes"]
    assert read_result(tmp_path / "r.h5").cine.source.assumptions == ("One thing.", "Another.")


def test_an_existing_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "r.h5"
    path.write_bytes(b"precious")
    with pytest.raises(InputError, match=r"r\.h5: exists already; replace it with --overwrite"):
        write_result(path, a_result())
    assert path.read_bytes() == b"precious"
    write_result(path, a_result(), overwrite=True)
    assert read_result(path).cine.source.first_frame == 5
    assert os.listdir(tmp_path) == ["r.h5"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError(28, "No space left on device"), MemoryError])
def test_whatever_interrupts_the_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "r.h5"
    path.write_bytes(b"precious")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(h5py.Group, "create_dataset", fail)
    expected = InputError if isinstance(error, OSError) else error
    with pytest.raises(expected) as caught:
        write_result(path, a_result(), overwrite=True)
    if expected is InputError:
        assert "cannot be written (No space left on device)" in str(caught.value)
    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["r.h5"]


def test_a_killed_process_leaves_nothing_under_the_final_name(tmp_path):
    script = """
import os, signal, sys
import h5py
sys.path.insert(0, sys.argv[2])
from test_io_result import a_result, write_result
plain = h5py.Group.create_dataset
def kill(self, name, *args, **kwargs):
    made = plain(self, name, *args, **kwargs)
    self.file.flush()
    if name == "haze":
        os.kill(os.getpid(), signal.SIGKILL)
    return made
h5py.Group.create_dataset = kill
write_result(sys.argv[1], a_result())
"""
    target = tmp_path / "r.h5"
    done = subprocess.run([sys.executable, "-c", script, str(target), os.path.dirname(__file__)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    assert all(name.startswith(".") and name.endswith(".part") for name in os.listdir(tmp_path))


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written \(.*file is not a folder\)"):
        write_result(tmp_path / "file" / "deep" / "r.h5", a_result())
    with pytest.raises(InputError, match="is a folder; expected the name of a file"):
        write_result(tmp_path, a_result(), overwrite=True)


def test_missing_folders_are_made(tmp_path):
    write_result(tmp_path / "a" / "b" / "r.h5", a_result())
    assert (tmp_path / "a" / "b" / "r.h5").is_file()


def test_a_result_is_not_taken_for_a_scan_but_its_input_can_be(tmp_path):
    path, result = tmp_path / "r.h5", a_result()
    write_result(path, result)
    with pytest.raises(InputError, match=r"is a result of usdehaze, not a scan; .*--dataset input"):
        open_cine(path)
    again = open_cine(path, dataset="input")
    assert np.array_equal(again.frames, result.cine.frames) and again.geometry == SECTOR


def test_a_result_that_is_not_there_or_no_hdf5_is_refused_as_that(tmp_path):
    with pytest.raises(InputError, match=r"none\.h5: no such file$"):
        read_result(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("no result")
    with pytest.raises(InputError, match=r"text\.h5: is not an HDF5 file \(unknown content\); expected an HDF5 file"):
        read_truth(tmp_path / "text.h5")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.__delitem__("haze"), "no dataset 'haze'"),
        (lambda f: f.attrs.__setitem__("format", "else"), "is not a usdehaze-result file; expected a file written by"),
        (lambda f: f.attrs.__setitem__("format_version", 2), "of format version 2; expected version 1"),
        (lambda f: f.attrs.__setitem__("dynamic_range_db", -6.0), "dynamic_range_db is -6.0; expected a positive"),
        (lambda f: f["tissue"].__setitem__((1, 2, 3), np.nan), "dataset 'tissue' holds values that are not numbers"),
        (lambda f: f["geometry"].attrs.__delitem__("kind"), "group geometry cannot be used"),
        (lambda f: f["geometry/sector"].attrs.__setitem__("r_max", 0.1), "radii must satisfy"),
        (lambda f: (f.__delitem__("haze"), f.create_dataset("haze", data=np.ones((2, 16, 12), "f4"))), "(2, 16, 12)"),
        (lambda f: (f.__delitem__("frame_times_s"), f.create_dataset("frame_times_s", data=[0.0])), "shape (1,)"),
    ],
)
def test_damaged_results_are_refused(tmp_path, damage, message):
    path = tmp_path / "r.h5"
    write_result(path, a_result())
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(InputError) as caught:
        read_result(path)
    assert message in str(caught.value)


def test_a_simulation_is_read_as_a_polar_scan_and_with_its_truth(tmp_path):
    rng = np.random.default_rng(0)
    hazy, tissue, haze = rng.uniform(-55, 0, (3, 4, 16, 12)).astype(np.float32)
    times = np.arange(4) / 50
    simulated = SimpleNamespace(
        hazy=hazy, tissue=tissue, haze=haze, geometry=POLAR, frame_times_s=times, dynamic_range_db=55.0, seed=7
    )
    path = tmp_path / "s.h5"
    write_simulation(path, simulated)
    cine = open_cine(path, frames=slice(1, 3))
    assert np.array_equal(cine.frames, hazy[1:3]) and np.array_equal(cine.frame_times_s, times[1:3])
    assert np.array_equal(cine.geometry.depths_m, POLAR.depths_m)
    assert (cine.dynamic_range_db, cine.source.dataset, cine.source.layout) == (55, "hazy", "usdehaze simulation")
    assert cine.source.assumptions == ()
    assert np.array_equal(open_cine(path, dataset="tissue").frames, tissue)
    truth = read_truth(path)
    assert np.array_equal(truth.tissue, tissue) and np.array_equal(truth.haze, haze) and truth.seed == 7
    with pytest.raises(InputError, match="is not a usdehaze-result file"):
        read_result(path)


@pytest.mark.parametrize("spacing", [(0.0, 1e-3), (np.nan, 1e-3), (1e-3, np.nan), (1e-3, -1e-3)])
def test_pixels_that_are_no_way_apart_are_refused(tmp_path, spacing):
    path = tmp_path / "a.dehazed.h5"
    make_result(path)
    with h5py.File(path, "r+") as file:
        file["geometry"].attrs["spacing_m"] = spacing
    with pytest.raises(InputError, match="group geometry cannot be used"), open_result(path):
        pass


def test_a_polar_grid_of_another_size_than_the_frames_is_refused_before_they_are_read(tmp_path):
    path = tmp_path / "a.dehazed.h5"
    make_result(path, FAN)
    with h5py.File(path, "r+") as file:
        del file["geometry/depths_m"]
        file["geometry/depths_m"] = np.linspace(0.01, 0.1, 7)
    with pytest.raises(InputError, match=r"7 depths and 48 angles; expected \(40, 48\)"), open_result(path):
        pass


@pytest.mark.parametrize(
    ("name", "axis", "reason"),
    [
        ("angles_rad", np.linspace(-4.0, 4.0, 48), "angles are in rad, and span no more than a full turn"),
        ("angles_rad", np.r_[np.linspace(-0.6, 0.6, 47), np.nan], "depths and angles must increase"),
        ("depths_m", np.linspace(0.1, 0.01, 40), "depths and angles must increase"),
        ("depths_m", np.linspace(0.01, 0.1, 40)[:, None], "depths and angles must increase"),
        ("depths_m", [b"deep"] * 40, "depths and angles must increase"),
    ],
)
def test_a_polar_grid_that_can_be_none_is_refused_as_a_result_is_opened(tmp_path, name, axis, reason):
    path = tmp_path / "a.dehazed.h5"
    make_result(path, FAN)
    with h5py.File(path, "r+") as file:
        del file[f"geometry/{name}"]
        file[f"geometry/{name}"] = axis
    with pytest.raises(InputError, match=rf"cannot be used \(polar geometry: {reason}\); write"), open_result(path):
        pass
