"""USTB's UFF: as Python and as MATLAB write it, linear and sector scans, every pixel order."""

import h5py
import numpy as np
import pytest

import usdehaze as ud
from usdehaze.cine import Cartesian, Polar
from usdehaze.decibels import log_compress
from usdehaze.errors import InputError

N_Z, N_X, N_T = 24, 16, 3
DEPTHS, ANGLES = np.linspace(0.01, 0.08, N_Z), np.linspace(-0.5, 0.6, N_X)


def iq(seed=0):
    rng = np.random.default_rng(seed)
    shape = (N_T, N_Z, N_X)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def uff(path, frames, kind="sector", matlab=False, depth_fastest=True, positions=True, real=False, origins=1):
    """A UFF file of ``frames`` ``(T, N_Z, N_X)``, its pixels in the order that is asked for."""
    pixels = frames.transpose(0, 2, 1) if depth_fastest else frames
    data = pixels.reshape(len(frames), -1).T[:, None, None, :]  # pixels x channels x waves x frames
    x_m = (DEPTHS[:, None] * np.sin(ANGLES)) if kind == "sector" else np.tile(ANGLES / 20, (N_Z, 1))
    z_m = (DEPTHS[:, None] * np.cos(ANGLES)) if kind == "sector" else np.tile(DEPTHS[:, None], (1, N_X))
    turn = (lambda a: np.ascontiguousarray(a.T)) if matlab else (lambda a: a)
    with h5py.File(path, "w") as file:
        group = file.create_group("b_data")
        group.attrs["class"] = np.bytes_("uff.beamformed_data")
        parts = {"data": data} if real else {"data/real": data.real, "data/imag": data.imag}
        for name, part in parts.items():
            group[name] = turn(np.asarray(part, np.float32))
        scan = group.create_group("scan")
        scan.attrs["class"] = f"uff.{kind}_scan"
        axes = {"depth_axis": DEPTHS, "azimuth_axis": ANGLES} if kind == "sector" else {"z_axis": DEPTHS}
        axes = axes if kind == "sector" else {**axes, "x_axis": ANGLES / 20}
        for name, axis in axes.items():
            scan[name] = turn(axis[:, None])
        if kind == "sector":
            for n in range(origins):
                for part in ("distance", "azimuth", "elevation"):
                    scan[f"origin/origin_{n + 1:04d}/{part}" if origins > 1 else f"origin/{part}"] = 0.0
        if positions:
            for name, grid in (("x", x_m), ("z", z_m)):
                scan[name] = turn((grid.T if depth_fastest else grid).reshape(-1, 1))
    return path


@pytest.mark.parametrize("matlab", [False, True], ids=["python", "matlab"])
@pytest.mark.parametrize("depth_fastest", [False, True], ids=["angle fastest", "depth fastest"])
def test_pixels_find_their_place_whoever_wrote_the_file(tmp_path, matlab, depth_fastest):
    values = iq()
    cine = ud.open_cine(uff(tmp_path / "a.uff", values, matlab=matlab, depth_fastest=depth_fastest))
    assert np.abs(cine.frames - log_compress(np.abs(values), 60)).max() < 1e-3
    assert isinstance(cine.geometry, Polar)
    assert np.allclose(cine.geometry.depths_m, DEPTHS) and np.allclose(cine.geometry.angles_rad, ANGLES)
    assert (cine.source.layout, cine.source.units) == ("USTB UFF", "I/Q")


def test_without_stored_positions_depth_runs_fastest(tmp_path):
    values = iq()
    cine = ud.open_cine(uff(tmp_path / "a.uff", values, matlab=True, positions=False))
    assert np.abs(cine.frames - log_compress(np.abs(values), 60)).max() < 1e-3


def test_a_linear_scan_gives_spacing_and_origin(tmp_path):
    cine = ud.open_cine(uff(tmp_path / "a.uff", iq(), kind="linear"))
    assert isinstance(cine.geometry, Cartesian) and cine.geometry.sector is None
    assert np.allclose(cine.geometry.spacing_m, (DEPTHS[1] - DEPTHS[0], (ANGLES[1] - ANGLES[0]) / 20))
    assert np.allclose(cine.geometry.origin_m, (DEPTHS[0], ANGLES[0] / 20))


def test_beamformed_rf_gets_its_envelope_and_says_so(tmp_path):
    cine = ud.open_cine(uff(tmp_path / "a.uff", iq().real, real=True))
    assert cine.source.units == "I/Q" and any("analytic signal" in s for s in cine.source.assumptions)


def test_a_real_envelope_is_one(tmp_path):
    values = np.abs(iq()) * 300
    cine = ud.open_cine(uff(tmp_path / "a.uff", values, real=True))
    assert cine.source.units == "envelope"
    assert np.abs(cine.frames - log_compress(values, 60)).max() < 1e-3


def test_one_origin_for_each_line_is_understood(tmp_path):
    geometry = ud.open_cine(uff(tmp_path / "a.uff", iq(), origins=N_X)).geometry
    assert isinstance(geometry, Polar) and np.allclose(geometry.angles_rad, ANGLES)


def test_several_sets_ask_which(tmp_path):
    path = uff(tmp_path / "a.uff", iq())
    with h5py.File(path, "r+") as file:
        file.copy("b_data", "c_data")
    with pytest.raises(InputError, match="2 sets of beamformed data: b_data, c_data; pick one with --dataset"):
        ud.open_cine(path)
    assert ud.open_cine(path, dataset="c_data").source.dataset == "c_data/data"


def test_a_number_of_pixels_that_is_not_the_scans_is_refused(tmp_path):
    path = uff(tmp_path / "a.uff", iq())
    with h5py.File(path, "r+") as file:
        del file["b_data/scan/depth_axis"]
        file["b_data/scan/depth_axis"] = DEPTHS[:-1]
    with pytest.raises(InputError, match=r"has shape \(384, 1, 1, 3\); expected 368 pixels, as its scan says"):
        ud.open_cine(path)


@pytest.mark.parametrize(("kind", "axes"), [("sector", ("depth", "azimuth")), ("linear", ("z", "x"))])
def test_a_scan_of_too_many_pixels_is_refused_before_they_are_placed(tmp_path, kind, axes):
    path = uff(tmp_path / "a.uff", iq(), kind)
    with h5py.File(path, "r+") as file:
        for axis in axes:
            del file[f"b_data/scan/{axis}_axis"]
            file[f"b_data/scan/{axis}_axis"] = np.linspace(0, 1, 6000)
    with pytest.raises(InputError, match="frames of 6000 x 6000; expected at most"):
        ud.open_cine(path)


def test_data_that_are_one_number_are_refused(tmp_path):
    path = uff(tmp_path / "a.uff", iq())
    with h5py.File(path, "r+") as file:
        del file["b_data/data"]
        file["b_data/data"] = 1.0
    with pytest.raises(InputError, match=r"has shape \(\); expected 384 pixels"):
        ud.open_cine(path)


def test_channels_that_were_not_summed_are_refused(tmp_path):
    path = uff(tmp_path / "a.uff", iq())
    with h5py.File(path, "r+") as file:
        for part in ("real", "imag"):
            data = file[f"b_data/data/{part}"][()]
            del file[f"b_data/data/{part}"]
            file[f"b_data/data/{part}"] = np.repeat(data, 4, axis=1)
    with pytest.raises(InputError, match="channels or waves apart; expected one image a frame; compound it first"):
        ud.open_cine(path)


def test_channel_data_alone_are_refused_with_advice(tmp_path):
    with h5py.File(tmp_path / "a.uff", "w") as file:
        file["channel_data/data"] = np.zeros((64, 32, 1, 3), np.float32)
        file["channel_data"].attrs["class"] = "uff.channel_data"
    with pytest.raises(InputError, match=r"holds channel data only \(USTB UFF\).*beamform it first"):
        ud.open_cine(tmp_path / "a.uff")


@pytest.mark.parametrize("azimuths", [np.rad2deg(ANGLES), np.where(np.arange(N_X) == 9, np.nan, ANGLES), 0 * ANGLES])
def test_positions_that_are_not_used_leave_the_image_as_it_lies(tmp_path, azimuths):
    values, path = iq(), uff(tmp_path / "a.uff", iq(), positions=False)
    with h5py.File(path, "r+") as file:
        file["b_data/scan/azimuth_axis"][:, 0] = azimuths
    cine = ud.open_cine(path, rectangle=True)
    assert np.abs(cine.frames - log_compress(np.abs(values), 60)).max() < 1e-3
    assert any(note.startswith("Pixel positions in the file fit neither") for note in cine.source.assumptions)
