"""Transfer syntaxes, and where in the pixel data each frame lies."""

import struct
import sys
import zlib

import numpy as np
import pytest
from _dicom import dataset, save, write_dicom
from _scans import fan_frames
from pydicom import dcmread, uid
from pydicom.data import get_testdata_file
from pydicom.encaps import encapsulate, encapsulate_extended

from usdehaze.budget import max_memory
from usdehaze.decibels import grey_to_db
from usdehaze.errors import InputError
from usdehaze.io.dicom import open_dicom
from usdehaze.io.dicom.jpeg import parse_jpeg, with_raw_components

LOSSLESS = [uid.RLELossless, uid.JPEGLSLossless, uid.JPEG2000Lossless]
NATIVE = [uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian]


def colour_frames(n_frames=3):
    return np.random.default_rng(1).integers(0, 256, (n_frames, 40, 56, 3), dtype=np.uint8)


def refused(path, *parts, force=False):
    with pytest.raises(InputError) as caught, open_dicom(path, force=force) as scan:
        scan.read()
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize("syntax", LOSSLESS + NATIVE)
@pytest.mark.parametrize("kind", ["8 bits", "16 bits", "RGB"])
def test_lossless_syntaxes_give_what_was_stored(tmp_path, syntax, kind):
    frames = fan_frames(3) if kind != "RGB" else colour_frames()
    frames = frames.astype(np.uint16) * 257 if kind == "16 bits" else frames
    photometric = "RGB" if kind == "RGB" else "MONOCHROME2"
    if kind == "RGB" and syntax == uid.JPEG2000Lossless:
        photometric = "YBR_RCT"
    ds = dataset(frames, photometric)
    if syntax == uid.ExplicitVRBigEndian:
        ds.PixelData = frames.byteswap().tobytes()
    path = tmp_path / "a.dcm"
    if syntax.is_compressed:
        write_dicom(path, frames, photometric, syntax)
    else:
        ds["PixelData"].VR = "OW" if syntax == uid.ImplicitVRLittleEndian else ds["PixelData"].VR
        save(path, ds, syntax)
    with open_dicom(path, force=True) as scan:  # colour all over is no B-mode
        for index in (2, 0, 1):  # any order
            picture = scan.picture(index)
            assert np.array_equal(picture.levels if kind != "RGB" else picture.rgb, frames[index])


def test_8_bit_words_of_big_endian_files_are_swapped(tmp_path):
    """PS3.5 8.1.1: an OW value of 8-bit pixels comes in words of two pixels."""
    frames = fan_frames(2)
    ds = dataset(frames, PixelData=frames.reshape(-1, 2)[:, ::-1].tobytes())
    ds["PixelData"].VR = "OW"
    with open_dicom(save(tmp_path / "a.dcm", ds, uid.ExplicitVRBigEndian)) as scan:
        swapped = scan.picture(1).levels
    assert np.array_equal(swapped, frames[1])


def halves(path, syntax):
    """Header and data set of a file of two frames."""
    ds = dataset(fan_frames(2))
    ds["PixelData"].VR = "OW"
    whole = save(path, ds, syntax).read_bytes()
    end = 144 + int.from_bytes(whole[140:144], "little")
    return whole[:end], whole[end:]


@pytest.mark.parametrize("says", [uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian])
def test_data_sets_of_another_vr_than_the_transfer_syntax_says(tmp_path, says):
    path = tmp_path / "a.dcm"
    is_really = NATIVE[1 - NATIVE.index(says)]
    path.write_bytes(halves(path, says)[0] + halves(path, is_really)[1])
    with open_dicom(path) as scan:
        assert np.array_equal(scan.picture(1).levels, fan_frames(2)[1])
        assert f"The transfer syntax says {says.name}, but the file is {is_really.name}." in scan.source.assumptions


def test_headers_in_implicit_vr_and_without_their_length_are_read(tmp_path):
    path = tmp_path / "a.dcm"
    meta, data = halves(path, uid.ExplicitVRLittleEndian)
    kept = [(element.tag.element, element.value) for element in dcmread(path).file_meta if element.VR == "UI"]
    values = [(1, b"\0\1"), *((number, value.encode() + b"\0" * (len(value) % 2)) for number, value in kept)]
    elements = b"".join(struct.pack("<HHL", 2, number, len(value)) + value for number, value in values)
    path.write_bytes(meta[:132] + elements + data)
    with open_dicom(path) as scan:
        assert np.array_equal(scan.picture(1).levels, fan_frames(2)[1])


@pytest.mark.parametrize("says", [uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian])
def test_data_sets_in_another_byte_order_than_the_transfer_syntax_says(tmp_path, says):
    path, others = tmp_path / "a.dcm", {uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian}
    path.write_bytes(halves(path, says)[0] + halves(path, (others - {says}).pop())[1])
    is_really = "little" if says == uid.ExplicitVRBigEndian else "big"
    refused(path, f"its data set is {is_really}-endian, which does not fit the transfer syntax ({says.name})")


@pytest.mark.parametrize("colour", [False, True])
def test_lossless_jpeg(tmp_path, colour):
    """Written by libjpeg-turbo in another binding; RGB is stored as it is, under component numbers that say YCbCr."""
    imagecodecs = pytest.importorskip("imagecodecs")
    frames = colour_frames(2) if colour else fan_frames(2)
    space = {"colorspace": "rgb", "outcolorspace": "rgb"} if colour else {}
    streams = [imagecodecs.jpeg8_encode(frame, lossless=True, predictor=1, **space) for frame in frames]
    ds = dataset(frames, "RGB" if colour else "MONOCHROME2", PixelData=encapsulate(streams))
    ds["PixelData"].is_undefined_length = True
    with open_dicom(save(tmp_path / "a.dcm", ds, uid.JPEGLosslessSV1), force=True) as scan:
        for index, frame in enumerate(frames):
            picture = scan.picture(index)
            assert np.array_equal(picture.rgb if colour else picture.levels, frame)


def test_jpeg_of_12_bits_needs_an_extra(tmp_path, monkeypatch):
    imagecodecs = pytest.importorskip("imagecodecs")
    frames = fan_frames(1).astype(np.uint16) * 16
    stream = imagecodecs.jpeg8_encode(frames[0], lossless=True, predictor=1, bitspersample=12)
    ds = dataset(frames, bits=12, PixelData=encapsulate([stream]))
    ds["PixelData"].is_undefined_length = True
    path = save(tmp_path / "a.dcm", ds, uid.JPEGLossless)
    with open_dicom(path) as scan:
        assert np.array_equal(scan.picture(0).levels, frames[0])
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    refused(path, "12-bit JPEG needs a decoder that is not installed", "pip install usdehaze[codecs]")


def test_jpeg_xl_needs_an_extra(tmp_path, monkeypatch):
    imagecodecs = pytest.importorskip("imagecodecs")
    frames = fan_frames(2)
    ds = dataset(frames, PixelData=encapsulate([imagecodecs.jpegxl_encode(frame, lossless=True) for frame in frames]))
    ds["PixelData"].is_undefined_length = True
    path = save(tmp_path / "a.dcm", ds, "1.2.840.10008.1.2.4.110")
    with open_dicom(path) as scan:
        assert np.array_equal(scan.picture(1).levels, frames[1])
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    refused(path, "JPEG XL needs a decoder that is not installed", "pip install usdehaze[codecs]")


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.4.94", "1.2.840.10008.1.2.8.1", "1.2.3.4"])
def test_other_transfer_syntaxes_are_refused(tmp_path, syntax):
    ds = dataset(fan_frames(1), PixelData=encapsulate([b"stream"]))
    ds["PixelData"].is_undefined_length = True
    refused(save(tmp_path / "a.dcm", ds, syntax), "a transfer syntax that is not read", "native, RLE, JPEG")


@pytest.mark.parametrize(("shape", "bits"), [((64, 64), 8), ((63, 65), 8), ((64, 64), 12)])
def test_frames_that_are_encapsulated_but_not_compressed(tmp_path, shape, bits):
    frames = fan_frames(3, *shape).astype(np.uint8 if bits == 8 else "<u2") << (bits - 8)
    ds = dataset(frames, bits=bits, PixelData=encapsulate([frame.tobytes() for frame in frames]))
    ds["PixelData"].is_undefined_length = True
    path = save(tmp_path / "a.dcm", ds, "1.2.840.10008.1.2.1.98")
    with open_dicom(path) as scan:
        assert [np.array_equal(scan.picture(i).levels, frames[i]) for i in range(3)] == [True] * 3
    ds.PixelData = encapsulate([frame.tobytes()[:-2] for frame in frames])
    refused(save(tmp_path / "a.dcm", ds, "1.2.840.10008.1.2.1.98"), "cannot be decoded (Explicit VR Little Endian)")


def test_deflated_files(tmp_path):
    frames = fan_frames(2)
    path = write_dicom(tmp_path / "a.dcm", frames, syntax=uid.DeflatedExplicitVRLittleEndian)
    with open_dicom(path) as scan:
        np.testing.assert_allclose(scan.read_db(1, 2)[0], grey_to_db(frames[1], 60), atol=1e-4)


def test_deflated_files_without_group_length(tmp_path):
    path = tmp_path / "a.dcm"
    header, deflated = halves(path, uid.DeflatedExplicitVRLittleEndian)
    path.write_bytes(header[:132] + header[144:] + deflated)
    with open_dicom(path) as scan:
        assert np.array_equal(scan.picture(1).levels, fan_frames(2)[1])


@pytest.mark.parametrize("pack", [bytes, zlib.compress])
def test_files_that_are_not_deflated_as_they_say(tmp_path, pack):
    path = tmp_path / "a.dcm"
    plain = halves(path, uid.ExplicitVRLittleEndian)[1]
    path.write_bytes(halves(path, uid.DeflatedExplicitVRLittleEndian)[0] + pack(plain))
    refused(path, "its data set cannot be inflated", "without a zlib header", "write it again as DICOM")


def test_a_deflated_file_may_not_inflate_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "usdehaze.budget.MEMORY_A_SECOND", 2**10
    )  # bytes are the limit here, not the first import's time
    path = write_dicom(tmp_path / "a.dcm", np.zeros((999, 64, 64), np.uint8), syntax=uid.DeflatedExplicitVRLittleEndian)
    assert path.stat().st_size < 2**15
    with max_memory(2**19):
        refused(path, "inflates to more than")


def rle(frames):
    from pydicom.pixels import get_encoder

    ds = dataset(frames)
    encode = get_encoder(uid.RLELossless).encode
    return [encode(ds, index=i, encoding_plugin="pylibjpeg") for i in range(len(frames))]


def item(value):
    value += b"\0" * (len(value) % 2)
    return struct.pack("<HHL", 0xFFFE, 0xE000, len(value)) + value


def tables():
    """Ways to write down where three frames lie; the second is in two fragments where that can be told."""
    streams = rle(fan_frames(3))
    offsets = np.cumsum([0] + [len(item(s)) for s in streams[:-1]])
    halves = [streams[0], streams[1][:100], streams[1][100:], streams[2]]
    split = np.array([0, len(item(streams[0])), sum(len(item(h)) for h in halves[:3])])
    return {
        "no table": item(b"") + b"".join(map(item, streams)),
        "basic table": item(struct.pack("<3L", *offsets)) + b"".join(map(item, streams)),
        "basic table, fragments": item(struct.pack("<3L", *split)) + b"".join(map(item, halves)),
        "wrong table": item(struct.pack("<3L", 0, 10, 20)) + b"".join(map(item, streams)),
        "table of one frame": item(struct.pack("<L", 0)) + b"".join(map(item, streams)),
    }


@pytest.mark.parametrize("name", tables())
def test_frames_are_found_with_any_offset_table(tmp_path, name):
    ds = dataset(fan_frames(3), PixelData=tables()[name])
    ds["PixelData"].is_undefined_length = True
    with open_dicom(save(tmp_path / "a.dcm", ds, uid.RLELossless)) as scan:
        for index in (1, 2, 0):
            assert np.array_equal(scan.picture(index).levels, fan_frames(3)[index])


def test_extended_offset_table(tmp_path):
    data, offsets, lengths = encapsulate_extended(rle(fan_frames(3)))
    ds = dataset(fan_frames(3), PixelData=data, ExtendedOffsetTable=offsets, ExtendedOffsetTableLengths=lengths)
    ds["PixelData"].is_undefined_length = True
    with open_dicom(save(tmp_path / "a.dcm", ds, uid.RLELossless)) as scan:
        assert np.array_equal(scan.picture(2).levels, fan_frames(3)[2])


def test_fragments_of_jpeg_without_a_table_end_where_the_images_do(tmp_path):
    from pydicom.pixels import get_encoder

    frames = fan_frames(2)
    streams = [get_encoder(uid.JPEGLSLossless).encode(dataset(frames), index=i) for i in range(2)]
    halves = [half for stream in streams for half in (stream[:200], stream[200:])]
    ds = dataset(frames, PixelData=item(b"") + b"".join(map(item, halves)))
    ds["PixelData"].is_undefined_length = True
    with open_dicom(save(tmp_path / "a.dcm", ds, uid.JPEGLSLossless)) as scan:
        assert np.array_equal(scan.picture(1).levels, frames[1])


def test_fewer_fragments_than_frames(tmp_path):
    ds = dataset(fan_frames(3), PixelData=tables()["no table"], NumberOfFrames=30)
    ds["PixelData"].is_undefined_length = True
    refused(save(tmp_path / "a.dcm", ds, uid.RLELossless), "3 compressed fragments", "30 frames as Number of Frames")


@pytest.mark.parametrize("syntax", [uid.ExplicitVRLittleEndian, *LOSSLESS])
def test_files_cut_off_in_their_pixel_data(tmp_path, syntax):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(3), syntax=syntax)
    path.write_bytes(path.read_bytes()[:-2000])
    refused(path, "cut off")


@pytest.mark.parametrize("syntax", [uid.JPEGLSLossless, uid.JPEG2000Lossless])
def test_a_stream_of_another_size_is_refused_before_it_is_decoded(tmp_path, syntax):
    ds = dataset(fan_frames(1))
    ds.compress(syntax, fan_frames(1)[0], generate_instance_uid=False)
    ds.Rows = 32
    refused(save(tmp_path / "a.dcm", ds, syntax), "a compressed frame of 64 x 64; expected 32 x 64 as the file says")


def test_jpeg_that_declares_a_giant_is_refused_before_it_is_decoded(tmp_path):
    header = struct.pack(">BBHBHHBBBB", 0xFF, 0xC0, 11, 8, 65000, 65000, 1, 1, 0x11, 0)
    ds = dataset(fan_frames(1), PixelData=encapsulate([b"\xff\xd8" + header + b"\xff\xd9"]))
    ds["PixelData"].is_undefined_length = True
    refused(save(tmp_path / "a.dcm", ds, uid.JPEGBaseline8Bit), "65000 x 65000", "64 x 64 as the file says")


def test_attributes_of_an_unknown_vr_are_a_line_like_any_other(tmp_path):
    """Of what describes the pixels, and of what a table of their places is."""
    path = write_dicom(tmp_path / "a.dcm", fan_frames(2), syntax=uid.RLELossless)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"\x28\0\x04\0CS", b"\x28\0\x04\0Cs"))
    refused(path, "attribute PhotometricInterpretation is missing")
    table = b"\xe0\x7f\1\0Ov\x08\0" + bytes(8)
    path.write_bytes(whole.replace(b"\xe0\x7f\x10\0OB", table + b"\xe0\x7f\x10\0OB"))
    with open_dicom(path) as scan:
        assert np.array_equal(scan.picture(1).levels, fan_frames(2)[1])


def test_a_damaged_rle_frame_is_a_line_like_any_other(tmp_path):
    """Runs that go beyond the frame: more than a decoder's index out of bounds must not come of it."""
    segment = b"\x81\x07" * 40  # 40 runs of 128, of which 32 fill the frame
    stream = struct.pack("<16L", 2, 64, 64 + len(segment), *[0] * 13) + segment * 2
    frames = np.zeros((1, 64, 64), np.uint16)
    ds = dataset(frames, PixelData=encapsulate([stream]))
    ds["PixelData"].is_undefined_length = True
    refused(save(tmp_path / "a.dcm", ds, uid.RLELossless), "frame 0", force=True)


def test_encapsulation_that_does_not_fit_the_transfer_syntax(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(1))
    path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.5\0", 1))
    refused(path, "not encapsulated", "RLE Lossless")


@pytest.mark.parametrize(
    "name", ["SC_rgb_jpeg_dcmtk.dcm", "SC_jpeg_no_color_transform.dcm", "SC_rgb_small_odd_jpeg.dcm", "SC_rgb_jpeg.dcm"]
)
def test_components_of_a_jpeg_stream_come_out_as_they_are_stored(name):
    """pydicom's own examples, with JFIF, with Adobe's marker and with neither; pydicom asks libjpeg another way."""
    import io

    import pydicom
    from PIL import Image
    from pydicom.encaps import get_frame
    from pydicom.pixels import pixel_array

    ds = pydicom.dcmread(get_testdata_file(name))
    stream = get_frame(ds.PixelData, 0, number_of_frames=1)
    info = parse_jpeg(stream)
    assert (info.rows, info.columns, info.components, info.precision) == (ds.Rows, ds.Columns, 3, 8)
    raw = np.asarray(Image.open(io.BytesIO(with_raw_components(stream))))
    assert np.array_equal(raw, pixel_array(ds, raw=True, decoding_plugin="pillow"))


def video(frames, rate=25):
    """H.264 in MP4, as the ffmpeg of imageio-ffmpeg writes it, nearly without loss."""
    import subprocess

    program = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    height, width = frames.shape[1:3]
    read = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(rate), "-i", "-"]
    write = ["-c:v", "libx264", "-qp", "4", "-pix_fmt", "yuv420p", "-f", "mp4", "-movflags", "frag_keyframe+empty_moov"]
    done = subprocess.run([program, "-v", "error", *read, *write, "-"], input=frames.tobytes(), capture_output=True)
    return done.stdout


def video_file(path, frames, stream=None, **more):
    ds = dataset(frames, "YBR_PARTIAL_420", PixelData=encapsulate([stream or video(frames)], has_bot=False), **more)
    ds["PixelData"].is_undefined_length = True
    return save(path, ds, uid.MPEG4HP41)


def test_video(tmp_path):
    frames = np.repeat(fan_frames(6, 128, 128)[..., None], 3, axis=3)
    frames = (frames // 2 + np.arange(6, dtype=np.uint8)[:, None, None, None] * 15).astype(np.uint8)
    frames[:, 40:72, 40:72] = (200, 60, 20)
    with open_dicom(video_file(tmp_path / "a.dcm", frames)) as scan:
        assert scan.n_frames == 6 and scan.has_colour
        for index in (0, 1, 4, 2, 5):  # forwards and back
            picture = scan.picture(index)
            assert np.abs(picture.levels[80:, :].astype(int) - frames[index, 80:, :, 0]).mean() < 2
            assert np.abs(picture.rgb[44:68, 44:68].astype(int).mean((0, 1)) - (200, 60, 20)).max() < 12
        copy = scan._file._video._stream.name
    import os

    assert not os.path.exists(copy)


@pytest.mark.parametrize("syntax", [f"1.2.840.10008.1.2.4.10{digit}.1" for digit in "0123456"])
def test_video_that_may_come_in_fragments(tmp_path, syntax):
    frames = np.repeat(fan_frames(4, 64, 64)[..., None], 3, axis=3)
    stream = video(frames)
    ds = dataset(
        frames,
        "YBR_PARTIAL_420",
        PixelData=item(b"") + b"".join(item(stream[i : i + 500]) for i in range(0, len(stream), 500)),
    )
    ds["PixelData"].is_undefined_length = True
    with open_dicom(save(tmp_path / "a.dcm", ds, syntax)) as scan:
        assert scan.n_frames == 4 and np.abs(scan.picture(3).levels - frames[3, ..., 0].astype(int)).mean() < 2


def test_video_that_cannot_be_used(tmp_path, monkeypatch):
    frames = np.repeat(fan_frames(4, 64, 64)[..., None], 3, axis=3)
    stream = video(frames)
    refused(video_file(tmp_path / "a.dcm", frames, b"no video at all "), "its video cannot be decoded")
    refused(video_file(tmp_path / "a.dcm", frames, b"#EXTM3U\nfile:///etc/passwd\n"), "its video cannot be decoded")
    refused(video_file(tmp_path / "a.dcm", frames, stream, Rows=32), "video of 64 x 64", "32 x 64 as the file says")
    refused(video_file(tmp_path / "a.dcm", frames, stream, NumberOfFrames=9), "video of 4 frames", "9 as Number")
    refused(video_file(tmp_path / "a.dcm", frames, stream, NumberOfFrames=2000000000), "2000000000 frames in")
    path = video_file(tmp_path / "a.dcm", frames, stream)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    refused(path, "video needs a decoder that is not installed", "pip install usdehaze[video]")
