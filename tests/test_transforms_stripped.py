"""Metadata that a cache or a transform has taken away are noticed: without them a colour box would be dehazed."""

import warnings

import numpy as np
import pytest
import torch
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.data import CacheNTransDataset, PersistentDataset, set_track_meta
from monai.transforms import Compose, EnsureTyped, ToTensord

from usdehaze.cine import Cine
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.transforms import (
    DehazeUltrasound,
    DehazeUltrasoundd,
    LoadUltrasound,
    LoadUltrasoundd,
    SaveUltrasoundd,
    UltrasoundDicomWriter,
    UltrasoundReader,
)


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """A DICOM screen with a coloured box, and a file of 45 dB."""
    folder = tmp_path_factory.mktemp("scans")
    rgb = np.repeat(fan_frames(2)[..., None], 3, axis=-1)
    rgb[:, 30:40, 20:44] = (200, 20, 20)
    shallow = write(folder / "shallow.h5", {"cine": fan_frames(2)}, dynamic_range_db=45.0)
    return [write_dicom(folder / "colour.dcm", rgb, "RGB", regions=[region()]), shallow]


def cached(make, scan, load, folder):
    """What a dataset gives out of its cache."""
    data = make([{"image": str(scan)}], load, folder)
    assert isinstance(data[0], dict)
    return data[0]


STRIPPING = {
    "persistent": lambda d, t, folder: PersistentDataset(d, t, folder),
    "n-trans": lambda d, t, folder: CacheNTransDataset(d, t, 1, folder),
    "ensure-type": lambda d, t, folder: PersistentDataset(
        d, Compose([t, EnsureTyped("image", track_meta=False)]), None
    ),
    "to-tensor": lambda d, t, folder: PersistentDataset(d, Compose([t, ToTensord("image", track_meta=False)]), None),
    "wrapped-again": lambda d, t, folder: PersistentDataset(
        d, Compose([t, ToTensord("image", track_meta=False), EnsureTyped("image", track_meta=True)]), None
    ),
}


@pytest.mark.parametrize("strip", STRIPPING)
def test_frames_that_lost_their_metadata_are_refused(tmp_path, scans, options, strip):
    for index, scan in enumerate(scans):
        item = cached(STRIPPING[strip], scan, LoadUltrasoundd("image"), tmp_path / str(index))
        with pytest.raises(InputError, match=r"its metadata are lost.*track_meta=True") as caught:
            DehazeUltrasoundd("image", **options)(item)
        assert "\n" not in str(caught.value)


def test_metadata_that_are_kept_give_the_same_values(tmp_path, scans, options):
    load, dehaze = LoadUltrasoundd("image"), DehazeUltrasoundd("image", **options)
    for index, scan in enumerate(scans):
        data = PersistentDataset([{"image": str(scan)}], load, tmp_path / str(index), track_meta=True)
        assert data[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a cache that cannot be read
            kept = data[0]
        assert np.array_equal(dehaze(kept)["image"], dehaze(load({"image": scan}))["image"])


def test_whoever_says_what_is_lost_is_believed_and_guesses_are_warned_of(options):
    frames = torch.as_tensor(np.where(fan_frames(1) > 0, -20.0, -45.0).astype(np.float32))
    said = DehazeUltrasoundd("image", geometry="find", dynamic_range_db=45, **options)
    assert said({"image": frames})["image"].shape == (1, 64, 64)
    for half in ({"geometry": "find"}, {"dynamic_range_db": 45}):
        with pytest.raises(InputError, match="its metadata are lost"):
            DehazeUltrasoundd("image", **half, **options)({"image": frames})
    with pytest.warns(UserWarning, match="a dynamic range of 60 dB, the geometry that the sector finder sees"):
        DehazeUltrasound(**options)(frames)


def test_without_tracking_nothing_is_guessed(scans, options):
    set_track_meta(False)
    try:
        item = LoadUltrasoundd("image")({"image": scans[0]})
    finally:
        set_track_meta(True)
    with pytest.raises(InputError, match=r"set_track_meta\(True\)"):
        DehazeUltrasoundd("image", **options)(item)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LoadUltrasound(units="pixels"), "units 'pixels'"),
        (lambda: LoadUltrasoundd("image", dynamic_range_db=0), "dynamic range of 0 dB"),
        (lambda: LoadUltrasoundd("image", frames=(0, 3)), "frames must be a slice"),
        (lambda: UltrasoundReader(frames=slice(0, 9, 2)), "step of 2"),
        (lambda: UltrasoundReader(frames=slice(5, 5)), "hold none"),
        (lambda: UltrasoundReader(frames=slice(0.5, 3)), "whole numbers"),
        (lambda: UltrasoundReader(axes="TWX"), "axes 'TWX'"),
        (lambda: UltrasoundReader(axes="TTHW"), "axes 'TTHW'"),
        (lambda: LoadUltrasound(dataset=3), "dataset must be"),
        (lambda: SaveUltrasoundd("tissue", transfer_syntax="jpeg"), "transfer syntax 'jpeg'"),
        (lambda: UltrasoundDicomWriter(transfer_syntax="jpeg"), "transfer syntax 'jpeg'"),
    ],
)
def test_wrong_options_of_loaders_and_savers_fail_in_the_constructor(make, said):
    with pytest.raises((TypeError, ValueError, UsdehazeError), match=said):
        make()


@pytest.mark.parametrize(
    ("low", "high", "convert"),
    [
        (0.0, 1.0, lambda f: (f - 1) * 60),
        (0.0, 255.0, lambda f: (f / 255 - 1) * 60),
        (0.0, 9000.0, lambda f: np.clip(20 * np.log10(np.maximum(f / f.max(), 1e-9)), -60, 0)),
        (-80.0, -1.0, lambda f: np.clip(f, -60, 0)),
        (-40.0, 20.0, lambda f: np.clip(f - f.max(), -60, 0)),
        (float("nan"), 0.0, lambda f: np.nan_to_num(f, nan=-60, neginf=-60)),
    ],
)
def test_frames_of_other_units_are_refused_with_the_way_to_convert_them(low, high, convert):
    from usdehaze.cine import Cartesian

    frames = np.linspace(low, high, 12, dtype=np.float32).reshape(1, 3, 4)
    if np.isnan(low):
        frames = np.array([[[np.nan, -30], [-20, 0]]], np.float32)
    formula = {
        1.0: "(frames - 1) * 60",
        255.0: "(frames / 255 - 1) * 60",
        9000.0: "20 * np.log10",
        -1.0: "np.clip(frames, -60, 0)",
    }
    with pytest.raises(ValueError) as caught:
        Cine(frames, Cartesian())
    assert formula.get(high, "np.") in str(caught.value)
    assert Cine(convert(frames).astype(np.float32), Cartesian()).frames.min() >= -60
