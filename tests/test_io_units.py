"""What stored values are, told by what they look like: grey levels under any scaling, decibels, envelopes, RF."""

import warnings

import h5py
import numpy as np
import pytest
from _scans import in_db, speckled_fan, write
from scipy import ndimage

from usdehaze.errors import InputError
from usdehaze.io import open_cine
from usdehaze.io.units import SPECKLE_DB
from usdehaze.notes import Guess

ECHOES = speckled_fan()
DB = in_db(ECHOES)
LEVEL = DB / 60 + 1  # 0 to 1
GREY = np.rint(LEVEL * 255).astype(np.uint8)
GREY_DB = GREY / 255 * 60 - 60
STEP_DB = 60 / 255


def read(tmp_path, stored, **options):
    return open_cine(write(tmp_path / "a.h5", {"x": stored}), **options)


def off(cine, expected):
    return float(np.abs(cine.frames - expected).max())


@pytest.mark.parametrize(
    ("scale", "shift"),
    [
        *((scale, 0) for scale in (1, 1.001, 100, 255, 0.3, 2, 30, 50, 80, 200, 1000, 4095, 65535)),
        *((1, 0.5), (2, -1), (1, -0.5), (255, -128), (255, 20), (0.5, 0.25), (50, -20), (100, -30), (3, -7)),
    ],
)
def test_grey_levels_give_the_same_decibels_whatever_they_were_scaled_by_and_shifted_to(tmp_path, scale, shift):
    cine = read(tmp_path, (LEVEL * scale + shift).astype(np.float32))
    assert cine.source.units == "grey" and cine.dynamic_range_db == 60
    assert off(cine, DB) < STEP_DB
    assert any(isinstance(note, Guess) and note.settle == "--units" for note in cine.source.assumptions)


@pytest.mark.parametrize("dtype", ["i2", "u2", ">u2", "i4", "i8", "f2", ">f4", "f8"])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (3, 0), (1, 20), (1, -128)])
def test_an_8_bit_image_is_the_same_in_any_type(tmp_path, dtype, scale, shift):
    if "u" in dtype:
        shift = abs(shift)
    assert off(read(tmp_path, (GREY.astype(float) * scale + shift).astype(dtype)), GREY_DB) < STEP_DB


def test_the_full_scale_of_signed_words_is_their_largest_value(tmp_path):
    cine = read(tmp_path, np.rint(LEVEL * 32767).astype(np.int16))
    assert off(cine, DB) < 0.01 and "Full scale (0 dB) taken as 32767." in cine.source.assumptions


def test_the_levels_of_a_dim_8_bit_image_tell_its_full_scale(tmp_path):
    dim = np.rint(GREY * 0.7)
    cine = read(tmp_path, (dim / 255 * 0.01).astype(np.float32))
    assert off(cine, dim / 255 * 60 - 60) < STEP_DB / 10


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ((GREY.astype(np.int16) - 128).astype(np.int8), GREY_DB),
        (GREY.view(np.int8), GREY_DB),  # levels above 127 that became negative
        ((GREY // 2).astype(np.int8), (GREY // 2) / 127 * 60 - 60),
        (np.rint(DB).astype(np.int8), np.rint(DB)),
    ],
    ids=["shifted", "sign lost", "7 bits", "dB"],
)
def test_signed_bytes(tmp_path, stored, expected):
    assert off(read(tmp_path, stored), expected) < STEP_DB


@pytest.mark.parametrize("options", [{}, {"units": "grey"}])
@pytest.mark.parametrize("full_scale", [1, 255])
def test_what_resampling_shoots_over_is_clipped(tmp_path, options, full_scale):
    larger = ndimage.zoom(GREY / 255.0, (1, 1.4, 1.4), order=3)
    assert larger.max() > 1 and larger.min() < 0
    cine = read(tmp_path, (larger * full_scale).astype(np.float32), **options)
    assert off(cine, np.clip(larger, 0, 1) * 60 - 60) < 1e-3
    over = read(tmp_path, (LEVEL * 1.015 * full_scale).astype(np.float32), **options)
    assert off(over, np.clip(LEVEL * 1.015, 0, 1) * 60 - 60) < 1e-3


@pytest.mark.parametrize("span", [40, 50, 60, 70, 80])
@pytest.mark.parametrize("floor", [0, -30, -90])
def test_decibels_above_any_floor_keep_their_range(tmp_path, span, floor):
    db = in_db(ECHOES * 0.86, span)  # the largest value lies below full scale
    cine = read(tmp_path, (db + span + floor).astype(np.float32))
    if floor == -90 and span == 80:  # from -90 to -10: as well full scale at 0
        assert cine.source.units == "dB"
        return
    assert cine.dynamic_range_db == span and off(cine, db) < STEP_DB


@pytest.mark.parametrize("full_scale", [20_000, 60_000])
def test_decibels_of_counts_few_of_which_are_below_one_are_no_grey_levels_that_shoot_over(tmp_path, full_scale):
    rayleigh = np.hypot(*np.random.default_rng(0).normal(size=(2, 2, 160, 96)))
    counts = 20 * np.log10(full_scale / 5 * rayleigh * 10 ** np.linspace(0, -3, 160)[:, None])
    assert -20 < counts.min() < 0 and (counts < 0).mean() < 0.01
    cine = read(tmp_path, counts, rectangle=True)
    assert cine.source.units == "dB" and off(cine, np.clip(counts - counts.max(), -60, 0)) < 1e-3


def test_whole_decibels_above_a_floor_are_no_grey_levels_up_to_255(tmp_path):
    for span in (50, 80):
        db = np.rint(in_db(ECHOES, span))
        assert off(read(tmp_path, (db + span).astype(np.int16)), db) < STEP_DB


@pytest.mark.parametrize("angles", [1, 2, 3, 9])
@pytest.mark.parametrize("full_scale", [1, 0.02, 3000])
def test_envelopes_are_told_from_grey_levels_compounded_or_not(tmp_path, angles, full_scale):
    echoes = np.mean([speckled_fan(seed=seed) for seed in range(angles)], axis=0)
    echoes /= echoes.max()
    cine = read(tmp_path, (echoes * full_scale).astype(np.float32))
    assert cine.source.units == "envelope" and off(cine, in_db(echoes)) < 1e-3
    compressed = read(tmp_path, (in_db(echoes) / 60 + 1).astype(np.float32))
    assert compressed.source.units == "grey" and off(compressed, in_db(echoes)) < 1e-3


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32])
def test_rf_is_refused_and_says_what_to_do(tmp_path, dtype):
    carrier = np.cos(np.arange(ECHOES.shape[1]) * 1.3)[:, None]
    scale = 1 if dtype == np.float32 else np.iinfo(dtype).max
    with pytest.raises(InputError, match=r"both signs, .*RF and channel data must be beamformed first"):
        read(tmp_path, (ECHOES * carrier * scale).astype(dtype))


def phantom(kind="even", n_frames=3, height=400, width=128):
    """``(T, H, W)`` I/Q of coarse speckle, 1 the largest: an even phantom, one with a cyst, or attenuated."""
    row, column = np.mgrid[:height, :width]
    parts = np.random.default_rng(0).normal(size=(2, n_frames, height, width))
    parts *= {
        "even": 1,
        "cyst": np.where(np.hypot(row - 200, 3 * (column - 64)) < 60, 1e-3, 1),
        "attenuated": 10 ** (-2.5 * row / height),
    }[kind]
    iq = np.einsum("i...,i", ndimage.gaussian_filter(parts, (0, 0, 3, 1.5)), [1, 1j])
    return iq / np.abs(iq).max()


@pytest.mark.parametrize("kind", ["even", "cyst", "attenuated"])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32])
def test_an_envelope_of_coarse_speckle_is_one_in_any_type(tmp_path, kind, dtype):
    envelope = np.abs(phantom(kind)) * 30_000
    cine = read(tmp_path, envelope.astype(dtype), rectangle=True)
    assert cine.source.units == "envelope"
    bright = envelope > 300
    assert np.abs(cine.frames - 20 * np.log10(envelope / 30_000))[bright].max() < 0.1


@pytest.mark.parametrize("kind", ["even", "attenuated"])
@pytest.mark.parametrize("least", [0, 1e-12, 1e-3])
def test_a_small_number_beside_the_envelope_leaves_its_decibels_decibels(tmp_path, kind, least):
    stored = 20 * np.log10(np.abs(phantom(kind)) + least)  # as many write it, so that no echo is a number
    cine = read(tmp_path, stored, rectangle=True)
    assert cine.source.units == "dB" and off(cine, np.clip(stored, -60, 0)) < 0.01


@pytest.mark.parametrize("largest", [80, 100])
def test_compounded_images_that_are_dim_or_in_per_cent_are_no_decibels_down_to_any_floor(tmp_path, largest):
    envelope = np.sqrt((np.abs(phantom("attenuated", 24).reshape(3, 8, 400, 128)) ** 2).mean(axis=1))
    shares = 1 + 0.6 * 20 * np.log10(envelope / envelope.max()) / 60
    assert shares.min() > 0.01
    cine = read(tmp_path, largest * shares, rectangle=True)
    assert cine.source.units == "grey" and off(cine, 60 * shares - 60) < 0.01


@pytest.mark.parametrize(("kind", "power"), [("even", 0.3), ("attenuated", 0.3), ("cyst", 0.5)])
def test_other_compressions_over_as_wide_a_range_are_no_decibels(tmp_path, kind, power):
    assert read(tmp_path, 90 * np.abs(phantom(kind)) ** power, rectangle=True).source.units == "grey"


def test_iq_without_an_imaginary_part_is_rf(tmp_path):
    carrier = np.cos(np.arange(ECHOES.shape[1]) * 1.3)[:, None]
    for dtype in (np.complex64, np.complex128):
        with pytest.raises(InputError, match="I/Q without an imaginary part, and of both signs: RF; expected"):
            read(tmp_path, (ECHOES * carrier).astype(dtype))
    assert off(read(tmp_path, ECHOES.astype(np.complex128)), DB) < 1e-3  # an envelope, after all


def test_envelopes_in_integers_of_more_than_16_bits_are_envelopes(tmp_path):
    cine = read(tmp_path, np.rint(1e6 * ECHOES).astype(np.int32))
    assert cine.source.units == "envelope" and off(cine, DB) < 0.01
    with pytest.raises(InputError, match=r"integers up to 100000; expected .* 16 bits; say what they are with --units"):
        read(tmp_path, np.rint(1e5 * LEVEL).astype(np.int32))


@pytest.mark.parametrize("middle", [2048, 300, -500])
def test_rf_about_another_value_than_0_is_refused_too(tmp_path, middle):
    carrier = np.cos(np.arange(ECHOES.shape[1]) * 1.3)[:, None]
    with pytest.raises(InputError, match="RF and channel data must be beamformed first"):
        read(tmp_path, np.rint(middle + 2000 * ECHOES * carrier).astype(np.int16))


@pytest.mark.parametrize(
    ("inside", "expected"),
    [(DB, DB), (LEVEL, DB), (LEVEL * 255, DB), (ECHOES, DB)],
    ids=["dB", "grey", "grey to 255", "envelope"],
)
@pytest.mark.parametrize(("everywhere", "nothing"), [(True, np.nan), (False, np.nan), (True, np.inf)])
def test_nan_outside_the_fan_is_the_floor(tmp_path, inside, expected, everywhere, nothing):
    outside = np.broadcast_to((ECHOES == 0).all(axis=0), ECHOES.shape).copy()
    outside[:1] &= everywhere  # in all frames or in the second alone
    cine = read(tmp_path, np.where(outside, nothing, inside).astype(np.float32))
    assert np.all(cine.frames[outside] == -cine.dynamic_range_db) and off(cine, expected) < STEP_DB
    assert any(note.startswith("NaN or inf outside the image taken as the floor") for note in cine.source.assumptions)
    assert cine.geometry.sector is not None


def test_numbers_near_the_largest_that_there_are_raise_no_warnings(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for largest, dtype in ((3e38, np.float32), (1.7e308, np.float64)):
            assert off(read(tmp_path, (ECHOES * largest).astype(dtype), units="envelope"), DB) < 1e-3
        for frames in (3, 12):  # the bytes of floats the wrong way round: some are signalling NaN
            swapped = in_db(speckled_fan(frames)).astype(np.float32).byteswap()
            with pytest.raises(InputError, match="both signs"):
                read(tmp_path, swapped)


@pytest.mark.parametrize("gain_db", [-40, -80, -180])
def test_decibels_far_below_0_have_their_zero_at_the_largest(tmp_path, gain_db):
    with np.errstate(divide="ignore"):
        cine = read(tmp_path, 20 * np.log10(ECHOES) + gain_db)
    assert cine.source.units == "dB" and off(cine, DB) < 1e-4
    assert f"0 dB is the largest value in the dataset, {gain_db} dB." in cine.source.assumptions


def test_nan_inside_the_image_is_refused(tmp_path):
    stored = DB.copy()
    stored[1, 50:53, 60] = np.nan
    with pytest.raises(InputError, match="frame 1 of dataset 'x' has 3 values that are not numbers"):
        read(tmp_path, stored)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"levels": (0, 2), "units": "grey"}, (LEVEL / 2 - 1) * 60),
        ({"levels": (0.5, 1.0), "units": "grey"}, (np.clip(LEVEL - 0.5, 0, 1) * 2 - 1) * 60),
        ({"units": "envelope"}, in_db(LEVEL)),
        ({"levels": (0, 2), "units": "envelope"}, in_db(LEVEL / 2)),
        ({"levels": (-40, 1), "units": "dB"}, np.maximum(LEVEL - 1, -41)),
    ],
)
def test_options_win_over_what_values_look_like(tmp_path, options, expected):
    cine = read(tmp_path, LEVEL, **options)
    assert off(cine, expected) < 1e-3
    guesses = [note for note in cine.source.assumptions if isinstance(note, Guess)]
    assert not {guess.settle for guess in guesses} & {"--units", "--levels BLACK:WHITE"}


def test_negative_values_over_more_than_any_scanner_shows_are_decibels_by_their_speckle_alone(tmp_path):
    silent = np.where(ECHOES == 0, -240, 20 * np.log10(np.maximum(ECHOES, 1e-12)))
    cine = read(tmp_path, silent)
    assert cine.source.units == "dB" and off(cine, DB) < 1e-3
    assert any(note == "Values <= 0 taken as dB, by their speckle." for note in cine.source.assumptions)
    tenths = np.rint(DB * 10).astype(np.int16)
    with pytest.raises(
        InputError, match="dataset 'x' holds values from -600 to 0, whose speckle is not in dB; expected"
    ):
        read(tmp_path, tenths)
    assert off(read(tmp_path, tenths, units="grey", levels=(-600, 0)), DB) < 0.06


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        *(((GREY / 255).astype("f4"), value) for value in (-1, -9999, 1e20)),
        *((GREY.astype("i2"), value) for value in (-32768, 32767)),
        ((16 * GREY.astype("u2")), 65535),
        (DB.astype("f4"), 9999),
        (ECHOES.astype("f4"), -1),
    ],
)
def test_background_far_from_all_other_values_is_no_value(tmp_path, stored, missing):
    cine = read(tmp_path, np.where((GREY == 0).all(axis=0), stored.dtype.type(missing), stored))
    assert off(cine, GREY_DB) < STEP_DB
    assert "far from all others, taken as missing" in " ".join(cine.source.assumptions)


@pytest.mark.parametrize("full_scale", [1, 30, 30_000])
def test_the_logarithm_of_no_echo_tells_decibels_above_any_zero(tmp_path, full_scale):
    with np.errstate(divide="ignore"):
        db, bel = 20 * np.log10(full_scale * ECHOES), np.log10(full_scale * ECHOES)
    assert off(read(tmp_path, db), DB) < 1e-3
    with pytest.raises(InputError, match=r"holds -inf beside values from .*, which are no decibels; .* 20 log10"):
        read(tmp_path, bel)


def test_a_background_that_is_said_to_be_a_level_is_one(tmp_path):
    stored = np.where((GREY == 0).all(axis=0), 65535, GREY.astype(np.uint16))
    assert off(read(tmp_path, stored, levels=(0, 65535), rectangle=True), stored / 65535 * 60 - 60) < 1e-3
    assert off(read(tmp_path, stored, levels=(0, 255)), GREY_DB) < STEP_DB


def test_a_frame_that_was_never_written_is_no_value(tmp_path):
    stored, expected = np.tile(GREY / 255, (20, 1, 1)).astype("f4"), np.tile(GREY_DB, (20, 1, 1))
    stored[3], expected[3] = -9999, -60  # none of those that are looked at
    assert off(read(tmp_path, stored), expected) < STEP_DB


def test_a_tile_that_was_never_written_is_no_value(tmp_path):
    stored, expected = (GREY / 255).astype("f4"), GREY_DB.copy()
    stored[0, 40:56, 50:66], expected[0, 40:56, 50:66] = -9999, -60
    assert off(read(tmp_path, stored), expected) < STEP_DB


def packed(tmp_path, stored, **attributes):
    path = write(tmp_path / "a.h5", {"x": stored})
    with h5py.File(path, "r+") as file:
        file["x"].attrs.update(attributes)
    return path


def test_values_packed_as_netcdf_packs_them_are_unpacked(tmp_path):
    stored = np.where(ECHOES == 0, -32768, np.rint((DB + 30) * 10)).astype(np.int16)
    cine = open_cine(packed(tmp_path, stored, scale_factor=0.1, add_offset=-30.0, _FillValue=np.int16([-32768])))
    assert cine.source.units == "dB" and off(cine, DB) < 0.06
    assert cine.source.assumptions[:2] == (
        "Stored values scaled by 0.1 and shifted by -30, as scale_factor and add_offset say.",
        "Stored values of -32768 taken as missing, as _FillValue or missing_value says.",
    )
    frames_last = open_cine(packed(tmp_path, stored.transpose(1, 2, 0), scale_factor=0.1, add_offset=-30.0))
    assert len(frames_last.frames) == 2 and off(frames_last, DB) < 0.06


@pytest.mark.parametrize("dtype", ["i1", ">i2"])
def test_values_that_netcdf_calls_unsigned_have_no_sign(tmp_path, dtype):
    stored = (GREY * np.uint16(257 if dtype == ">i2" else 1)).astype(dtype.replace("i", "u")).view(dtype)
    cine = open_cine(packed(tmp_path, stored, _Unsigned="true"))
    assert (
        off(cine, GREY_DB) < 1e-4
        and cine.source.assumptions[0] == "Stored values taken as unsigned, as _Unsigned says."
    )
    scale = 60 / (65535 if dtype == ">i2" else 255)
    cine = open_cine(packed(tmp_path, stored, _Unsigned="true", scale_factor=scale, add_offset=-60.0))
    assert cine.source.units == "dB" and off(cine, GREY_DB) < 1e-4


@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
def test_values_that_stand_for_none_are_outside_the_fan(tmp_path, name):
    path = packed(tmp_path, np.where(ECHOES == 0, 1e20, DB).astype(np.float32), **{name: np.float32(1e20)})
    cine = open_cine(path)
    assert cine.source.units == "dB" and off(cine, DB) < 1e-3
    holed = DB.astype(np.float32)
    holed[1, 50:53, 60] = 1e20
    with pytest.raises(InputError, match="frame 1 of dataset 'x' has 3 values that are not numbers"):
        open_cine(packed(tmp_path, holed, **{name: 1e20}))


def test_attributes_that_change_nothing_leave_bytes_what_they_are(tmp_path):
    cine = open_cine(packed(tmp_path, GREY, scale_factor=1.0, add_offset=0, _FillValue=np.uint8(0), missing_value=-1))
    assert cine.source.units == "8-bit" and off(cine, GREY_DB) < 1e-4


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("scale_factor", 0.0, "is 0; expected one finite number but 0"),
        ("scale_factor", [0.1, 0.2], "is 2 numbers"),
        ("add_offset", np.nan, "is nan; expected one finite number"),
        ("scale_factor", "0.1", "is no number"),
        ("_FillValue", "none", "is no number"),
    ],
)
def test_attributes_that_cannot_be_are_refused(tmp_path, name, value, found):
    with pytest.raises(InputError, match=f"attribute {name} of dataset 'x' {found}"):
        open_cine(packed(tmp_path, GREY, **{name: value}))


def test_a_bright_pixel_that_sets_the_full_scale_can_be_told_by_the_note_and_passed_over_by_what_it_says(tmp_path):
    for stored, units, told in (
        ((LEVEL * 0.7).astype(np.float32), "grey", "Full scale (0 dB) taken as 3, the largest value."),
        (ECHOES, "envelope", "0 dB is the largest amplitude in the dataset, 3; --levels 0:WHITE sets another."),
    ):
        usual = float(stored.max())
        hot = stored.copy()
        hot[0, 80, 80] = 3
        options = {"units": units}
        assert told in read(tmp_path, hot * np.float32(1), **options).source.assumptions
        expected = read(tmp_path, stored, **options, levels=(0, usual)).frames
        mended = read(tmp_path, hot, **options, levels=(0, usual)).frames
        assert (mended != expected).sum() <= 1


def test_levels_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(InputError, match="levels 2:2; expected two different numbers"):
        read(tmp_path, LEVEL, levels=(2, 2))
    with pytest.raises(InputError, match="levels 1:2 of an envelope; expected 0:2"):
        read(tmp_path, LEVEL, levels=(1, 2), units="envelope")


def test_developed_speckle_has_the_deviation_that_units_are_judged_by():
    parts = np.random.default_rng(0).normal(size=(2, 100_000))
    assert np.std(20 * np.log10(np.hypot(*parts))) == pytest.approx(SPECKLE_DB, abs=0.05)
