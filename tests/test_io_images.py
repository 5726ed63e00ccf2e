"""Images, folders of images and MetaImage files as scans."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from _scans import fan_frames, refused, write
from PIL import Image

import usdehaze as ud
from usdehaze.cli.plan import plan_jobs
from usdehaze.errors import InputError
from usdehaze.io import list_scans, open_scan
from usdehaze.io.images.read import natural_order

FRAMES = fan_frames(12, 72, 80)


def expected(frames):
    return (frames.astype(float) / 255 - 1) * 60


def grey(path):
    return np.rint(255 * (ud.open_cine(path).frames / 60 + 1)).astype(int)


def folder(path, frames=FRAMES, suffix="png"):
    path.mkdir(parents=True)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(path / f"frame-{index + 1}.{suffix}")
    return path


def mha(path, frames, compressed=False, header=(), data=None, order="<"):
    """A MetaImage file of ``frames`` ``(T, H, W[, C])``."""
    types = {"u1": "MET_UCHAR", "u2": "MET_USHORT", "i2": "MET_SHORT", "f4": "MET_FLOAT"}
    types |= {"i8": "MET_LONG_LONG", "u8": "MET_ULONG_LONG"}
    code = frames.dtype.str[1:]
    values = frames.astype(frames.dtype.newbyteorder(order)).tobytes() if data is None else data
    lines = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryDataByteOrderMSB": str(order == ">"),
        "CompressedData": str(compressed),
        "DimSize": f"{frames.shape[2]} {frames.shape[1]} {frames.shape[0]}",
        "ElementType": types[code],
        **dict(header),
        "ElementDataFile": "LOCAL",
    }
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    path.write_bytes(text.encode() + (zlib.compress(values) if compressed else values))
    return path


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_a_folder_of_images_is_a_cine_in_natural_order(tmp_path, suffix):
    cine = ud.open_cine(folder(tmp_path / "clip", suffix=suffix))
    assert np.abs(cine.frames - expected(FRAMES)).max() < 1e-4
    assert "12 images taken as one cine, in the order of their names." in cine.source.assumptions
    assert (cine.source.name, cine.geometry.found_by) == ("clip", "sector finder")


def test_natural_order_counts():
    names = ["f10.png", "f9.png", "f2b.png", "f2a.png", "g1.png"]
    ordered = natural_order([Path(name) for name in names])
    assert [path.name for path in ordered] == ["f2a.png", "f2b.png", "f9.png", "f10.png", "g1.png"]


def test_digits_of_other_scripts_are_letters():
    paths = [Path(n) for n in ("1²10.png", "1²9.png", "1٣6.png", "1a7.png")]
    assert natural_order(paths) == [paths[3], paths[1], paths[0], paths[2]]


def test_images_of_other_suffixes_are_frames_where_they_are_of_one_kind_and_else_told(tmp_path):
    clip = folder(tmp_path / "clip", FRAMES[:8], "tif")
    for index in range(8, 12):
        Image.fromarray(FRAMES[index]).save(clip / f"frame-{index + 1}.tiff")
    Image.fromarray(FRAMES[0]).save(clip / "cover.png")
    cine = ud.open_cine(clip)
    assert cine.frames.shape[0] == 12 and np.abs(cine.frames - expected(FRAMES)).max() < 1e-4
    assert "Images of other suffixes left out: 1 .png." in cine.source.assumptions
    refused(clip, "--strict allows no guess: Images of other suffixes", strict=True)


@pytest.mark.parametrize("named", ["frame-{}_mask.png", "frame-{}.gt.bmp", "frame-{} Annotation 1.png"])
def test_masks_beside_the_frames_are_no_frames(tmp_path, named):
    clip = folder(tmp_path / "clip")
    for index, frame in enumerate(FRAMES):
        Image.fromarray((frame > 100) * np.uint8(255)).save(clip / named.format(index + 1))
    cine = ud.open_cine(clip)
    assert cine.frames.shape == FRAMES.shape and np.abs(cine.frames - expected(FRAMES)).max() < 1e-4
    assert "Images named as masks of others left out: 12." in cine.source.assumptions
    (clip / "seg-1.png").write_bytes((clip / "frame-1.png").read_bytes())  # of nothing
    for name in ("._frame-1.png", "._frame-1_mask.png", "._mask"):  # of macOS, beside the files that they are about
        (clip / name).write_bytes(b"\0\5\x16\7")
    cine = ud.open_cine(clip)
    assert cine.frames.shape[0] == 13
    assert "Images named as masks of others left out: 12." in cine.source.assumptions


@pytest.mark.parametrize("content", [b"", b"text", "half"])
def test_a_frame_of_a_folder_that_is_no_image_is_not_lost(tmp_path, content):
    clip = folder(tmp_path / "clip")
    path, whole = clip / "frame-7.png", (clip / "frame-7.png").read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    (clip / ".frame-8.png").write_bytes(b"")
    if content == "half":
        with pytest.raises(InputError, match=rf"^{path}: cannot be read as an image"):
            ud.open_cine(clip)
    else:
        refused(clip, "frame-7.png is no image (", "expected an image, as its name says; mend it, or take it away")


def test_a_range_of_a_folder_is_the_same_frames(tmp_path):
    path = folder(tmp_path / "clip")
    part, whole = ud.open_cine(path, frames=slice(3, 7)), ud.open_cine(path)
    assert np.array_equal(part.frames, whole.frames[3:7]) and part.geometry == whole.geometry
    assert part.source.sha256 == whole.source.sha256


def test_one_image_is_a_cine_of_one_frame_colour_as_luma_opacity_left_out(tmp_path):
    rgba = np.dstack([FRAMES[0]] * 3 + [np.full_like(FRAMES[0], 9)])
    rgba[0, 0, :3] = (0, 100, 0)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    frames = ud.open_cine(tmp_path / "a.png").frames
    grey = FRAMES[0].copy()
    grey[0, 0] = round(58.7)
    assert frames.shape == (1, 72, 80) and np.abs(frames[0] - expected(grey)).max() < 1e-3


def test_16_bit_images_keep_their_depth(tmp_path):
    deep = FRAMES[0].astype(np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "a.png")
    cine = ud.open_cine(tmp_path / "a.png")
    assert cine.source.units == "grey" and np.abs(cine.frames[0] - expected(FRAMES[0])).max() < 1e-3


def test_palette_images_are_what_they_look_like(tmp_path):
    Image.fromarray(FRAMES[0]).convert("RGB").quantize(256).save(tmp_path / "a.png")
    assert np.abs(ud.open_cine(tmp_path / "a.png").frames[0] - expected(FRAMES[0])).max() < 1e-3


def test_a_tiff_of_several_images_is_a_cine(tmp_path):
    first, *rest = (Image.fromarray(frame) for frame in FRAMES)
    first.save(tmp_path / "a.tif", save_all=True, append_images=rest)
    assert np.abs(ud.open_cine(tmp_path / "a.tif").frames - expected(FRAMES)).max() < 1e-4


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_metaimage_is_read_in_any_order_of_frames(tmp_path, compressed, order):
    deep = FRAMES.astype(np.uint16) * 257
    with open_scan(mha(tmp_path / "a.mha", deep, compressed, order=order)) as scan:
        for start, stop in ((7, 9), (0, 2), (10, 12), (3, 4)):
            assert np.abs(scan.read_db(start, stop) - expected(FRAMES[start:stop])).max() < 1e-3


@pytest.mark.parametrize("true", ["True", "T", "1"])
def test_flags_of_a_metaimage_are_read_as_itk_reads_them(tmp_path, true):
    header = {"BinaryData": true, "BinaryDataByteOrderMSB": true, "CompressedData": true}
    path = mha(tmp_path / "a.mha", FRAMES.astype(np.uint16) * 256, True, header.items(), order=">")
    assert np.abs(ud.open_cine(path).frames - expected(FRAMES)).max() < 0.25


def test_spacing_of_a_metaimage_is_believed_unless_it_is_its_default(tmp_path):
    given = ud.open_cine(mha(tmp_path / "a.mha", FRAMES, header={"ElementSpacing": "0.2 0.3 1"}.items()))
    assert given.geometry.spacing_m == pytest.approx((3e-4, 2e-4))
    unset = ud.open_cine(mha(tmp_path / "b.mha", FRAMES, header={"ElementSpacing": "1 1 1"}.items()))
    assert unset.geometry.spacing_m is None


def test_colour_metaimages_become_their_luma(tmp_path):
    rgb = np.repeat(FRAMES[..., None], 3, axis=3)
    for kind in ("MET_UCHAR", "MET_UCHAR_ARRAY"):
        header = {"ElementNumberOfChannels": "3", "ElementType": kind}
        cine = ud.open_cine(mha(tmp_path / "a.mha", rgb, header=header.items()))
        assert np.abs(cine.frames - expected(FRAMES)).max() < 1e-4


@pytest.mark.parametrize("stored", [np.int64, np.uint64])
def test_whole_numbers_of_64_bits_in_a_metaimage_are_grey_levels(tmp_path, stored):
    cine = ud.open_cine(mha(tmp_path / "a.mha", FRAMES.astype(stored)))
    assert np.abs(cine.frames - expected(FRAMES)).max() < 1e-4


def test_a_folder_of_metaimages_of_one_frame_is_a_cine(tmp_path):
    (tmp_path / "clip").mkdir()
    for index in range(4):
        mha(tmp_path / "clip" / f"{index}.mha", FRAMES[index : index + 1])
    assert np.abs(ud.open_cine(tmp_path / "clip").frames - expected(FRAMES[:4])).max() < 1e-4


def test_what_cannot_be_used_is_refused_in_one_line(tmp_path):
    whole = folder(tmp_path / "clip")
    Image.fromarray(FRAMES[0, :60]).save(whole / "frame-5.png")
    refused(whole, "frame-5.png is 60 x 80 uint8; expected 72 x 80 uint8 as in frame-1.png", "one by one")
    two = folder(tmp_path / "two", suffix="tif")
    Image.fromarray(FRAMES[0]).save(two / "frame-5.tif", save_all=True, append_images=[Image.fromarray(FRAMES[1])])
    refused(two, "frame-5.tif is 2 x 72 x 80 uint8; expected 72 x 80 uint8 as in frame-1.tif")
    refused(whole, "has no datasets (images)", dataset="x")
    cut = (folder(tmp_path / "cut") / "frame-3.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(cut[:300])
    refused(tmp_path / "cut.png", "cannot be read as an image", "damaged")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is a folder, not a scan")


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"DimSize": "80 72 1000000"}, None, "declares 5760000000 bytes but stores 69120"),
        ({"DimSize": "80000 72000 1"}, None, "at most 8388608 pixels a frame"),
        ({"DimSize": "80 72 3 4"}, None, "holds 80 x 72 x 3 x 4 pixels"),
        ({"DimSize": "80 -72 3"}, None, "holds 80 x -72 x 3 pixels"),
        ({"BinaryData": "False"}, None, "values as text (BinaryData = False); expected BinaryData = True"),
        ({"DimSize": "a b"}, None, "MetaImage header that cannot be used"),
        ({"ElementType": "MET_OTHER"}, None, "MetaImage header that cannot be used"),
        ({"ElementNumberOfChannels": "2"}, None, "2 channels"),
        ({"CompressedData": "True"}, zlib.compress(FRAMES.tobytes())[:-9000], "ends in frame"),
        ({"CompressedData": "True"}, b"no zlib at all" * 600, "cannot be read as an image"),
    ],
)
def test_metaimages_that_lie_are_refused(tmp_path, header, data, message):
    refused(mha(tmp_path / "a.mha", FRAMES, header=header.items(), data=data), message)


def test_a_metaimage_whose_data_lie_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "a.mha").write_text("ObjectType = Image\nDimSize = 80 72\nElementDataFile = /etc/passwd\n")
    refused(tmp_path / "a.mha", "keeps its data in another file, which is not followed")


@pytest.mark.parametrize("name", ["rgba.png", "la.png", "key.png", "key.gif"])
def test_colours_hidden_under_no_opacity_are_black(tmp_path, name):
    shown = FRAMES[0] > 0
    hidden = Image.fromarray(np.where(shown, np.minimum(FRAMES[0], 254), 255).astype(np.uint8))
    opacity = Image.fromarray(np.where(shown, 255, 0).astype(np.uint8))
    if name.startswith("key"):
        hidden.save(tmp_path / name, transparency=255)
    else:
        mode = "LA" if name == "la.png" else "RGBA"
        Image.merge(mode, [*[hidden] * (len(mode) - 1), opacity]).save(tmp_path / name)
    cine = ud.open_cine(tmp_path / name)
    assert np.abs(cine.frames[0] - expected(np.minimum(FRAMES[0], 254))).max() < 1e-3
    assert not any("inverted" in note for note in cine.source.assumptions)


def test_the_level_that_a_deep_png_does_not_show_is_black(tmp_path):
    deep = np.where(FRAMES[0] > 0, FRAMES[0] * np.uint16(256), np.uint16(65535))
    Image.fromarray(deep).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    at, chunk = content.index(b"IDAT") - 4, b"tRNS\xff\xff"
    chunk = b"\0\0\0\2" + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    (tmp_path / "a.png").write_bytes(content[:at] + chunk + content[at:])
    assert np.array_equal(grey(tmp_path / "a.png")[0], FRAMES[0])


def test_a_picture_in_the_opacity_alone_is_refused(tmp_path):
    white = Image.new("L", FRAMES[0].shape[::-1], 255)
    Image.merge("LA", (white, Image.fromarray(FRAMES[0]))).save(tmp_path / "a.png")
    refused(tmp_path / "a.png", "its picture lies in its opacity (alpha) alone", "lay it over black")
    white.save(tmp_path / "b.png")
    with pytest.raises(InputError, match=r"is constant \(0 dB everywhere\); expected frames with an image in them$"):
        ud.open_cine(tmp_path / "b.png")


def test_of_a_jpeg_with_other_pictures_the_first_is_read(tmp_path):
    first = Image.fromarray(FRAMES[0])
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[first.resize((40, 36))], quality=98)
    cine = ud.open_cine(tmp_path / "a.jpg")
    assert cine.frames.shape == (1, 72, 80) and any("first picture" in note for note in cine.source.assumptions)
    assert np.abs(grey(tmp_path / "a.jpg")[0] - FRAMES[0]).mean() < 1


@pytest.mark.parametrize("at_rest", [False, True])
def test_an_animated_png_is_a_cine_with_its_times(tmp_path, at_rest):
    images, times = [Image.fromarray(frame) for frame in FRAMES[:4]], [40, 80, 40, 40]
    first = Image.fromarray(FRAMES[9]) if at_rest else images.pop(0)
    first.save(tmp_path / "a.png", save_all=True, append_images=images, duration=times, default_image=at_rest)
    with open_scan(tmp_path / "a.png") as scan:
        np.testing.assert_allclose(scan.frame_times_s, [0, 0.04, 0.12, 0.16])
        for start, stop in ((2, 4), (0, 3)):
            assert np.abs(scan.read_db(start, stop) - expected(FRAMES[start:stop])).max() < 1e-3


def test_a_folder_of_scans_and_a_folder_of_images_are_told_apart(tmp_path):
    folder(tmp_path / "in" / "clip")
    (tmp_path / "in" / "scans").mkdir()
    write(tmp_path / "in" / "scans" / "a.h5", {"x": FRAMES})
    Image.fromarray(FRAMES[0]).save(tmp_path / "in" / "scans" / "thumbnail.png")
    mha(tmp_path / "in" / "stack.mha", FRAMES)
    Image.fromarray(FRAMES[0]).save(tmp_path / "in" / "stack.dehazed.png")
    scans = list_scans([tmp_path / "in"])
    assert [str(p.relative_to(tmp_path / "in")) for p in scans] == ["stack.mha", "clip", "scans/a.h5"]


def test_results_of_a_folder_of_images_lie_beside_it(tmp_path):
    clip = folder(tmp_path / "in" / "clip.v2")
    assert plan_jobs((str(clip),), None)[0].result == tmp_path / "in" / "clip.v2.dehazed.h5"
    assert plan_jobs((str(clip),), str(tmp_path / "out"))[0].result == tmp_path / "out" / "clip.v2.dehazed.h5"
    job = plan_jobs((str(tmp_path / "in"),), str(tmp_path / "out"))[0]
    assert job.result == tmp_path / "out" / "clip.v2.dehazed.h5"
