import numpy as np
import pytest

from usdehaze import decibels


def test_envelope_is_the_magnitude_in_the_precision_of_the_iq():
    iq = np.array([3 + 4j, -5j], dtype=np.complex64)
    assert decibels.envelope(iq).tolist() == [5.0, 5.0]
    assert decibels.envelope(iq).dtype == np.float32


def test_a_tenth_of_the_amplitude_is_20_db_less():
    assert decibels.log_compress(np.array([1.0, 0.1, 0.01]), 60) == pytest.approx([0, -20, -40], abs=1e-5)


def test_log_compression_clips_at_the_floor_and_at_full_scale():
    frames_db = decibels.log_compress(np.array([0.0, 1e-9, 2.0, 5.0]), dynamic_range_db=50, reference=2.0)
    assert frames_db.tolist() == [-50.0, -50.0, 0.0, 0.0]
    assert frames_db.dtype == np.float32


def test_log_compression_refuses_an_amplitude_that_is_zero_everywhere():
    with pytest.raises(ValueError, match="reference amplitude must be positive, found 0"):
        decibels.log_compress(np.zeros(4), 60)


def test_decompression_undoes_log_compression():
    amplitude = np.linspace(0.01, 1, 50)
    assert decibels.decompress(decibels.log_compress(amplitude, 60)) == pytest.approx(amplitude, rel=1e-6)


def test_grey_levels_cover_the_dynamic_range():
    assert decibels.grey_to_db(np.array([0, 51, 255], np.uint8), 60.0) == pytest.approx([-60, -48, 0], abs=1e-5)
    assert decibels.grey_to_db(np.array([4095], np.uint16), 60.0, full_scale=4095)[0] == 0


@pytest.mark.parametrize("dynamic_range_db", [40.0, 60.0, 72.5])
def test_every_grey_level_survives_the_way_to_db_and_back(dynamic_range_db):
    grey = np.arange(256, dtype=np.uint8)
    back = decibels.db_to_grey(decibels.grey_to_db(grey, dynamic_range_db), dynamic_range_db)
    assert np.array_equal(back, grey)


def test_powers_add_3_db_when_they_double():
    total = decibels.db_to_power(np.array([-10.0])) + decibels.db_to_power(np.array([-10.0]))
    assert decibels.power_to_db(total)[0] == pytest.approx(-10 + 3.0103, abs=1e-4)


def test_no_power_is_minus_infinity_and_back():
    assert np.isneginf(decibels.power_to_db(np.array([0.0])))[0]
    assert decibels.db_to_power(np.array([-np.inf]))[0] == 0
