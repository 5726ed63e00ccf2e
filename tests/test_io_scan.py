"""Scans read, dehazed and written a few frames at a time give what they give at once."""

import multiprocessing
import os
import pickle
import warnings
from dataclasses import replace

import h5py
import numpy as np
import pytest
from _results import write_preview
from _scans import fan_frames, write
from _tiny_priors import write_tiny_priors

from usdehaze import Dehazer, open_cine
from usdehaze.decibels import grey_to_db
from usdehaze.errors import InputError
from usdehaze.geometry import find_sector
from usdehaze.io import ResultWriter, open_scan, read_result, write_result
from usdehaze.io.hdf5.layouts.blocks import BlockReader
from usdehaze.io.scan import CineScan
from usdehaze.io.stored_scan import StoredScan
from usdehaze.io.zea import ZeaWriter, coordinates_of
from usdehaze.preview import PreviewWriter
from usdehaze.result import Result


@pytest.fixture
def scan_path(tmp_path):
    return write(tmp_path / "scan.h5", {"x": fan_frames(7)})


def a_result(cine):
    tissue = np.maximum(cine.frames - 3, -cine.dynamic_range_db)
    settings = {"preset": "fast", "seed": 4}
    return Result(cine, tissue, tissue - 2, None, settings)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_chunks_are_the_cine_cut_in_pieces_that_know_their_place(scan_path, size):
    whole = open_cine(scan_path, frames=slice(1, 7))
    with open_scan(scan_path, frames=slice(1, 7)) as scan:
        chunks = list(scan.chunks(size))
    assert np.array_equal(np.concatenate([c.frames for c in chunks]), whole.frames)
    assert [c.source.first_frame for c in chunks] == list(range(1, 7, size))
    assert all(c.geometry == whole.geometry and len(c.frames) <= size for c in chunks)


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (2, 3), (-1, 1), (-1, None), (1, 1), (2, None)])
def test_frames_that_were_not_asked_for_are_not_read(scan_path, start, stop):
    cine = open_cine(scan_path, frames=slice(1, 3))
    with open_scan(scan_path, frames=slice(1, 3)) as scan:
        for each in (scan, CineScan(cine)):
            with pytest.raises(InputError, match=rf"scan.h5: no frames {start}:\S+; expected frames within 0:2"):
                each.read(start, stop)
            assert np.array_equal(each.read(1).frames, cine.frames[1:])


def test_dehazing_in_chunks_changes_no_bit(tmp_path, scan_path):
    dehazer = Dehazer.from_pretrained(**write_tiny_priors(tmp_path), seed=5)
    whole = dehazer.dehaze(open_cine(scan_path, frames=slice(2, 7)))
    with open_scan(scan_path, frames=slice(2, 7)) as scan:
        results = [dehazer.dehaze(cine) for cine in scan.chunks(2)]
    for part in ("tissue", "haze"):
        assert np.array_equal(np.concatenate([getattr(r, part) for r in results]), getattr(whole, part))


def test_a_result_written_in_chunks_is_the_one_written_at_once(tmp_path, scan_path):
    write_result(tmp_path / "whole.h5", a_result(open_cine(scan_path)))
    with open_scan(scan_path) as scan, ResultWriter(tmp_path / "parts.h5", scan) as writer:
        for cine in scan.chunks(3):
            writer.append(a_result(cine))
    whole, parts = read_result(tmp_path / "whole.h5"), read_result(tmp_path / "parts.h5")
    for part in ("input", "tissue", "haze"):
        assert np.array_equal(getattr(whole, part), getattr(parts, part))
    assert whole.cine.source == parts.cine.source and whole.cine.geometry == parts.cine.geometry
    assert {**whole.attrs, "created": ""} == {**parts.attrs, "created": ""}


@pytest.mark.parametrize("kind", ["png", "gif", "mp4"])
def test_a_preview_drawn_in_chunks_is_the_one_drawn_at_once(tmp_path, scan_path, kind):
    if kind == "mp4":
        pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'video'")
    write_preview(tmp_path / "whole", a_result(open_cine(scan_path)), kind)
    with open_scan(scan_path) as scan, PreviewWriter(tmp_path / "parts", scan, kind) as writer:
        for cine in scan.chunks(2):
            writer.append(a_result(cine))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_frames_that_are_missing_leave_no_file(tmp_path, scan_path):
    with open_scan(scan_path) as scan:
        with pytest.raises(RuntimeError, match="3 of 7 frames written"):
            with ResultWriter(tmp_path / "out" / "r.h5", scan) as writer:
                writer.append(a_result(scan.read(0, 3)))
    assert not (tmp_path / "out").exists()


def test_a_reader_holds_no_more_than_a_block_of_a_long_cine(tmp_path, monkeypatch):
    monkeypatch.setattr("usdehaze.io.hdf5.layouts.blocks.BLOCK_BYTES", 3 * 64 * 64)
    read = []
    plain = h5py.Dataset.__getitem__

    def watch(self, where):
        values = plain(self, where)
        read.append(values.nbytes)
        return values

    with h5py.File(tmp_path / "long.h5", "w") as file:
        file.create_dataset("x", data=fan_frames(40).transpose(1, 2, 0))
    monkeypatch.setattr(h5py.Dataset, "__getitem__", watch)
    with open_scan(tmp_path / "long.h5", axes="HWT") as scan:
        read.clear()
        for _ in scan.chunks(5):
            pass
    assert max(read) <= 3 * 64 * 64 and sum(read) == 40 * 64 * 64  # every frame once


def test_of_a_scan_without_geometry_only_the_frames_that_decide_its_sector_are_read(tmp_path, monkeypatch):
    frames = np.roll(fan_frames(1, 96, 96), 1) + np.zeros((200, 1, 1), np.uint8)
    frames[:, 40:44, 44:50] = np.arange(200)[:, None, None] + 1  # so that every frame is another
    path, read = write(tmp_path / "long.h5", {"x": frames}), []
    plain = BlockReader.__call__
    monkeypatch.setattr(BlockReader, "__call__", lambda self, index: read.append(index) or plain(self, index))
    with open_scan(path, axes="THW") as scan:
        assert len(read) == len(set(read)) == 12 and min(read) == 0 and max(read) == 199
        spread = np.linspace(0, 199, 64).round().astype(int)
        of_64 = find_sector(grey_to_db(frames[spread], 60.0), -60.0)
        assert scan.geometry.sector == of_64 is not None


def test_a_scan_can_be_pickled_and_goes_on_reading(scan_path):
    with open_scan(scan_path) as scan:
        copy = pickle.loads(pickle.dumps(scan))
        with copy:
            assert np.array_equal(copy.read(2, 4).frames, scan.read(2, 4).frames)


def _read_in_child(scan, queue):
    before = scan._file
    frames = scan.read_db(1, 3)
    queue.put((frames, scan._file is before, scan._opened_by == os.getpid()))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_worker_opens_the_file_for_itself(scan_path):
    context = multiprocessing.get_context("fork")
    with open_scan(scan_path) as scan:
        queue = context.Queue()
        worker = context.Process(target=_read_in_child, args=(scan, queue))
        worker.start()
        frames, same_handle, own = queue.get(timeout=60)
        worker.join(60)
        assert np.array_equal(frames, scan.read_db(1, 3)) and own and not same_handle


def test_a_file_that_shrinks_while_it_is_read_gives_one_line(tmp_path):
    # three times what the HDF5 library keeps in memory, so that it has to come back to the file for some frame
    path = write(tmp_path / "a.h5", {"x": np.random.default_rng(0).integers(1, 255, (50, 64, 64)).astype(np.uint8)})
    with open_scan(path) as scan:
        os.truncate(path, 60_000)
        with pytest.raises(InputError, match=r"changed while it was read \(\d+ bytes then, 60000 now\)"):
            scan.read()


def test_every_kind_of_stored_scan_lets_go_of_its_file_when_opening_fails(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(StoredScan, "close", lambda self: closed.append(self.path))
    path = write(tmp_path / "a.h5", {"x": np.zeros((2, 32, 32), np.complex64)})
    with pytest.raises(InputError):
        open_scan(path)
    assert closed == [path]


def test_a_zea_file_holds_the_maps_and_where_their_pixels_are(tmp_path, data_dir):
    cine = open_cine(data_dir / "hdf5" / "zea_beamformed_iq.hdf5")
    result = a_result(cine)
    with ZeaWriter(tmp_path / "a.hdf5", CineScan(cine)) as writer:
        writer.append(result)
    back = open_cine(tmp_path / "a.hdf5")
    assert back.source.layout == "zea 0.1.8" and np.array_equal(back.frames, cine.frames)
    assert np.allclose(back.geometry.depths_m, cine.geometry.depths_m, atol=1e-7)
    with h5py.File(tmp_path / "a.hdf5") as file:
        data = file["tracks/track_0/data"]
        assert set(data) == {"image", "tissue", "haze"} and file["custom"].attrs["seed"] == 4
        assert np.array_equal(data["tissue/values"], result.tissue)
        assert data["haze/min"][()] == -60 and data["haze/unit"].asstr()[()] == "dB"
    with h5py.File(data_dir / "hdf5" / "zea_beamformed_iq.hdf5") as file:
        theirs = file["tracks/track_0/data/beamformed_data/coordinates"][()]
    assert np.abs(coordinates_of(cine.geometry, cine.frames.shape[1:]) - theirs).max() < 1e-6


def test_a_zea_file_leaves_out_times_that_it_cannot_hold(tmp_path):
    cine = open_cine(write(tmp_path / "a.h5", {"x": fan_frames(3)}))
    for latest, kept in ((2.0, True), (1e308, False)):
        cine = replace(cine, frame_times_s=np.array([0.0, 1.0, latest]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with ZeaWriter(tmp_path / "a.hdf5", CineScan(cine), overwrite=True) as writer:
                writer.append(a_result(cine))
        with h5py.File(tmp_path / "a.hdf5") as file:
            assert ("timestamps" in file["tracks/track_0/data/image"]) == kept
