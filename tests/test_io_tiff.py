"""TIFF files as they are meant: turned, signed, white as zero, in more than one directory or in one; EXIF as well."""

import json
import struct

import numpy as np
import pytest
from _scans import refused
from PIL import Image
from PIL.TiffImagePlugin import AppendingTiffWriter
from test_io_images import FRAMES, grey

import usdehaze as ud

TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270")


def tiff(path, frame, order="<", big=False, behind=b"", **tags):
    """An uncompressed TIFF of one image, grey, with other tags by number (``t274=6``), and bytes after its pixels."""
    number, mark = "Q" if big else "I", b"II" if order == "<" else b"MM"
    values = frame.astype(frame.dtype.newbyteorder(order)).tobytes()
    head = mark + (struct.pack(f"{order}HHHQ", 43, 8, 0, 0) if big else struct.pack(f"{order}HI", 42, 0))
    start, sample = len(head), {"u": 1, "i": 2, "f": 3}[frame.dtype.kind]
    content = bytearray(head + values + behind)
    fields = {256: frame.shape[1], 257: frame.shape[0], 258: 8 * frame.dtype.itemsize, 259: 1, 262: 1, 273: start}
    fields |= {277: 1, 278: frame.shape[0], 279: len(values), 339: sample} | {int(k[1:]): v for k, v in tags.items()}
    entries = b""
    for tag, value in sorted(fields.items()):
        if isinstance(value, str):
            entries += struct.pack(f"{order}HH{number}{number}", tag, 2, len(value), len(content))
            content += value.encode()
        else:
            entries += struct.pack(f"{order}HH{number}{number}", tag, 16 if big else 4, 1, value)
    at = struct.pack(order + number, len(content))
    content[start - len(at) : start] = at
    content += struct.pack(order + ("Q" if big else "H"), len(fields)) + entries + bytes(8)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "lzw.tif"])
def test_images_are_turned_as_viewers_show_them(tmp_path, suffix, orientation):
    stored = Image.fromarray(FRAMES[0]).transpose(Image.Transpose[TURNS[orientation - 2]])
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[274] = orientation
    if suffix == "tif":
        tiff(path, np.asarray(stored), t274=orientation)
    else:
        options = {"jpg": {"quality": 98}, "lzw.tif": {"compression": "tiff_lzw"}}.get(suffix, {})
        stored.save(path, exif=exif, **options)
    assert np.abs(grey(path)[0] - FRAMES[0]).mean() < 1


def test_a_damaged_orientation_leaves_an_image_as_it_is(tmp_path):
    Image.fromarray(FRAMES[0]).save(tmp_path / "a.png", exif=b"Exif\0\0no such thing")
    assert np.array_equal(grey(tmp_path / "a.png")[0], FRAMES[0])


@pytest.mark.parametrize("said", ["ImageJ=1.54\nimages=5\nslices=5\n", json.dumps({"shape": [5, 72, 80]})])
def test_a_tiff_of_several_images_with_one_directory_is_refused(tmp_path, said):
    path = tiff(tmp_path / "a.tif", FRAMES[0], behind=FRAMES[1:5].tobytes(), t270=said)
    refused(path, "a TIFF of 5 images with a directory for 1", "save it as a folder of images")
    assert np.array_equal(grey(tiff(tmp_path / "b.tif", FRAMES[0], t270=said))[0], FRAMES[0])  # one taken out of them


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("ImageJ=1.54\nimages=12\nchannels=2\nframes=6\nhyperstack=true\n", "2 channels x 6 frames"),
        ("ImageJ=1.54\nimages=12\nslices=3\nframes=4\n", "3 slices x 4 frames"),
        ('<?xml version="1.0"?><OME><Image><Pixels ID="0" SizeT="6" SizeC="2" SizeZ="1"/></Image></OME>', "2 channels"),
        (json.dumps({"shape": [4, 3, 72, 80]}), "4 along axis 0 x 3 along axis 1"),
        (json.dumps({"shape": [12, 72, 80, 1]}), None),
        ("ImageJ=1.54\nimages=12\nchannels=12\n", None),  # as old versions of tifffile call frames
        ('<OME><Image><Pixels SizeC="1" SizeZ="12" SizeT="1"></Pixels></Image></OME>', None),
    ],
)
def test_a_tiff_of_several_channels_and_times_is_no_cine(tmp_path, said, found):
    with AppendingTiffWriter(tmp_path / "a.tif") as file:
        for index, frame in enumerate(FRAMES):
            Image.fromarray(frame).save(file, "TIFF", tiffinfo={} if index else {270: said})
            file.newFrame()
    if found is not None:
        refused(tmp_path / "a.tif", f"a TIFF of {found}", "save one channel, or one slice, of it")
    else:
        assert np.array_equal(grey(tmp_path / "a.tif"), FRAMES)


OME = '<OME><Image><Pixels ID="0" SizeT="12" PhysicalSizeX="{}" PhysicalSizeY="{}"{}/></Image></OME>'


@pytest.mark.parametrize(
    ("said", "spacing_mm", "step_s"),
    [
        ("ImageJ=1.54\nimages=12\nframes=12\nunit=mm\nfinterval=0.04\n", (0.2, 0.5), 0.04),
        ("ImageJ=1.54\nimages=12\nframes=12\nfps=7.0\nunit=cm\nfinterval=40\ntunit=ms\n", (2, 5), 0.04),
        ("ImageJ=1.54\nimages=12\nframes=12\nunit=\\u00B5m\n", (0.2, 0.5), None),  # mm, no doubt
        ("ImageJ=1.54\nimages=12\nframes=12\nunit=inch\nfinterval=0\n", None, None),
        ("ImageJ=1.54\nimages=12\nframes=12\n", None, None),
        (OME.format(500, 200, ' TimeIncrement="0.04"'), (0.2, 0.5), 0.04),
        (
            OME.format(0.5, 0.2, ' PhysicalSizeXUnit="mm" PhysicalSizeYUnit="mm" TimeIncrementUnit="s"'),
            (0.2, 0.5),
            None,
        ),
        (OME.format("x", 0.2, ' TimeIncrement="nan"'), None, None),
        ("as ImageJ= has it", None, None),
    ],
)
def test_spacing_and_times_are_those_of_imagej_and_ome(tmp_path, said, spacing_mm, step_s):
    with AppendingTiffWriter(tmp_path / "a.tif") as file:
        for index, frame in enumerate(FRAMES):
            Image.fromarray(frame).save(file, "TIFF", tiffinfo={} if index else {270: said, 282: 2.0, 283: 5.0})
            file.newFrame()
    cine = ud.open_cine(tmp_path / "a.tif")
    assert np.abs(255 * (cine.frames / 60 + 1) - FRAMES).max() < 0.01
    expected = spacing_mm and pytest.approx([mm / 1000 for mm in spacing_mm])
    assert cine.geometry.spacing_m == expected
    assert (cine.frame_times_s is None) == (step_s is None)
    if step_s is not None:
        np.testing.assert_allclose(cine.frame_times_s, 0.04 * np.arange(12))


@pytest.mark.parametrize("resolution", [{}, {"t282": 0, "t283": 5}, {"t282": "wide", "t283": "high"}])
def test_a_damaged_resolution_is_none(tmp_path, resolution):
    path = tiff(tmp_path / "a.tif", FRAMES[0], t270="ImageJ=1.54\nunit=mm\n", **resolution)
    assert ud.open_cine(path).geometry.spacing_m is None


def test_a_bigtiff_is_a_tiff(tmp_path):
    assert np.array_equal(grey(tiff(tmp_path / "a.tif", FRAMES[0], big=True))[0], FRAMES[0])
    refused(tiff(tmp_path / "b.tif", FRAMES[0], ">", big=True), "a BigTIFF with its bytes in big-endian order")


def test_tiffs_mean_what_their_tags_say(tmp_path):
    deep = (FRAMES[0] // 2 + 60) * np.uint16(257)  # no fan on black or white from which it could be told
    assert np.array_equal(grey(tiff(tmp_path / "a.tif", 65535 - deep, t262=0)), grey(tiff(tmp_path / "b.tif", deep)))
    signed = (FRAMES[0].astype(int) - 128).astype(np.int8)
    assert np.array_equal(grey(tiff(tmp_path / "c.tif", signed))[0], FRAMES[0])
    large = FRAMES[0] * np.uint32(2**24 + 2**16 + 2**8 + 1)
    refused(tiff(tmp_path / "d.tif", large), "integers up to 4.29497e+09")
    refused(tiff(tmp_path / "e.tif", FRAMES[0].astype(np.float32), t262=0), "a TIFF of float32 with white as zero")
    found = "BitsPerSample (16,), PhotometricInterpretation 0, SampleFormat (1,), which Pillow does not read"
    refused(tiff(tmp_path / "f.tif", deep, ">", t262=0), found, "black as zero")


@pytest.mark.parametrize("kind", [1, 4])
def test_thumbnails_and_masks_in_a_tiff_are_no_frames(tmp_path, kind):
    pages = [FRAMES[0], FRAMES[0][::4, ::4] if kind == 1 else np.where(FRAMES[0] > 0, np.uint8(255), 0), FRAMES[1]]
    with AppendingTiffWriter(tmp_path / "a.tif") as writer:
        for page, subfile in zip(pages, (0, kind, 0), strict=True):
            Image.fromarray(page).save(writer, format="TIFF", tiffinfo={254: subfile})
            writer.newFrame()
    cine = ud.open_cine(tmp_path / "a.tif")
    assert cine.frames.shape == (2, *FRAMES.shape[1:]) and np.array_equal(grey(tmp_path / "a.tif"), FRAMES[:2])
    assert "Thumbnails, smaller versions and masks in the file are left out." in cine.source.assumptions


@pytest.mark.parametrize("kinds", [(0, 1, 1), (1, 1, 1), (2, 3, 3)])
def test_images_of_one_size_are_frames_though_a_tiff_calls_them_smaller(tmp_path, kinds):
    with AppendingTiffWriter(tmp_path / "a.tif") as writer:
        for frame, kind in zip(FRAMES, kinds, strict=False):
            Image.fromarray(frame).save(writer, format="TIFF", tiffinfo={254: kind})
            writer.newFrame()
    assert np.array_equal(grey(tmp_path / "a.tif"), FRAMES[:3])
