"""Which bits of a word are the pixel's value: Bits Stored, High Bit, overlays, and what a stream says of itself."""

import numpy as np
import pydicom
import pytest
from _dicom import dataset, save, write_dicom
from _scans import fan_frames
from pydicom import uid

from usdehaze.decibels import grey_to_db
from usdehaze.errors import InputError
from usdehaze.io.dicom import open_dicom


def read(path):
    with open_dicom(path) as scan:
        return scan.read(), " ".join(scan.source.assumptions)


def packed(path, words, syntax, bits, **attributes):
    """Words of so many bits under other attributes."""
    ds = dataset(words, bits=bits)
    if uid.UID(syntax).is_compressed:
        ds.compress(syntax, words, generate_instance_uid=False)
    for keyword, value in attributes.items():
        setattr(ds, keyword, value)
    return save(path, ds, syntax)


WORDS = [uid.ExplicitVRLittleEndian, uid.RLELossless, uid.JPEGLSLossless, uid.JPEG2000Lossless]


@pytest.mark.parametrize("syntax", WORDS)
@pytest.mark.parametrize(("stored", "high_bit"), [(12, 15), (12, 13), (8, 15)])
def test_values_end_at_the_high_bit_unless_they_use_the_bits_below(tmp_path, syntax, stored, high_bit):
    levels = fan_frames(2).astype(np.uint16) << (stored - 8)
    attributes = {"BitsStored": stored, "HighBit": high_bit}
    for shift, told in ((high_bit + 1 - stored, False), (0, True)):
        words = levels << shift | (shift == 0)  # levels of 12 bits that are no multiples of 16
        cine, notes = read(packed(tmp_path / "a.dcm", words, syntax, 16, **attributes))
        np.testing.assert_allclose(cine.frames, grey_to_db(words >> shift, 60, 2**stored - 1), atol=1e-4)
        assert (f"High Bit says {high_bit}, but the values are in the lowest {stored} bits" in notes) == told


@pytest.mark.parametrize("syntax", WORDS)
@pytest.mark.parametrize("overlay", [0, 12, 15])
def test_bits_of_overlays_are_no_values(tmp_path, syntax, overlay):
    levels = fan_frames(2).astype(np.uint16) << 4
    words = levels.copy()
    words[:, 10:30, 10:30] |= 1 << (overlay or 15)
    path = packed(tmp_path / "a.dcm", words, syntax, 16, BitsStored=12, HighBit=11)
    if overlay:
        ds = pydicom.dcmread(path)
        ds.add_new((0x6002, 0x0102), "US", overlay)
        save(path, ds, syntax)
    cine, _ = read(path)
    np.testing.assert_allclose(cine.frames, grey_to_db(levels, 60, 4095), atol=1e-4)


@pytest.mark.parametrize("syntax", WORDS)
@pytest.mark.parametrize("stored", [8, 12])
def test_values_above_bits_stored_are_refused(tmp_path, syntax, stored):
    words = fan_frames(2).astype(np.uint16) * 257
    path = packed(tmp_path / "a.dcm", words, syntax, 16, BitsStored=stored, HighBit=stored - 1)
    with pytest.raises(InputError, match=f"expected {2**stored - 1} at most as Bits Stored says"):
        read(path)


@pytest.mark.parametrize("syntax", [uid.JPEGLSLossless, uid.JPEG2000Lossless])
@pytest.mark.parametrize("allocated", [8, 16])
def test_streams_of_more_bits_than_bits_stored_says(tmp_path, syntax, allocated):
    levels = fan_frames(2).astype(np.uint16) * 16
    attributes = {"BitsAllocated": allocated, "BitsStored": 8, "HighBit": 7}
    cine, notes = read(packed(tmp_path / "a.dcm", levels, syntax, 12, **attributes))
    np.testing.assert_allclose(cine.frames, grey_to_db(levels, 60, 4095), atol=1e-4)
    assert "Bits Stored says 8, but the frames have 12." in notes


@pytest.mark.parametrize(("bits", "white"), [(10, 255), (12, 255), (14, 4095)])
@pytest.mark.parametrize("label", ["MONOCHROME1", "MONOCHROME2"])
def test_values_of_fewer_bits_than_bits_stored_says(tmp_path, bits, white, label):
    levels = fan_frames(2).astype(np.uint16) * (white // 255)
    frames = white - levels if label == "MONOCHROME1" else levels
    cine, notes = read(write_dicom(tmp_path / "a.dcm", frames, label, bits=bits))
    np.testing.assert_allclose(cine.frames, grey_to_db(levels, 60, white), atol=1e-4)
    assert f"Bits Stored says {bits}, but no value is above {white}, taken as 0 dB." in notes
    frames[1, 32, 32] = 2**bits - 1
    assert "Bits Stored" not in read(write_dicom(tmp_path / "b.dcm", frames, label, bits=bits))[1]
    window = {"WindowCenter": 2 ** (bits - 1), "WindowWidth": 2**bits}
    assert "Bits Stored" not in read(write_dicom(tmp_path / "c.dcm", levels, label, bits=bits, **window))[1]


def test_jpeg_2000_of_signed_values_is_refused(tmp_path):
    """Levels less 128, or levels taken as signed bytes: nothing tells."""
    signed = (fan_frames(2).astype(np.int16) - 128).astype(np.int8)
    ds = dataset(signed, PixelRepresentation=1)
    ds.compress(uid.JPEG2000Lossless, signed, generate_instance_uid=False)
    ds.PixelRepresentation = 0
    with pytest.raises(InputError, match="JPEG 2000 frames of signed values of 8 bits; expected unsigned ones"):
        read(save(tmp_path / "a.dcm", ds, uid.JPEG2000Lossless))
