"""Reading scans: what the stored values mean, which dataset, which frames."""

import hashlib
import subprocess
import sys

import h5py
import numpy as np
import pytest
from _scans import fan_frames, write

import usdehaze as ud
from usdehaze.cine import Cartesian
from usdehaze.decibels import log_compress
from usdehaze.errors import InputError
from usdehaze.io.survey import speckle_variation


def rayleigh(shape, seed=0):
    """Envelope of fully developed speckle whose brightness falls by 30 dB from left to right."""
    rng = np.random.default_rng(seed)
    iq = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return np.abs(iq) * np.logspace(0, -1.5, shape[-1])


def test_8_bit_frames_span_the_default_dynamic_range_and_say_so(tmp_path):
    frames = fan_frames()
    cine = ud.open_cine(write(tmp_path / "a.h5", {"deep/er/cine": frames}))
    assert np.abs(cine.frames - (frames.astype(float) / 255 - 1) * 60).max() < 1e-4
    assert (cine.source.dataset, cine.source.units, cine.dynamic_range_db) == ("deep/er/cine", "8-bit", 60)
    assert "Dynamic range assumed to be 60 dB." in cine.source.assumptions


def test_the_dynamic_range_that_was_asked_for_is_no_assumption(tmp_path):
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": fan_frames()}), dynamic_range_db=45)
    assert cine.dynamic_range_db == 45 and cine.frames.min() == -45
    assert not any("ynamic range" in sentence for sentence in cine.source.assumptions)


def test_a_2d_dataset_is_one_frame(tmp_path):
    frame = fan_frames(1)[0]
    assert ud.open_cine(write(tmp_path / "a.h5", {"x": frame})).frames.shape == (1, *frame.shape)


@pytest.mark.parametrize(
    ("dtype", "top", "full_scale"), [("u2", 65535, 65535), ("u2", 4000, 4095), ("i8", 255, 255), ("f4", 255, 255)]
)
def test_other_grey_levels_are_scaled_by_the_full_scale_that_holds_them(tmp_path, dtype, top, full_scale):
    stored = np.rint(fan_frames() / 255.0 * top).astype(dtype)
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored}))
    assert cine.source.units == "grey"
    assert np.abs(cine.frames - (stored / full_scale - 1) * 60).max() < 1e-3
    assert f"Full scale (0 dB) taken as {full_scale}." in cine.source.assumptions


def test_decibels_come_through_untouched_and_minus_infinity_is_the_floor(tmp_path):
    stored = np.linspace(-59, -1, 2 * 32 * 32).reshape(2, 32, 32).astype(np.float32)
    stored[0, 3, 4], stored[1, 5, 6] = -np.inf, -75
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored}))
    assert cine.source.units == "dB" and cine.dynamic_range_db == 60
    assert cine.frames[0, 3, 4] == cine.frames[1, 5, 6] == -60
    inside = stored >= -60
    assert np.array_equal(cine.frames[inside], stored[inside])


def test_decibels_clipped_at_a_floor_tell_their_dynamic_range(tmp_path):
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": log_compress(rayleigh((2, 64, 64)), 45)}))
    assert cine.dynamic_range_db == 45
    assert "Dynamic range taken as 45 dB, the floor that the values are clipped at." in cine.source.assumptions


def test_an_envelope_is_log_compressed_from_its_largest_value(tmp_path):
    stored = (rayleigh((3, 64, 64)) * 700).astype(np.float32)
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored}))
    assert cine.source.units == "envelope"
    expected = np.clip(20 * np.log10(stored / stored.max()), -60, 0)
    assert np.abs(cine.frames - expected).max() < 1e-3


def test_full_scale_is_that_of_the_whole_dataset_whichever_frames_are_read(tmp_path):
    path = write(tmp_path / "a.h5", {"x": (rayleigh((4, 64, 64)) * [[[1]], [[9]], [[2]], [[3]]]).astype(np.float32)})
    part = ud.open_cine(path, frames=slice(2, None))
    assert np.array_equal(part.frames, ud.open_cine(path).frames[2:])
    assert part.source.first_frame == 2


@pytest.mark.parametrize("form", ["complex64", "complex128", "ri", "real_imag"])
def test_iq_becomes_its_envelope_in_db(tmp_path, form):
    rng = np.random.default_rng(1)
    iq = rng.normal(size=(2, 32, 32)) + 1j * rng.normal(size=(2, 32, 32))
    if form.startswith("complex"):
        stored = iq.astype(form)
    else:
        real, imaginary = ("r", "i") if form == "ri" else ("real", "imag")
        stored = np.empty(iq.shape, dtype=[(real, "f4"), (imaginary, "f4")])
        stored[real], stored[imaginary] = iq.real, iq.imag
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": stored}))
    assert cine.source.units == "I/Q"
    expected = np.clip(20 * np.log10(np.abs(iq) / np.abs(iq).max()), -60, 0)
    assert np.abs(cine.frames - expected).max() < 1e-3


def test_speckle_tells_a_normalised_image_from_a_normalised_envelope(tmp_path):
    envelope = rayleigh((2, 128, 128))
    envelope = (envelope / envelope.max()).astype(np.float32)
    image = log_compress(envelope, 60) / 60 + 1
    as_envelope = ud.open_cine(write(tmp_path / "e.h5", {"x": envelope}))
    as_image = ud.open_cine(write(tmp_path / "i.h5", {"x": image}))
    assert (as_envelope.source.units, as_image.source.units) == ("envelope", "grey")
    assert np.abs(as_envelope.frames - as_image.frames).max() < 1e-3  # both are the same echoes
    assert any("by their speckle" in sentence for sentence in as_image.source.assumptions)


def test_units_override_the_guess(tmp_path):
    envelope = rayleigh((2, 64, 64))
    path = write(tmp_path / "a.h5", {"x": (envelope / envelope.max()).astype(np.float32)})
    cine = ud.open_cine(path, units="grey")
    assert cine.frames.mean() == pytest.approx(60 * float(np.mean(envelope / envelope.max())) - 60, abs=1e-3)
    with pytest.raises(InputError, match="units 'volts'; expected one of dB, 8-bit, grey, envelope, I/Q"):
        ud.open_cine(path, units="volts")
    with pytest.raises(InputError, match="units I/Q, but the values are float32"):
        ud.open_cine(path, units="I/Q")


def test_decibels_above_full_scale_are_shifted_where_units_say_they_are_decibels(tmp_path):
    stored = np.linspace(-30, 20, 64 * 64).reshape(1, 64, 64)
    path = write(tmp_path / "a.h5", {"x": stored})
    with pytest.raises(InputError, match="both signs, -30 to 20"):
        ud.open_cine(path)
    cine = ud.open_cine(path, units="dB")
    assert (cine.frames.min(), cine.frames.max()) == (-50, 0)


def test_speckle_variation_of_rayleigh_speckle_is_its_closed_form():
    flat = rayleigh((256, 256)) / np.logspace(0, -1.5, 256)
    assert speckle_variation(flat) == pytest.approx(np.sqrt(4 / np.pi - 1), abs=0.02)


def test_label_maps_are_passed_over_but_not_silently(tmp_path):
    cine = ud.open_cine(write(tmp_path / "a.h5", {"image": fan_frames(), "label": fan_frames()}))
    assert cine.source.dataset == "image"
    assert (
        cine.source.assumptions[0] == "Passed over label: named like a label map, a grid or channel data, not an image."
    )


def test_the_source_is_identified_by_its_hash_and_left_as_it_was(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames()})
    before = path.read_bytes()
    source = ud.open_cine(path).source
    assert (source.name, source.sha256) == ("a.h5", hashlib.sha256(before).hexdigest())
    assert path.read_bytes() == before


def test_a_file_that_another_program_has_locked_can_be_read(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames()})
    hold = f"import h5py; f = h5py.File({str(path)!r}, 'r+', locking=True); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        assert ud.open_cine(path).frames.shape[0] == 2
        holder.communicate("\n")


def test_a_file_that_this_program_has_open_can_be_read(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames()})
    with h5py.File(path, "r"):
        assert ud.open_cine(path).frames.shape[0] == 2


def test_without_a_sector_the_frame_is_a_rectangle_and_says_so(tmp_path):
    cine = ud.open_cine(write(tmp_path / "a.h5", {"x": log_compress(rayleigh((1, 64, 64)), 60)}))
    assert cine.geometry == Cartesian(sector=None, found_by="none")
    assert any("taken as a rectangle" in sentence for sentence in cine.source.assumptions)


def test_frames_beyond_the_end_are_cut_and_a_selection_of_nothing_is_refused(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames(5)})
    assert len(ud.open_cine(path, frames=slice(3, 30)).frames) == 2
    with pytest.raises(InputError, match="no frame in 7:9; expected frames within 0:5"):
        ud.open_cine(path, frames=slice(7, 9))
    with pytest.raises(InputError, match="step of 2; expected consecutive"):
        ud.open_cine(path, frames=slice(0, 4, 2))


def test_a_bad_frame_does_not_matter_where_it_is_not_read(tmp_path):
    stored = -np.abs(np.random.default_rng(0).normal(size=(3, 32, 32)))
    stored[2, 0, 0] = np.nan
    path = write(tmp_path / "a.h5", {"x": stored})
    assert len(ud.open_cine(path, frames=slice(0, 2)).frames) == 2
    with pytest.raises(InputError, match="frame 2 of dataset 'x' has 1 values that are not numbers"):
        ud.open_cine(path)


@pytest.mark.parametrize("n_written", [1, 6])
def test_frames_that_were_never_written_do_not_hide_the_sector(tmp_path, n_written):
    frames = np.zeros((40, 64, 64), np.uint8)
    frames[:n_written] = fan_frames(n_written)
    whole, part = (ud.open_cine(write(tmp_path / "a.h5", {"x": x})) for x in (frames[:n_written], frames))
    assert part.geometry.found_by == whole.geometry.found_by == "sector finder"
    assert abs(part.geometry.sector.angle_max - whole.geometry.sector.angle_max) < 0.03


def test_real_clips_are_read_with_their_sector(data_dir):
    cine = ud.open_cine(sorted((data_dir / "echo-haze").glob("*.h5"))[0])
    assert (cine.source.dataset, cine.source.units, cine.geometry.found_by) == ("cine", "8-bit", "sector finder")


def test_the_sector_does_not_depend_on_which_frames_are_read(data_dir):
    path = data_dir / "echo-haze" / "clip-01.h5"
    assert ud.open_cine(path, frames=slice(1, 2)).geometry == ud.open_cine(path).geometry


def test_real_images_stored_with_labels_are_read_without_asking(data_dir):
    assert ud.open_cine(sorted((data_dir / "camus").glob("*.h5"))[0]).source.dataset == "image"


@pytest.mark.parametrize("unit", ["dB", "decibels"])
def test_decibels_that_the_file_calls_so_are_no_grey_levels(tmp_path, unit):
    stored = np.rint(fan_frames() / 255.0 * 60).astype(np.uint8)
    path = write(tmp_path / "a.h5", {"x": stored})
    with h5py.File(path, "a") as file:
        file["x"].attrs["units"] = unit
    cine = ud.open_cine(path)
    assert cine.source.units == "dB" and not any("taken as dB" in note for note in cine.source.assumptions)
    assert np.array_equal(cine.frames, stored.astype(np.float32) - 60)


@pytest.mark.parametrize("stored", [fan_frames(), fan_frames().astype(np.uint16), fan_frames() / 255.0])
def test_grey_levels_that_the_file_calls_decibels_are_grey_levels(tmp_path, stored):
    path = write(tmp_path / "a.h5", {"x": stored})
    with h5py.File(path, "a") as file:
        file["x"].attrs["units"] = "dB"
    cine = ud.open_cine(path)
    assert np.abs(cine.frames - (fan_frames() / 255.0 - 1) * 60).max() < 1e-4
    assert any("decibels, as no image has: not believed" in note for note in cine.source.assumptions)


def test_whole_numbers_that_no_decibels_are_as_low_as_are_not_believed(tmp_path):
    path = write(tmp_path / "a.h5", {"x": np.rint((fan_frames() / 255.0 - 1) * 6000).astype(np.int16)})  # hundredths
    with h5py.File(path, "a") as file:
        file["x"].attrs["units"] = "dB"
    with pytest.raises(InputError, match="expected decibels over at most 120 dB"):
        ud.open_cine(path, rectangle=True)


STEPS_S = np.array([0, 0.02, 0.05, 0.09])


@pytest.mark.parametrize(
    ("name", "value", "units", "times_s"),
    [
        ("fps", 50, "", np.arange(4) / 50),
        ("scan/FrameRate", np.array([[50.0]]), "", np.arange(4) / 50),
        ("frame_time_ms", 20, "", np.arange(4) / 50),
        ("scan/frameInterval", 0.02, "s", np.arange(4) / 50),
        ("frame_time", 20, "", None),
        ("frame_time_ms", 0, "", None),
        ("scan/timestamps", STEPS_S, "s", STEPS_S),
        ("frame_times_ms", 1000 * STEPS_S, "", STEPS_S),
        ("time", (1e9 * STEPS_S).astype(np.int64), "nanoseconds since 2020-01-01", STEPS_S),
        ("times", 1e6 * STEPS_S, "\xb5s", STEPS_S),
        ("scan/time", STEPS_S, "", None),
        ("scan/time", STEPS_S, "m", None),
        ("ecg/time", STEPS_S, "s", None),
        ("time", np.arange(9) / 50, "s", None),
        ("frame_rate", 0, "", None),
        ("frame_rate", np.nan, "", None),
        ("timestamps", STEPS_S[::-1], "s", None),
    ],
)
def test_times_are_those_beside_the_frames_whose_unit_is_clear(tmp_path, name, value, units, times_s):
    path = write(tmp_path / "a.h5", {"scan/frames": fan_frames(4), name: np.asarray(value)})
    with h5py.File(path, "a") as file:
        file[name].attrs["units"] = units
    cine = ud.open_cine(path)
    assert (cine.frame_times_s is None) == (times_s is None)
    if times_s is not None:
        np.testing.assert_allclose(cine.frame_times_s, times_s, atol=1e-9)
    assert sum("rame times" in note for note in cine.source.assumptions) == 1


def test_attributes_that_hold_nothing_say_nothing(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames()}, format=h5py.Empty("S1"), fps=h5py.Empty("f8"))
    with h5py.File(path, "r+") as file:
        file["x"].attrs["units"] = h5py.Empty("S1")  # as netCDF writes ""
    assert ud.open_cine(path).source.units == "8-bit"


def test_times_of_all_frames_tell_more_than_a_rate(tmp_path):
    path = write(tmp_path / "a.h5", {"frames": fan_frames(4), "frame_rate": 30.0, "timestamps_s": STEPS_S})
    np.testing.assert_allclose(ud.open_cine(path).frame_times_s, STEPS_S, atol=1e-9)
    path = write(tmp_path / "b.h5", {"frames": fan_frames(4), "frame_rate": 50.0, "timestamps": STEPS_S})
    np.testing.assert_allclose(ud.open_cine(path).frame_times_s, np.arange(4) / 50)


def test_times_that_cannot_be_read_do_not_keep_the_frames_from_it(tmp_path):
    path = write(tmp_path / "a.h5", {"frames": fan_frames(4)})
    with h5py.File(path, "a") as file:
        file.create_dataset("times_s", (4,), "f8", chunks=(4,))  # never written
        file.create_dataset("timestamps", (10**9,), "f8", chunks=(10**6,))
        file["fps"], file["time"] = h5py.SoftLink("/nowhere"), h5py.ExternalLink("other.h5", "/time")
    cine = ud.open_cine(path)
    assert cine.frame_times_s is None and "No frame times in the file." in cine.source.assumptions


def test_a_frame_rate_may_be_an_attribute_of_the_frames_or_around_them(tmp_path):
    path = write(tmp_path / "a.h5", {"scan/frames": fan_frames(4)})
    for node, value, rate in (("/", "25", 25), ("scan", 40, 40), ("scan/frames", np.array([50.0]), 50)):
        with h5py.File(path, "a") as file:
            file[node].attrs["frame_rate"] = value
        np.testing.assert_allclose(ud.open_cine(path).frame_times_s, np.arange(4) / rate)


def test_a_structure_array_of_frames_is_a_cine(tmp_path):
    frames, path = fan_frames(4), tmp_path / "a.mat"
    with h5py.File(path, "w") as file:
        file.create_group("mov").attrs["MATLAB_class"] = np.bytes_("struct")
        for field, kind, shown in (("cdata", "uint8", frames.swapaxes(1, 2)), ("colormap", "double", np.zeros((4, 2)))):
            stored = [file.create_dataset(f"#refs#/{field}{k}", data=each) for k, each in enumerate(shown)]
            for each in stored:
                each.attrs["MATLAB_class"] = np.bytes_(kind)
            references = np.array([each.ref for each in stored], h5py.ref_dtype).reshape(4, 1)
            file["mov"].create_dataset(field, data=references, dtype=h5py.ref_dtype)
    cine = ud.open_cine(path)
    assert cine.source.dataset == "mov/cdata"
    assert np.abs(cine.frames - (frames.astype(float) / 255 - 1) * 60).max() < 1e-4
    with h5py.File(path, "a") as file:  # which structures then belong to
        file.create_dataset("img", data=frames.swapaxes(1, 2)[::-1]).attrs["MATLAB_class"] = np.bytes_("uint8")
    assert ud.open_cine(path).source.dataset == "img"
    assert ud.open_cine(path, dataset="mov/cdata").frames.shape == frames.shape
