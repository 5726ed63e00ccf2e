"""Files of zea and usbmd: current, legacy, and those that zea itself wrote."""

import h5py
import numpy as np
import pytest
from _scans import fan_frames, write

import usdehaze as ud
from usdehaze.cine import Cartesian, Polar
from usdehaze.decibels import log_compress
from usdehaze.errors import InputError

DEPTHS, ANGLES = np.linspace(0.01, 0.1, 40), np.linspace(-0.6, 0.5, 32)


def iq(seed=0, shape=(3, 40, 32)):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def polar_grid(depths=DEPTHS, angles=ANGLES, apex=(0.0, 0.0)):
    depth, angle = np.meshgrid(depths, angles, indexing="ij")
    x_m, z_m = apex[0] + depth * np.sin(angle), apex[1] + depth * np.cos(angle)
    return np.stack([x_m, np.zeros_like(x_m), z_m], axis=-1).astype(np.float32)


def zea_file(path, product, values, root="tracks/track_0/", **more):
    return write(path, {f"{root}data/{product}/values": values, **more}, zea_version="0.1.8")


def test_what_zea_wrote_is_read_with_its_geometry(data_dir):
    cines = {
        name: ud.open_cine(data_dir / "hdf5" / f"zea_{name}.hdf5")
        for name in ("image_polar_db", "image_uint8", "beamformed_iq")
    }
    assert [c.source.units for c in cines.values()] == ["dB", "8-bit", "I/Q"]
    for cine in cines.values():
        assert cine.frames.shape == (3, 256, 128) and cine.source.layout == "zea 0.1.8"
        assert np.allclose(cine.geometry.depths_m, np.linspace(0.005, 0.15, 256), atol=1e-7)
        assert np.allclose(np.rad2deg(cine.geometry.angles_rad), np.linspace(-37.5, 37.5, 128), atol=1e-4)
    off = np.abs(cines["image_uint8"].frames - cines["image_polar_db"].frames)
    assert off.max() <= 60 / 255 + 1e-3  # the same image, in 255 steps


def test_the_same_iq_gives_the_same_frames_from_zea_and_from_uff(data_dir):
    zea, uff = (ud.open_cine(data_dir / "hdf5" / n) for n in ("zea_beamformed_iq.hdf5", "uff_beamformed_sector.uff"))
    assert np.abs(zea.frames - uff.frames).max() < 1e-4
    assert np.allclose(zea.geometry.depths_m, uff.geometry.depths_m, atol=1e-7)
    assert np.allclose(zea.geometry.angles_rad, uff.geometry.angles_rad, atol=1e-6)


def test_two_channels_are_iq_and_their_magnitude_is_the_envelope(tmp_path):
    values = iq()
    stored = np.stack([values.real, values.imag], axis=-1)
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "beamformed_data", stored))
    assert np.abs(cine.frames - log_compress(np.abs(values), 60)).max() < 1e-3
    grid = {"data/beamformed_data/coordinates": polar_grid()[:, :, None]}  # with an axis across the image, of length 1
    flat = ud.open_cine(zea_file(tmp_path / "b.hdf5", "beamformed_data", stored[:, :, :, None], root="", **grid))
    assert np.array_equal(flat.frames, cine.frames) and np.allclose(flat.geometry.depths_m, DEPTHS, atol=1e-7)


def test_one_channel_is_rf_and_its_envelope_is_that_of_the_analytic_signal(tmp_path):
    depth = np.arange(256)[:, None]
    envelope = np.exp(-(((depth - 130) / 40.0) ** 2)) * np.linspace(0.2, 1, 16)
    rf = envelope * np.cos(2 * np.pi * 0.2 * depth)
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "beamformed_data", rf[None, :, :, None].astype(np.float32)))
    inside = np.abs(depth[:, 0] - 130) < 60
    expected = np.clip(20 * np.log10(envelope / envelope.max()), -60, 0)
    assert np.abs(cine.frames[0] - expected)[inside].max() < 0.1
    assert any("analytic signal" in sentence for sentence in cine.source.assumptions)


def test_an_image_is_preferred_to_the_iq_it_was_made_from_and_other_products_can_be_named(tmp_path):
    values = iq()
    image = log_compress(np.abs(values), 50)
    path = zea_file(tmp_path / "a.hdf5", "image", image)
    with h5py.File(path, "r+") as file:
        file["tracks/track_0/data/beamformed_data/values"] = np.stack([values.real, values.imag], axis=-1)
    assert np.array_equal(ud.open_cine(path).frames, image)
    assert ud.open_cine(path, dataset="tracks/track_0/data/beamformed_data").source.units == "I/Q"
    assert ud.open_cine(path, dataset="tracks/track_0/data/beamformed_data/values").source.units == "I/Q"


def test_minus_infinity_is_the_floor_and_unit_min_and_max_are_believed(tmp_path):
    image = np.linspace(-50, 0, 2 * 40 * 32, dtype=np.float32).reshape(2, 40, 32)
    image[0, 0, 0] = -np.inf
    extra = {f"data/image/{key}": value for key, value in (("unit", "dB"), ("min", -50.0), ("max", 0.0))}
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", image, root="", **extra))
    assert cine.frames[0, 0, 0] == -50 and cine.dynamic_range_db == 50
    assert not any("ynamic range" in sentence for sentence in cine.source.assumptions)


def test_times_come_from_timestamps_or_from_the_time_between_transmits(tmp_path):
    extra = {"data/image/timestamps": np.array([0, 0.1, 0.3], np.float32), "data/image/start_time_offset": 0.5}
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", fan_frames(3), root="", **extra))
    assert np.allclose(cine.frame_times_s, [0.5, 0.6, 0.8])
    extra = {"scan/time_to_next_transmit": np.full((3, 4), 0.01)}
    cine = ud.open_cine(zea_file(tmp_path / "b.hdf5", "image", fan_frames(3), root="", **extra))
    assert np.allclose(cine.frame_times_s, [0, 0.04, 0.08])
    extra = {"data/image/timestamps": np.array([0, np.nan, 0.3], np.float32)}
    cine = ud.open_cine(zea_file(tmp_path / "c.hdf5", "image", fan_frames(3), root="", **extra))
    assert cine.frame_times_s is None and "No frame times in the file." not in cine.source.assumptions
    assert any("they were not used" in note for note in cine.source.assumptions)


@pytest.mark.parametrize("apex", [(0.0, 0.0), (0.01, -0.02)], ids=["apex at 0", "apex behind a curved probe"])
def test_coordinates_of_a_fan_give_depths_from_its_apex_and_angles(tmp_path, apex):
    extra = {"data/image/coordinates": polar_grid(apex=apex)}
    geometry = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", fan_frames(2, 40, 32), root="", **extra)).geometry
    assert isinstance(geometry, Polar)
    assert np.allclose(geometry.depths_m, DEPTHS, atol=1e-6) and np.allclose(geometry.angles_rad, ANGLES, atol=1e-5)


def test_depths_and_angles_that_fall_turn_the_frames_round(tmp_path):
    frames = fan_frames(2, 40, 32)
    turned = {"data/image/coordinates": polar_grid(DEPTHS[::-1], ANGLES[::-1])}
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", frames[:, ::-1, ::-1], root="", **turned))
    straight = ud.open_cine(zea_file(tmp_path / "b.hdf5", "image", frames, root=""))
    assert np.array_equal(cine.frames, straight.frames)
    assert np.allclose(cine.geometry.depths_m, DEPTHS, atol=1e-6)


def test_coordinates_of_a_rectangle_give_spacing_and_origin_and_a_sector_is_still_looked_for(tmp_path):
    z_m, x_m = np.meshgrid(0.002 + 3e-4 * np.arange(128), -0.02 + 2e-4 * np.arange(128), indexing="ij")
    grid = np.stack([x_m, 0 * x_m, z_m], axis=-1).astype(np.float32)
    extra = {"data/image/coordinates": grid}
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", fan_frames(4, 128, 128), root="", **extra))
    assert isinstance(cine.geometry, Cartesian)
    assert np.allclose(cine.geometry.spacing_m, (3e-4, 2e-4), rtol=1e-4)
    assert np.allclose(cine.geometry.origin_m, (0.002, -0.02), atol=1e-6)
    sector = cine.geometry.sector
    assert sector is not None and sector.aspect == pytest.approx(1.5, rel=1e-4)


def test_coordinates_that_are_neither_are_said_to_be_left_out(tmp_path):
    rng = np.random.default_rng(0)
    extra = {"data/image/coordinates": rng.uniform(0, 0.1, (40, 32, 3)).astype(np.float32)}
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", fan_frames(2, 40, 32), root="", **extra))
    assert isinstance(cine.geometry, Cartesian) and cine.geometry.spacing_m is None
    assert any("fit neither a fan nor" in sentence for sentence in cine.source.assumptions)


@pytest.mark.parametrize(
    ("product", "values", "units"),
    [
        ("image", -np.abs(np.random.default_rng(0).normal(size=(2, 40, 32))) * 10, "dB"),
        ("image_sc", fan_frames(2, 40, 32), "8-bit"),
        ("envelope_data", np.abs(np.random.default_rng(0).normal(size=(2, 40, 32))), "envelope"),
        ("beamformed_data", np.random.default_rng(0).normal(size=(2, 40, 32, 2)), "I/Q"),
    ],
)
def test_legacy_files_have_flat_datasets(tmp_path, product, values, units):
    cine = ud.open_cine(write(tmp_path / "a.hdf5", {f"data/{product}": values, "scan/n_ax": 40}))
    assert (cine.source.layout, cine.source.units, cine.frames.shape) == ("zea (usbmd, legacy)", units, (2, 40, 32))


def test_the_first_of_several_tracks_is_taken_and_said(tmp_path):
    path = zea_file(tmp_path / "a.hdf5", "image", fan_frames(2))
    with h5py.File(path, "r+") as file:
        file["tracks/track_1/data/image/values"] = fan_frames(5)
    cine = ud.open_cine(path)
    assert len(cine.frames) == 2 and "tracks/track_0 of 2 tracks with image taken." in cine.source.assumptions
    assert len(ud.open_cine(path, dataset="tracks/track_1/data/image").frames) == 5


def test_raw_data_alone_are_refused_with_advice(tmp_path):
    raw = np.zeros((2, 3, 64, 16, 1), np.int16)
    for path in (
        write(tmp_path / "a.hdf5", {"tracks/track_0/data/raw_data": raw}, zea_version="0.1.8"),
        write(tmp_path / "b.hdf5", {"data/raw_data": raw, "scan/n_ax": 64}),
    ):
        with pytest.raises(InputError, match=r"holds channel data only \(zea.*beamform it first"):
            ud.open_cine(path)


def test_a_volume_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"shape \(2, 40, 32, 9\); expected 2-D frames"):
        ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", np.zeros((2, 40, 32, 9), np.float32)))


def test_a_grid_in_mm_is_taken_as_one_and_said(tmp_path):
    extra = {"data/image/coordinates": 1000 * polar_grid()}
    cine = ud.open_cine(zea_file(tmp_path / "a.hdf5", "image", fan_frames(3, 40, 32), root="", **extra))
    assert np.allclose(cine.geometry.depths_m, DEPTHS, atol=1e-6)
    assert "Depths 2308 mm apart in the file taken as 2.308 mm." in cine.source.assumptions
