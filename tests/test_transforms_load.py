"""LoadUltrasound and LoadUltrasoundd: values, metadata, and that MONAI's own transforms understand both."""

import hashlib

import numpy as np
import pytest
import torch
from _scans import fan_frames, write
from monai.data import DataLoader, Dataset, MetaTensor, decollate_batch, set_track_meta
from monai.transforms import Compose, CopyItemsd, EnsureChannelFirst, Resize, Spacing

from usdehaze import open_cine
from usdehaze.cine import Cartesian, Cine, Polar, Sector, Source
from usdehaze.errors import InputError
from usdehaze.io import read_result, write_simulation
from usdehaze.simulate import simulate_cine
from usdehaze.transforms import (
    DehazeUltrasoundd,
    LoadUltrasound,
    LoadUltrasoundD,
    LoadUltrasoundd,
    LoadUltrasoundDict,
    SaveUltrasoundd,
)
from usdehaze.transforms.meta import affine_of, cine_of, decode_geometry, encode_geometry, geometry_in, meta_of

SECTOR = Cartesian((2e-4, 3e-4), (0.001, -0.02), Sector(31.3, -2.6, 1 / 3, 60.1, -0.6, 0.61, 2 / 3), "sector finder")
POLAR = Polar(np.linspace(0.005, 0.15, 16), np.linspace(-0.65, 0.65, 12, dtype=np.float32))


@pytest.fixture(scope="module")
def fan(tmp_path_factory):
    return write(tmp_path_factory.mktemp("scans") / "fan.h5", {"g/cine": fan_frames(5), "g/other": fan_frames(2)})


@pytest.fixture(scope="module")
def polar(tmp_path_factory):
    path = tmp_path_factory.mktemp("scans") / "simulated.h5"
    write_simulation(path, simulate_cine(n_frames=5, seed=1, n_depth=64, n_angle=64))
    return path


def test_frames_and_provenance_are_those_of_open_cine(fan):
    image = LoadUltrasound(dataset="g/cine", dynamic_range_db=50, frames=slice(1, 4))(fan)
    cine = open_cine(fan, dataset="g/cine", dynamic_range_db=50, frames=slice(1, 4))
    assert isinstance(image, MetaTensor) and image.dtype == torch.float32
    assert np.array_equal(image.numpy(), cine.frames) and image.shape == (3, 64, 64)
    assert image.meta["dynamic_range_db"] == 50.0 and image.meta["first_frame"] == 1
    assert image.meta["source_name"] == "fan.h5" and image.meta["source_dataset"] == "g/cine"
    assert image.meta["source_sha256"] == hashlib.sha256(fan.read_bytes()).hexdigest()
    assert image.meta["source_units"] == "8-bit"
    assert image.meta["assumptions"].split("\n") == list(cine.source.assumptions)
    assert image.meta["filename_or_obj"] == str(fan)
    assert image.meta["frame_times_s"] == "null"
    assert geometry_in(image) == cine.geometry and cine.geometry.sector is not None


def test_metadata_and_frames_make_the_cine_again(polar):
    image, cine = LoadUltrasound()(polar), open_cine(polar)
    again = cine_of(image, image.numpy(), geometry_in(image), image.meta["dynamic_range_db"])
    assert again.source == cine.source
    assert np.array_equal(again.frame_times_s, cine.frame_times_s)
    assert np.array_equal(again.geometry.depths_m, cine.geometry.depths_m)
    assert np.array_equal(again.geometry.angles_rad, cine.geometry.angles_rad)


@pytest.mark.parametrize("geometry", [SECTOR, POLAR, Cartesian()], ids=["sector", "polar", "rectangle"])
def test_a_geometry_survives_being_written_as_text(geometry):
    affine = affine_of(geometry)
    again, shape, affine_again = decode_geometry(encode_geometry(geometry, (16, 12), affine))
    assert shape == (16, 12) and np.array_equal(affine_again, affine)
    if isinstance(geometry, Polar):
        assert np.array_equal(again.depths_m, geometry.depths_m)
        assert np.array_equal(again.angles_rad, geometry.angles_rad)
    else:
        assert again == geometry


def test_the_affine_is_row_then_column_in_millimetres():
    frames = np.full((2, 40, 60), -30, np.float32)
    meta = meta_of(Cine(frames, SECTOR, 60.0, None, Source()), "a.h5")
    image = MetaTensor(frames, meta=meta)
    assert np.allclose(image.affine, [[0.2, 0, 1], [0, 0.3, -20], [0, 0, 1]])
    assert image.spatial_ndim == 2 and np.allclose(image.pixdim, [0.2, 0.3])
    assert Spacing((0.4, 0.6))(image).shape == (2, 20, 30)  # MONAI reads the pitch as we mean it


def test_without_a_pitch_the_affine_is_the_identity(fan, polar):
    for path, dataset in ((fan, "g/cine"), (polar, None)):
        assert torch.equal(LoadUltrasound(dataset)(path).affine, torch.eye(3, dtype=torch.float64))


def test_monai_sees_frames_as_channels(polar):
    image = LoadUltrasound()(polar)
    assert EnsureChannelFirst()(image).shape == image.shape == (5, 64, 64)
    resized = Resize((32, 48))(image)
    assert resized.shape == (5, 32, 48)
    assert torch.equal(resized[3], Resize((32, 48))(image[3:4])[0])


def test_array_and_dictionary_versions_agree(fan):
    loaded = LoadUltrasoundd("image", dataset="g/cine", frames=slice(2))({"image": fan, "label": 7})
    assert torch.equal(loaded["image"], LoadUltrasound(dataset="g/cine", frames=slice(2))(fan)) and loaded["label"] == 7
    assert LoadUltrasoundD is LoadUltrasoundDict is LoadUltrasoundd


def test_a_missing_key_is_an_error_unless_allowed():
    with pytest.raises(KeyError, match="`image` of transform `LoadUltrasoundd` was missing"):
        LoadUltrasoundd("image")({"other": 1})
    assert LoadUltrasoundd("image", allow_missing_keys=True)({"other": 1}) == {"other": 1}


def test_the_readers_own_error_reaches_the_user(tmp_path, fan):
    (tmp_path / "not.h5").write_text("no scan")
    with pytest.raises(InputError, match=r"not\.h5: is no scan"):
        LoadUltrasound()(tmp_path / "not.h5")
    with pytest.raises(RuntimeError) as caught:
        Compose([LoadUltrasoundd("image")])({"image": fan})
    assert isinstance(caught.value.__cause__, InputError) and "pick one with" in str(caught.value.__cause__)


def test_without_metadata_tracking_a_plain_tensor_comes(fan):
    try:
        set_track_meta(False)
        image = LoadUltrasound("g/cine")(fan)
    finally:
        set_track_meta(True)
    assert type(image) is torch.Tensor and image.shape == (5, 64, 64)


def test_scans_of_different_kinds_make_one_batch_and_come_apart_again(fan, polar):
    items = [{"image": fan, "dataset": "g/cine"}, {"image": polar, "dataset": "hazy"}]
    single = [LoadUltrasound(item["dataset"])(item["image"]) for item in items]
    loader = DataLoader(Dataset(single), batch_size=2)
    batch = next(iter(loader))
    assert batch.shape == (2, 5, 64, 64)
    for image, before in zip(decollate_batch(batch), single, strict=True):
        assert torch.equal(image, before)
        assert image.meta["source_sha256"] == before.meta["source_sha256"]
        assert image.meta["geometry"] == before.meta["geometry"]
        assert type(geometry_in(image)) is type(geometry_in(before))
        assert image.meta.keys() == before.meta.keys()
    assert single[0].meta.keys() == single[1].meta.keys()  # one has frame times and the other none


@pytest.mark.parametrize("layout", ["THW", "1THW"])
def test_a_result_does_not_depend_on_what_else_was_in_the_batch(tmp_path, fan, polar, options, layout):
    """A cine with frame times keeps them beside one without."""
    items = [{"image": LoadUltrasound("hazy", layout=layout)(polar)}]
    items.append({"image": LoadUltrasound("g/cine", layout=layout)(fan)})
    keep = CopyItemsd("image", names="tissue")
    data = Dataset(items, Compose([keep, DehazeUltrasoundd("tissue", haze_key="haze", **options)]))
    for size in (1, 2):
        batch = next(iter(DataLoader(data, batch_size=size)))
        SaveUltrasoundd("tissue", output_dir=tmp_path / str(size))(decollate_batch(batch)[0])
    alone, together = (read_result(tmp_path / size / "simulated.dehazed.h5") for size in "12")
    assert alone.cine.source == together.cine.source and alone.cine.dynamic_range_db == together.cine.dynamic_range_db
    assert np.array_equal(together.cine.frame_times_s, open_cine(polar).frame_times_s)
    assert np.array_equal(alone.cine.frame_times_s, together.cine.frame_times_s)


def test_cines_picked_to_one_length_make_a_batch(tmp_path, polar):
    write_simulation(tmp_path / "long.h5", simulate_cine(n_frames=7, seed=1, n_depth=64, n_angle=64))
    images = [LoadUltrasound()(path)[:3] for path in (polar, tmp_path / "long.h5")]
    assert next(iter(DataLoader(Dataset(images), batch_size=2))).shape == (2, 3, 64, 64)
