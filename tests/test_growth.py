"""What is kept of a frame while a page, a summary or a file is made: little, however many frames there are."""

import json
import tracemalloc
from contextlib import ExitStack
from copy import deepcopy

import h5py
import numpy as np
import pytest
from _results import make_result
from test_review import data_of

from usdehaze.cine import Cartesian
from usdehaze.io.h5_output import Hdf5Output
from usdehaze.io.hdf5.access import METADATA_BYTES, open_h5
from usdehaze.io.own_files import create_frames
from usdehaze.io.result import open_result
from usdehaze.review import build_review
from usdehaze.validation.evaluate import region_record
from usdehaze.validation.regions import automatic_regions
from usdehaze.validation.uncertainty import DRAWN_AT_ONCE, bootstrap_ci95

KIB = 1024
FEW, MANY, SIDE = 10, 60, 48


def peak(work):
    """Bytes that ``work`` takes at most at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def of_a_frame(work):
    """Bytes by which the peak grows with a frame; the first time is for what is loaded once."""
    work(FEW)
    return (peak(lambda: work(MANY)) - peak(lambda: work(FEW))) / (MANY - FEW)


def moving_regions(n_frames):
    """A tissue and a haze region in every frame, of thirty corners each."""
    turn = np.linspace(0, 2 * np.pi, 30, endpoint=False)
    regions = []
    for t in range(n_frames):
        for role, x in (("tissue", 12), ("haze", 34)):
            polygon = np.stack([x + 9 * np.cos(turn), 24 + (18 + t % 3) * np.sin(turn)], 1).tolist()
            regions.append({"name": role, "role": role, "frames": [t], "polygon": polygon})
    return {"regions": regions}


def test_a_page_keeps_little_of_a_frame_whose_regions_move(tmp_path, monkeypatch):
    """Masks, polygons and records as they are read and made would be some 30 KiB a frame, its pictures 36."""
    rng = np.random.default_rng(0)
    image = rng.uniform(-50, -5, (SIDE, SIDE)).astype(np.float32)
    half = np.arange(SIDE) < SIDE // 2
    masks = {
        "tissue": np.tile(half, (SIDE, 1)),
        "haze": np.tile(~half, (SIDE, 1)),
        "faint": np.zeros((SIDE, SIDE), bool),
    }
    record = region_record(image, image - 1, masks, None, -60.0)
    monkeypatch.setattr("usdehaze.review.figures.region_record", lambda *_: deepcopy(record))
    monkeypatch.setattr("usdehaze.review.page.doubts_of", lambda _: [])  # reads megabytes at once, and so do these:
    monkeypatch.setattr("usdehaze.review.page.file_sha256", lambda _: "")
    monkeypatch.setattr("usdehaze.io.hdf5.heap_check._BLOCK", 2**14)
    monkeypatch.setattr("usdehaze.validation.uncertainty.DRAWN_AT_ONCE", 2**9)
    make_result(tmp_path / "a.dehazed.h5", Cartesian(), shape=(MANY, SIDE, SIDE))
    for n in (FEW, MANY):
        (tmp_path / f"{n}.json").write_text(json.dumps(moving_regions(n)))

    def build(n):
        page, regions = tmp_path / f"{n}.html", tmp_path / f"{n}.json"
        build_review(tmp_path / "a.dehazed.h5", page, regions, overwrite=True, frames=slice(0, n))

    assert of_a_frame(build) < 8 * KIB
    page = tmp_path / f"{MANY}.html"
    metrics, about = data_of(page, "metrics"), data_of(page, "page")
    assert [frame["frame"] for frame in metrics["frames"]] == list(range(MANY)) and metrics["settings"][
        "n_frames"
    ] == MANY
    assert metrics["frames"][-1]["gcnr"] == json.loads(json.dumps(record["gcnr"]))
    assert about["polygons"] == moving_regions(MANY)["regions"]
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_automatic_regions_are_found_a_frame_at_a_time(tmp_path):
    found = {}
    with ExitStack() as stack:
        cines = {}
        for n in (FEW, MANY):
            make_result(tmp_path / f"{n}.dehazed.h5", Cartesian(), shape=(n, SIDE, SIDE), blob=True)
            cines[n] = stack.enter_context(open_result(tmp_path / f"{n}.dehazed.h5")).cine
        assert of_a_frame(lambda n: found.update({n: automatic_regions(cines[n])})) < 2 * KIB  # its pixels: 9
        whole = automatic_regions(cines[FEW].read())
    for role in ("tissue", "haze"):
        for t in (0, FEW - 1):
            assert np.array_equal(found[FEW].mask(role, t), whole.mask(role, t)) and whole.mask(role, t).sum() > 200


def test_a_bootstrap_draws_a_part_at_a_time_and_the_same(monkeypatch):
    values, clusters = np.random.default_rng(0).normal(size=5000), np.arange(5000)
    assert peak(lambda: bootstrap_ci95(values, clusters)) < 8 * 8 * DRAWN_AT_ONCE  # of all at once: 240 MB
    drawn = np.random.default_rng(7).integers(300, size=(2000, 300))
    expected = np.percentile(values[:300][drawn].mean(axis=1), [2.5, 97.5])
    assert bootstrap_ci95(values[:300], np.arange(300), seed=7) == pytest.approx(tuple(expected), abs=1e-12)


def test_the_hdf5_library_keeps_little_of_what_leads_to_frames(tmp_path):
    """Of a file of 3,000 frames it would keep all."""
    path, frames = tmp_path / "a.h5", np.zeros((3000, 8, 8), np.float32)
    output = Hdf5Output(path)
    for name in ("a", "b", "c"):
        create_frames(output.file, name, frames.shape)[...] = frames
        assert output.file.id.get_mdc_size()[2] <= METADATA_BYTES
    output.close()
    with open_h5(path) as file:
        for name in ("a", "b", "c"):
            assert file[name][...].shape == frames.shape
        assert file.id.get_mdc_size()[2] <= METADATA_BYTES
    with h5py.File(path) as file:  # unbounded
        for name in ("a", "b", "c"):
            file[name][...]
        assert file.id.get_mdc_size()[2] > 1.5 * METADATA_BYTES
