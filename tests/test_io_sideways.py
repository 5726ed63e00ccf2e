"""Axes in any order: frames, colours and a fan that lies on its side."""

from itertools import permutations

import numpy as np
import pytest
from _scans import in_db, refused, speckled_fan, write

from usdehaze.io import open_cine, open_scan
from usdehaze.notes import Guess

CINE = np.rint(in_db(speckled_fan(12)) / 60 * 255 + 255).astype(np.uint8)


def stored_as(array, letters, order):
    return np.ascontiguousarray(array.transpose([letters.index(letter) for letter in order]))


def expected(grey):
    return grey / 255 * 60 - 60


def is_read_as(path, grey, order, usual, **options):
    cine = open_cine(path, **options)
    assert cine.frames.shape == grey.shape and np.abs(cine.frames - expected(grey)).max() < 60 / 255
    assert cine.geometry.sector is not None
    told = [n for n in cine.source.assumptions if isinstance(n, Guess) and n.settle == "--axes"]
    assert [order in note for note in told] == ([] if order == usual or options else [True])


@pytest.mark.parametrize("order", ["".join(p) for p in permutations("THW")])
@pytest.mark.parametrize("n_frames", [2, 3, 12])
def test_a_cine_in_any_order_of_axes(tmp_path, order, n_frames):
    path = write(tmp_path / "a.h5", {"x": stored_as(CINE[:n_frames], "THW", order)})
    is_read_as(path, CINE[:n_frames], order, "THW")


@pytest.mark.parametrize("order", ["HW", "WH"])
def test_a_still_on_its_side(tmp_path, order):
    is_read_as(write(tmp_path / "a.h5", {"x": stored_as(CINE[0], "HW", order)}), CINE[:1], order, "HW")


@pytest.mark.parametrize("order", ["THWC", "TCHW", "HWCT", "TWHC", "CTWH", "WHTC", "WCTH"])
def test_three_frames_of_three_colours(tmp_path, order):
    colours = np.repeat(CINE[:3, ..., None], 3, axis=3)
    is_read_as(write(tmp_path / "a.h5", {"x": stored_as(colours, "THWC", order)}), CINE[:3], order, "")


@pytest.mark.parametrize("order", ["".join(p) for p in permutations("HWC")])
def test_a_still_in_colour_is_no_cine_of_three_frames(tmp_path, order):
    colours = np.repeat(CINE[0, ..., None], 3, axis=2)
    is_read_as(write(tmp_path / "a.h5", {"x": stored_as(colours, "HWC", order)}), CINE[:1], order, "")


def test_a_tinted_still_is_no_cine_of_three_frames(tmp_path):
    grey = CINE[0]
    tinted = np.stack([grey, np.where(grey > 0, grey // 2 + 40, 0), grey // 3], axis=2).astype(np.uint8)
    assert len(open_cine(write(tmp_path / "a.h5", {"x": tinted})).frames) == 1


@pytest.mark.parametrize("n_slices", [3, 4])
@pytest.mark.parametrize("last", [False, True])
def test_slices_of_a_volume_are_no_colours(tmp_path, n_slices, last):
    slices = np.stack([np.rint(255 * (in_db(speckled_fan(6, seed=s)) / 60 + 1)) for s in range(n_slices)], axis=1)
    stored = (np.moveaxis(slices, 1, -1) if last else slices).astype(np.uint8)
    refused(write(tmp_path / "a.h5", {"x": stored}), f"has shape {stored.shape}; expected frames (T, H, W) or (H, W)")


def test_axes_that_are_asked_for_are_not_tried(tmp_path):
    path = write(tmp_path / "a.h5", {"x": stored_as(CINE, "THW", "TWH")})
    is_read_as(path, CINE, "TWH", "THW", axes="TWH")
    lying = open_cine(path, axes="THW")
    assert lying.frames.shape == (12, CINE.shape[2], CINE.shape[1])


def test_what_matlab_writes_of_its_own_is_turned_too(tmp_path):
    path = tmp_path / "a.h5"
    write(path, {"x": stored_as(CINE, "THW", "THW")})  # in MATLAB: columns x rows x frames
    import h5py

    with h5py.File(path, "r+") as file:
        file["x"].attrs["MATLAB_class"] = np.bytes_("uint8")
    is_read_as(path, CINE, "THW", "")


def test_a_scan_on_its_side_is_read_in_parts_and_after_a_fork(tmp_path):
    import pickle

    path = write(tmp_path / "a.h5", {"x": stored_as(CINE, "THW", "TWH")})
    whole = open_cine(path)
    with open_scan(path) as scan:
        assert scan.shape == CINE.shape[1:]
        again = pickle.loads(pickle.dumps(scan))
        assert np.array_equal(again.read_db(3, 6), whole.frames[3:6]) and again.shape == scan.shape
        again.close()


def test_no_fan_is_sought_in_a_rectangle(tmp_path):
    path = write(tmp_path / "a.h5", {"x": stored_as(CINE, "THW", "TWH")})
    cine = open_cine(path, rectangle=True)
    assert cine.geometry.sector is None and cine.frames.shape == (12, CINE.shape[2], CINE.shape[1])
    assert not any("ector" in note for note in cine.source.assumptions)
