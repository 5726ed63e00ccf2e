"""Where bytes and attributes disagree, the bytes decide, and a note says so."""

import io

import numpy as np
import pydicom
import pytest
from _dicom import US, US_MULTIFRAME, dataset, save, write_dicom
from _dicom_results import derive
from _scans import fan_frames, refused
from PIL import Image
from pydicom import uid
from pydicom.encaps import encapsulate

from usdehaze.decibels import grey_to_db
from usdehaze.errors import InputError
from usdehaze.io.dicom import open_dicom


def grey_ybr(levels):
    """``(..., H, W)`` to ``(..., H, W, 3)``: Y, and neutral chroma."""
    return np.stack([levels, np.full_like(levels, 128), np.full_like(levels, 128)], axis=-1)


def pairs(levels):
    """``(T, H, W)``, W even, as Y Y Cb Cr with neutral chroma: ``(T, H, W / 2, 4)``."""
    packed = np.full((*levels.shape[:2], levels.shape[2] // 2, 4), 128, np.uint8)
    packed[..., 0], packed[..., 1] = levels[..., ::2], levels[..., 1::2]
    return packed


def read(path):
    with open_dicom(path) as scan:
        return scan.read(), " ".join(scan.source.assumptions)


def labelled(path, shape, photometric, data, syntax=uid.ExplicitVRLittleEndian, **attributes):
    """A file of these bytes under the attributes of a picture of that shape."""
    ds = dataset(np.zeros(shape, np.uint8), photometric, **attributes)
    ds.PixelData = data
    if uid.UID(syntax).is_encapsulated:
        ds["PixelData"].is_undefined_length = True
    return save(path, ds, syntax)


def assert_grey(cine, levels):
    np.testing.assert_allclose(cine.frames, grey_to_db(levels, 60), atol=1e-4)
    assert cine.tissue_mask is None or cine.tissue_mask.all()


@pytest.mark.parametrize("columns", [64, 63])
@pytest.mark.parametrize(("n_frames", "said"), [(1, None), (2, 2), (3, 3), (5, None), (6, 1)])
def test_three_bytes_a_pixel_are_not_subsampled_whatever_the_label_says(tmp_path, n_frames, said, columns):
    levels = fan_frames(n_frames, 64, 64)[..., :columns]
    kind = US if n_frames == 1 else US_MULTIFRAME
    shape, more = (n_frames, 64, columns, 3), {"NumberOfFrames": said} if n_frames > 1 else {}
    path = labelled(tmp_path / "a.dcm", shape, "YBR_FULL_422", grey_ybr(levels).tobytes(), SOPClassUID=kind, **more)
    cine, notes = read(path)
    assert_grey(cine, levels)
    assert "the length of the pixel data is that of YBR_FULL with 3 samples a pixel" in notes
    assert ("Number of Frames" in notes) == (said != n_frames and n_frames > 1)
    if said == n_frames and columns == 64:
        relabelled = pydicom.dcmread(path)
        relabelled.PhotometricInterpretation = "YBR_FULL"
        assert np.array_equal(pydicom.pixels.pixel_array(relabelled, raw=True)[..., 0], levels)


def test_three_bytes_of_a_partial_range(tmp_path):
    levels = np.clip(fan_frames(2) // 2, 16, 235)
    path = labelled(tmp_path / "a.dcm", (2, 64, 64, 3), "YBR_PARTIAL_422", grey_ybr(levels).tobytes())
    cine, _ = read(path)
    assert_grey(cine, np.rint((levels.astype(float) - 16) * 255 / 219))


@pytest.mark.parametrize("label", ["YBR_FULL", "RGB"])
@pytest.mark.parametrize("n_frames", [1, 2, 4])
def test_two_bytes_a_pixel_are_subsampled_whatever_the_label_says(tmp_path, label, n_frames):
    levels = fan_frames(n_frames)
    cine, notes = read(labelled(tmp_path / "a.dcm", (n_frames, 64, 64, 3), label, pairs(levels).tobytes()))
    assert_grey(cine, levels)
    assert "subsampled chroma" in notes


def test_odd_columns_of_subsampled_chroma(tmp_path):
    """Pairs run on from row to row, as pydicom and dcmtk take them, or end with the row."""
    levels = fan_frames(2, 64, 64)[..., :63]
    run_on = pairs(levels.reshape(2, 32, 126)).tobytes()
    padded = pairs(np.pad(levels, ((0, 0), (0, 0), (0, 1)))).tobytes()
    for data in (run_on, padded):
        cine, _ = read(labelled(tmp_path / "a.dcm", (2, 64, 63, 3), "YBR_FULL_422", data))
        assert_grey(cine, levels)
    with pytest.raises(InputError, match=r"odd number of columns \(63\); expected an even number"):
        read(labelled(tmp_path / "a.dcm", (2, 64, 63, 3), "YBR_FULL_422", run_on[:-200]))


def test_one_byte_a_pixel_is_grey_and_three_are_colours(tmp_path):
    levels = fan_frames(2)
    cine, notes = read(labelled(tmp_path / "a.dcm", (2, 64, 64, 3), "RGB", levels.tobytes()))
    assert_grey(cine, levels)
    assert "that of grey pixels" in notes
    rgb = np.repeat(levels[..., None], 3, axis=3)
    rgb[:, 20:30, 20:30] = (250, 0, 0)
    cine, notes = read(labelled(tmp_path / "b.dcm", (2, 64, 64), "MONOCHROME2", rgb.tobytes()))
    assert "RGB with 3 samples a pixel" in notes
    assert np.array_equal(cine.tissue_mask[0], (np.ptp(rgb[0], axis=-1) == 0))


def test_bytes_under_the_label_of_words_and_words_under_that_of_bytes(tmp_path):
    levels = fan_frames(2)
    cine, notes = read(labelled(tmp_path / "a.dcm", (2, 64, 64), "MONOCHROME2", levels.tobytes(), BitsAllocated=16))
    assert_grey(cine, levels)
    assert "grey pixels of 16 bits in the attributes" in notes
    words = levels.astype("<u2").tobytes()
    cine, _ = read(labelled(tmp_path / "b.dcm", (2, 64, 64), "MONOCHROME2", words))
    assert_grey(cine, levels)


@pytest.mark.parametrize("said", [None, 1, 2, 3])
@pytest.mark.parametrize("shape", [(4, 64, 64), (5, 63, 61), (6, 64, 64)])
def test_frames_that_number_of_frames_leaves_out_are_found(tmp_path, said, shape):
    levels = fan_frames(*shape)
    cine, notes = read(write_dicom(tmp_path / "a.dcm", levels, NumberOfFrames=said))
    assert_grey(cine, levels)
    assert f"the pixel data hold {shape[0]} frames" in notes


@pytest.mark.parametrize("said", [None, 1, 4])
@pytest.mark.parametrize(
    ("shape", "padding"), [((4, 63, 61), 1), ((4, 63, 61), 3), ((4, 64, 62), 8), ((4, 41, 33, 3), 1)]
)
def test_frames_that_are_padded_one_by_one(tmp_path, said, shape, padding):
    levels = fan_frames(*shape[:3])
    pixels = np.repeat(levels[..., None], 3, axis=3) if len(shape) == 4 else levels
    data = b"".join(frame.tobytes() + bytes(padding) for frame in pixels)
    label, more = ("RGB" if len(shape) == 4 else "MONOCHROME2"), {"NumberOfFrames": said}
    cine, notes = read(labelled(tmp_path / "a.dcm", shape, label, data, **more))
    assert_grey(cine, levels)
    assert f"Each frame is followed by padding (bytes: {padding})." in notes
    assert ("hold 4 frames" in notes) == (said != 4)


@pytest.mark.parametrize("said", [None, 1, 4])
@pytest.mark.parametrize("extra", [2, 100])
def test_bytes_after_the_last_frame(tmp_path, said, extra):
    levels = fan_frames(4)
    path = labelled(
        tmp_path / "a.dcm", levels.shape, "MONOCHROME2", levels.tobytes() + bytes(extra), NumberOfFrames=said
    )
    cine, notes = read(path)
    assert_grey(cine, levels)
    assert ("hold 4 frames" in notes) == (said != 4) and "padding" not in notes


def test_files_cut_off_whose_frames_may_be_padded(tmp_path):
    data = b"".join(frame.tobytes() + bytes(8) for frame in fan_frames(4))
    path = labelled(tmp_path / "a.dcm", (4, 64, 64), "MONOCHROME2", data)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="the file ends within frame 3; the file is cut off"):
        open_dicom(path)


@pytest.mark.parametrize(("rows", "columns"), [(60, 64), (64, 61), (63, 64), (64, 63)])
@pytest.mark.parametrize("said", [None, 2])
def test_more_bytes_than_any_layout_explains_are_refused(tmp_path, rows, columns, said):
    """Rows that are padded to four bytes, and Rows or Columns that are wrong, would shear the picture."""
    data = fan_frames(2).tobytes()
    path = labelled(tmp_path / "a.dcm", (2, rows, columns), "MONOCHROME2", data, NumberOfFrames=said)
    with pytest.raises(InputError, match=f"pixel data of 8192 bytes; expected {2 * rows * columns} bytes for 2 frames"):
        open_dicom(path)


@pytest.mark.parametrize("syntax", [uid.RLELossless, uid.JPEGLSLossless, uid.JPEG2000Lossless])
@pytest.mark.parametrize("said", [None, 1])
@pytest.mark.parametrize("table", [True, False])
def test_frames_of_compressed_files_are_counted(tmp_path, syntax, said, table):
    levels = fan_frames(4)
    ds = dataset(levels)
    ds.compress(syntax, levels, generate_instance_uid=False)
    streams = list(pydicom.encaps.generate_frames(ds.PixelData, number_of_frames=4))
    if not table:  # two fragments a frame where the streams begin with a marker
        parts = 1 if syntax == uid.RLELossless else 2
        ds.PixelData = encapsulate(streams, fragments_per_frame=parts, has_bot=False)
        ds["PixelData"].is_undefined_length = True
    if said is None:
        del ds.NumberOfFrames
    else:
        ds.NumberOfFrames = said
    cine, notes = read(save(tmp_path / "a.dcm", ds, syntax))
    assert_grey(cine, levels)
    assert "the pixel data hold 4 frames" in notes


def jpeg(frame, subsampling, marked):
    """A JPEG stream, with JFIF's marker, with Adobe's that says RGB, or with none."""
    out = io.BytesIO()
    Image.fromarray(frame).save(out, "JPEG", quality=95, subsampling=subsampling)
    stream = out.getvalue()
    bare = stream[:2] + stream[4 + int.from_bytes(stream[4:6], "big") :]
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
    return {"JFIF": stream, "none": bare, "Adobe": bare[:2] + adobe + bare[2:]}[marked], stream


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:2:2"])
@pytest.mark.parametrize("marked", ["none", "JFIF", "Adobe"])
@pytest.mark.parametrize("label", ["RGB", "YBR_FULL_422"])
@pytest.mark.parametrize("columns", [128, 127])
def test_subsampled_jpeg_is_ycbcr_whatever_the_label_and_the_marker_say(tmp_path, subsampling, marked, label, columns):
    rgb = np.repeat(fan_frames(2, 128, 128)[..., :columns, None], 3, axis=3)
    streams = [jpeg(frame, subsampling, marked) for frame in rgb]
    data = encapsulate([stream for stream, _ in streams])
    cine, notes = read(labelled(tmp_path / "a.dcm", rgb.shape, label, data, uid.JPEGBaseline8Bit))
    whole = [np.asarray(Image.open(io.BytesIO(plain)).convert("YCbCr"))[..., 0] for _, plain in streams]
    np.testing.assert_allclose(cine.frames, grey_to_db(np.stack(whole), 60), atol=60 * 2 / 255)
    assert cine.tissue_mask is None or cine.tissue_mask.all()
    assert ("but the frames are YCbCr" in notes) == (label == "RGB")


@pytest.mark.parametrize("syntax", [uid.ExplicitVRLittleEndian, uid.RLELossless, uid.JPEGLSLossless])
@pytest.mark.parametrize("label", ["RGB", "YBR_FULL"])
def test_colours_under_the_wrong_label(tmp_path, syntax, label):
    """Neutral chroma read as RGB is green all over; grey RGB read as YBR is green where it is black."""
    levels = fan_frames(2)
    frames = grey_ybr(levels) if label == "RGB" else np.repeat(levels[..., None], 3, axis=3)
    frames[:, 40:44, 30:34] = (90, 60, 200)
    ds = dataset(frames, "RGB")
    if syntax != uid.ExplicitVRLittleEndian:
        ds.compress(syntax, frames, generate_instance_uid=False)
    ds.PhotometricInterpretation = label
    cine, notes = read(save(tmp_path / "a.dcm", ds, syntax))
    assert "they make a grey picture" in notes
    grey = np.ones(levels.shape, bool)
    grey[:, 40:44, 30:34] = False
    np.testing.assert_allclose(cine.frames[grey], grey_to_db(levels[grey], 60), atol=1e-4)
    assert np.array_equal(cine.tissue_mask, grey)


@pytest.mark.parametrize(
    ("label", "is_really"), [(uid.JPEGLSLossless, "j2k"), (uid.JPEG2000Lossless, "jls"), (uid.JPEGBaseline8Bit, "jls")]
)
def test_a_stream_of_another_kind_than_the_transfer_syntax_says(tmp_path, label, is_really):
    levels = fan_frames(2)
    ds = dataset(levels)
    syntax = uid.JPEG2000Lossless if is_really == "j2k" else uid.JPEGLSLossless
    ds.compress(syntax, levels, generate_instance_uid=False)
    cine, notes = read(save(tmp_path / "a.dcm", ds, label))
    assert_grey(cine, levels)
    assert "The transfer syntax says" in notes


@pytest.mark.parametrize(
    "label", [uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian, uid.JPEG2000Lossless, uid.RLELossless]
)
def test_jpeg_under_another_label_is_read_and_lossy(tmp_path, label):
    """As archives leave it that say they have decompressed an image, and have not."""
    streams, seen = [], []
    for frame in fan_frames(2, 128, 128):
        out = io.BytesIO()
        Image.fromarray(frame).save(out, "JPEG", quality=95)
        streams.append(out.getvalue())
        seen.append(np.asarray(Image.open(out)))
    path = labelled(tmp_path / "a.dcm", (2, 128, 128), "MONOCHROME2", encapsulate(streams), uid.JPEGBaseline8Bit)
    is_implicit = label == uid.ImplicitVRLittleEndian
    start = path.read_bytes().index(b"\xe0\x7f\x10\0")
    ds, pixels = pydicom.dcmread(path), path.read_bytes()[start:]
    del ds.PixelData
    save(path, ds, label)
    if is_implicit:
        pixels = pixels[:4] + pixels[8:]  # without VR
    path.write_bytes(path.read_bytes() + pixels)
    cine, notes = read(path)
    assert_grey(cine, np.stack(seen))
    assert f"The transfer syntax says {label.name}, but the frames are JPEG streams." in notes
    derive(path, tmp_path / "b.dcm")
    assert pydicom.dcmread(tmp_path / "b.dcm").LossyImageCompressionMethod == "ISO_10918_1"


def test_encapsulated_pixels_that_are_no_stream_are_refused_under_a_native_label(tmp_path):
    ds = dataset(fan_frames(2))
    ds.PixelData = encapsulate([frame.tobytes() for frame in fan_frames(2)])
    ds["PixelData"].is_undefined_length = True
    path = save(tmp_path / "a.dcm", ds, uid.RLELossless)
    path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.5\0", b"1.2.840.10008.1.2.1\0", 1))
    refused(path, "pixel data are encapsulated, which does not fit the transfer syntax (Explicit VR Little Endian)")


def test_components_and_bits_are_those_of_the_stream(tmp_path):
    levels = fan_frames(2, 128, 128)
    streams = []
    for frame in levels:
        out = io.BytesIO()
        Image.fromarray(frame).save(out, "JPEG", quality=100)
        streams.append(out.getvalue())
    seen = np.stack([np.asarray(Image.open(io.BytesIO(stream))) for stream in streams])
    path = labelled(tmp_path / "a.dcm", (2, 128, 128, 3), "RGB", encapsulate(streams), uid.JPEGBaseline8Bit)
    cine, notes = read(path)
    assert_grey(cine, seen)
    assert "Samples per Pixel says 3, but the frames have 1." in notes
    words = dataset(levels.astype(np.uint16) * 16, bits=12)
    words.compress(uid.JPEGLSLossless, levels.astype(np.uint16) * 16, generate_instance_uid=False)
    words.BitsStored, words.HighBit = 16, 15
    cine, notes = read(save(tmp_path / "b.dcm", words, uid.JPEGLSLossless))
    np.testing.assert_allclose(cine.frames, grey_to_db(levels * 16.0, 60, 4095), atol=1e-4)
    assert "Bits Stored says 16, but the frames have 12." in notes


@pytest.mark.parametrize("colours", [True, False])
def test_components_are_as_many_as_rle_has_segments(tmp_path, colours):
    levels = fan_frames(2)
    stored, other = (levels, "RGB") if not colours else (np.repeat(levels[..., None], 3, axis=-1), "MONOCHROME2")
    ds = dataset(stored, "RGB" if colours else "MONOCHROME2")
    ds.compress(uid.RLELossless, stored, generate_instance_uid=False)
    ds.PhotometricInterpretation, ds.SamplesPerPixel = other, 1 if colours else 3
    cine, notes = read(save(tmp_path / "a.dcm", ds, uid.RLELossless))
    assert_grey(cine, levels)
    assert f"Samples per Pixel says {1 if colours else 3}, but the frames have {3 if colours else 1}." in notes


@pytest.mark.parametrize("label", ["RGB", "YBR_RCT"])
def test_planes_mean_nothing_to_jpeg_2000_and_to_subsampled_chroma(tmp_path, label):
    levels = fan_frames(2)
    rgb = np.repeat(levels[..., None], 3, axis=3)
    ds = dataset(rgb, label)
    ds.compress(uid.JPEG2000Lossless, rgb, generate_instance_uid=False)
    ds.PlanarConfiguration = 1
    assert_grey(read(save(tmp_path / "a.dcm", ds, uid.JPEG2000Lossless))[0], levels)
    data = pairs(levels).tobytes()
    assert_grey(read(labelled(tmp_path / "b.dcm", rgb.shape, "YBR_FULL_422", data, PlanarConfiguration=1))[0], levels)


def test_photometric_interpretation_in_small_letters_and_missing(tmp_path):
    levels = fan_frames(2)
    assert_grey(read(write_dicom(tmp_path / "a.dcm", levels, PhotometricInterpretation="monochrome2"))[0], levels)
    with pytest.raises(InputError, match="attribute PhotometricInterpretation is missing"):
        open_dicom(write_dicom(tmp_path / "b.dcm", levels, PhotometricInterpretation=None))


@pytest.mark.parametrize("syntax", [uid.ExplicitVRLittleEndian, uid.RLELossless, uid.JPEG2000Lossless])
def test_gdcm_sees_the_same_levels(tmp_path, syntax):
    """Files whose attributes are right, YBR and RGB, in the decoders of GDCM."""
    gdcm = pytest.importorskip("gdcm")
    rgb = np.repeat(fan_frames(2)[..., None], 3, axis=3)
    path = write_dicom(tmp_path / "a.dcm", rgb, "RGB", syntax)
    reader = gdcm.ImageReader()
    reader.SetFileName(str(path))
    assert reader.Read()
    theirs = np.frombuffer(reader.GetImage().GetBuffer().encode("utf-8", "surrogateescape"), np.uint8)
    cine, notes = read(path)
    assert_grey(cine, theirs.reshape(rgb.shape)[..., 0])
    assert "attributes" not in notes


@pytest.mark.parametrize("said", [None, 1, 3])
def test_frames_of_a_video_are_counted(tmp_path, said):
    from test_io_dicom_codecs import video_file

    frames = np.repeat(fan_frames(5, 128, 128)[..., None], 3, axis=3)
    cine, notes = read(video_file(tmp_path / "a.dcm", frames, NumberOfFrames=said))
    assert len(cine.frames) == 5 and "the pixel data hold 5 frames" in notes


def doppler(levels):
    """``(T, H, W, 3)`` uint8: grey levels, and some red and blue in them."""
    rgb = np.repeat(levels[..., None], 3, axis=-1)
    rgb[:, 30:40, 20:40] = (200, 30, 10)
    rgb[:, 40:50, 20:40] = (10, 40, 210)
    return rgb


def tinted(levels):
    return np.stack([levels, levels * 0.8, levels * 0.6], axis=-1).astype(np.uint8)


@pytest.mark.parametrize("planar", [0, 1])
@pytest.mark.parametrize("said", [0, 1, None])
@pytest.mark.parametrize("colours", [doppler, tinted, grey_ybr])
def test_planes_are_told_by_the_bytes(tmp_path, planar, said, colours):
    pixels = colours(fan_frames(3, 80, 70))
    data = (pixels.transpose(0, 3, 1, 2) if planar else pixels).tobytes()
    photometric = "YBR_FULL" if colours is grey_ybr else "RGB"
    path = labelled(tmp_path / "a.dcm", pixels.shape, photometric, data, PlanarConfiguration=said)
    true = labelled(tmp_path / "b.dcm", pixels.shape, photometric, data, PlanarConfiguration=planar)
    (cine, notes), (expected, _) = read(path), read(true)
    assert np.array_equal(cine.frames, expected.frames)
    assert ("Planar Configuration says" in notes) == (planar != (said or 0))
    with open_dicom(path) as scan:
        assert colours is grey_ybr or np.array_equal(scan.picture(1).rgb, pixels[1])


@pytest.mark.parametrize("photometric", ["YBR_PARTIAL_420", "YBR_PARTIAL_422"])
@pytest.mark.parametrize("bytes_a_pixel", [2, 3])
@pytest.mark.parametrize("full", [True, False])
def test_partial_range_and_subsampling_are_told_by_the_bytes(tmp_path, photometric, bytes_a_pixel, full):
    levels = fan_frames(2, 64, 64)
    luma = levels if full else np.rint(levels * (219 / 255) + 16).astype(np.uint8)
    data = (pairs(luma) if bytes_a_pixel == 2 else grey_ybr(luma)).tobytes()
    cine, notes = read(labelled(tmp_path / "a.dcm", (*levels.shape, 3), photometric, data))
    assert np.abs(cine.frames - grey_to_db(levels, 60)).max() < 60 / 255 + 1e-3
    assert cine.tissue_mask is None and ("taken over its full range" in notes) == full


@pytest.mark.parametrize("n_frames", [1, 2, 4])
def test_chroma_of_every_fourth_pixel_is_refused_where_it_is_not_compressed(tmp_path, n_frames):
    data = bytes(n_frames * 64 * 64 * 3 // 2)
    kind = US if n_frames == 1 else US_MULTIFRAME
    path = labelled(tmp_path / "a.dcm", (n_frames, 64, 64, 3), "YBR_PARTIAL_420", data, SOPClassUID=kind)
    with pytest.raises(InputError, match="chroma of every fourth pixel"):
        open_dicom(path)


@pytest.mark.parametrize("syntax", [uid.JPEGLSLossless, uid.JPEG2000Lossless])
def test_rows_and_columns_of_a_stream_that_are_exchanged(tmp_path, syntax):
    frames = fan_frames(3, 96, 120)
    ds = dataset(frames)
    ds.compress(syntax, frames, generate_instance_uid=False)
    ds.Rows, ds.Columns = ds.Columns, ds.Rows
    with open_dicom(save(tmp_path / "a.dcm", ds, syntax)) as scan:
        assert [note for note in scan.source.assumptions if "96 rows of 120" in note]
        np.testing.assert_allclose(scan.read_db(0, 3), (frames / 255.0 - 1) * 60, atol=1e-4)


@pytest.mark.parametrize("kind", ["grey", "16 bits", "RGB", "planes"])
def test_rows_and_columns_that_are_exchanged(tmp_path, kind):
    frames = stored = fan_frames(3, 96, 120)
    if kind == "16 bits":
        stored = frames.astype(np.uint16) * 257
    elif kind != "grey":
        stored = np.repeat(frames[..., None], 3, axis=-1)
    ds = dataset(stored, "RGB" if stored.ndim == 4 else "MONOCHROME2")
    if kind == "planes":
        ds.PlanarConfiguration, ds.PixelData = 1, stored.transpose(0, 3, 1, 2).tobytes()
    ds.Rows, ds.Columns = ds.Columns, ds.Rows
    with open_dicom(save(tmp_path / "a.dcm", ds)) as scan:
        assert [note for note in scan.source.assumptions if "96 rows of 120" in note]
        np.testing.assert_allclose(scan.read_db(0, 3), (frames / 255.0 - 1) * 60, atol=1e-4)


@pytest.mark.parametrize("kind", ["grey", "16 bits", "RGB"])
def test_rows_and_columns_that_are_exchanged_under_rle(tmp_path, kind):
    frames = stored = fan_frames(3, 96, 120)
    if kind != "grey":
        stored = frames.astype(np.uint16) * 257 if kind == "16 bits" else np.repeat(frames[..., None], 3, axis=-1)
    ds = dataset(stored, "RGB" if stored.ndim == 4 else "MONOCHROME2")
    ds.compress(uid.RLELossless, stored, generate_instance_uid=False)
    ds.Rows, ds.Columns = ds.Columns, ds.Rows
    with open_dicom(save(tmp_path / "a.dcm", ds, uid.RLELossless)) as scan:
        assert [note for note in scan.source.assumptions if "96 rows of 120" in note]
        np.testing.assert_allclose(scan.read_db(0, 3), (frames / 255.0 - 1) * 60, atol=1e-4)


def test_layers_are_no_rows_of_another_length(tmp_path):
    """A linear image whose neighbours in a row are far more alike than those in a column."""
    layers = np.repeat(np.random.default_rng(0).integers(1, 255, (1, 120, 1), dtype=np.uint8), 96, axis=2)
    for frames in (layers, np.pad(layers, ((0, 0), (0, 0), (3, 3)))):
        with open_dicom(write_dicom(tmp_path / "a.dcm", frames)) as scan:
            assert scan.shape == frames.shape[1:]
