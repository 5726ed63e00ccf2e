"""Grey levels and colours: what a pixel of every kind of DICOM image becomes in dB."""

import numpy as np
import pytest
from _dicom import dataset, save, write_dicom
from _scans import fan_frames
from pydicom.dataset import Dataset
from pydicom.uid import JPEGBaseline8Bit, RLELossless

from usdehaze.decibels import grey_to_db
from usdehaze.errors import InputError
from usdehaze.io.dicom import DicomScan, open_dicom
from usdehaze.io.reading import with_options

COLOURS = {  # name: R, G, B, luma by ITU-R BT.601
    "red": (255, 0, 0, 76),
    "green": (0, 255, 0, 150),
    "blue": (0, 0, 255, 29),
    "orange": (200, 100, 0, 119),
    "grey": (90, 90, 90, 90),
    "nearly grey": (100, 96, 90, 97),
    "white": (255, 255, 255, 255),
    "black": (0, 0, 0, 0),
}


def patches(kind=np.uint8):
    """``(1, 16, 16, 3)``: two columns of each colour."""
    frame = np.zeros((1, 16, 16, 3), kind)
    for index, (*rgb, _) in enumerate(COLOURS.values()):
        frame[0, :, 2 * index : 2 * index + 2] = rgb
    return frame


def levels_of(path):
    """Grey level that each patch was read as, from its dB."""
    with open_dicom(path) as scan:
        cine = scan.read()
    return dict(zip(COLOURS, (cine.frames[0, 8, ::2] / 60 + 1) * 255, strict=True)), cine


LUMA = {name: colour[3] for name, colour in COLOURS.items()}


@pytest.mark.parametrize("planar", [0, 1])
def test_rgb_becomes_luma_and_only_grey_pixels_are_tissue(tmp_path, planar):
    ds = dataset(patches(), "RGB", PlanarConfiguration=planar)
    if planar:
        ds.PixelData = patches().transpose(0, 3, 1, 2).tobytes()
    levels, cine = levels_of(save(tmp_path / "a.dcm", ds))
    assert levels == pytest.approx(LUMA, abs=1e-4)
    tissue = dict(zip(COLOURS, cine.tissue_mask[0, 8, ::2], strict=True))
    assert tissue == {name: name in ("grey", "nearly grey", "white", "black") for name in COLOURS}


def ybr(red, green, blue):
    """PS3.3 C.7.6.3.1.2, rounded."""
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    cb, cr = 128 + (blue - y) / 1.772, 128 + (red - y) / 1.402
    return [int(np.clip(np.rint(value), 0, 255)) for value in (y, cb, cr)]


def test_ybr_full_becomes_its_own_y(tmp_path):
    frame = np.apply_along_axis(lambda rgb: ybr(*rgb), 3, patches().astype(int)).astype(np.uint8)
    levels, cine = levels_of(write_dicom(tmp_path / "a.dcm", frame, "YBR_FULL"))
    assert levels == pytest.approx({name: ybr(*rgb)[0] for name, (*rgb, _) in COLOURS.items()}, abs=1e-4)
    with open_dicom(tmp_path / "a.dcm") as scan:
        seen = scan.picture(0).rgb[8, ::2].astype(int)
    assert np.abs(seen - patches()[0, 8, ::2]).max() <= 2
    assert dict(zip(COLOURS, cine.tissue_mask[0, 8, ::2], strict=True))["red"] is np.False_


@pytest.mark.parametrize(("photometric", "low", "span"), [("YBR_FULL_422", 0, 255), ("YBR_PARTIAL_422", 16, 219)])
def test_422_chroma_is_shared_by_pairs_of_pixels(tmp_path, photometric, low, span):
    y = np.arange(16, dtype=np.uint8)[None] * 10 + np.arange(16, dtype=np.uint8)[:, None] + 20
    packed = np.empty((16, 8, 4), np.uint8)  # Y Y Cb Cr
    packed[..., 0], packed[..., 1], packed[..., 2:] = y[:, ::2], y[:, 1::2], 128
    packed[:, :2, 3] = 240  # the first four columns are red
    ds = dataset(np.zeros((1, 16, 16, 3), np.uint8), photometric, PixelData=packed.tobytes())
    with open_dicom(save(tmp_path / "a.dcm", ds)) as scan:
        cine = scan.read()
    level = np.clip(np.rint((y.astype(float) - low) * 255 / span), 0, 255)
    np.testing.assert_allclose(cine.frames[0], grey_to_db(level, 60), atol=1e-4)
    assert not cine.tissue_mask[0, :, :4].any() and cine.tissue_mask[0, :, 4:].all()


@pytest.mark.parametrize("kind", ["8 bits", "16 bits", "8 bits in 16", "segmented"])
def test_palettes(tmp_path, kind):
    """Stored value i shows colour i; from 8 on, the grey 10 * i."""
    table = np.array([[*colour[:3]] for colour in COLOURS.values()] + [[10 * i] * 3 for i in range(8, 16)], int)
    stored = np.arange(256, dtype=np.uint8).reshape(1, 16, 16) % 16
    ds = dataset(stored, "PALETTE COLOR")
    for column, name in enumerate(("Red", "Green", "Blue")):
        bits, entries = (8, table[:, column]) if kind == "8 bits" else (16, table[:, column])
        if kind in ("16 bits", "segmented"):
            entries = entries * 257
        data = np.asarray(entries, np.uint8 if bits == 8 else np.uint16).tobytes()
        if kind == "segmented":  # one discrete segment
            data = np.array([0, 16], np.uint16).tobytes() + data
        prefix = "Segmented" if kind == "segmented" else ""
        setattr(ds, f"{name}PaletteColorLookupTableDescriptor", [16, 0, bits])
        setattr(ds, f"{prefix}{name}PaletteColorLookupTableData", data)
    with open_dicom(save(tmp_path / "a.dcm", ds)) as scan:
        cine, rgb = scan.read(), scan.picture(0).rgb
    assert np.array_equal(rgb[0], table.astype(np.uint8))
    expected = [*LUMA.values(), *(10 * i for i in range(8, 16))]
    np.testing.assert_allclose((cine.frames[0, 3] / 60 + 1) * 255, expected, atol=1e-4)
    assert cine.tissue_mask[0, 0].tolist() == [False] * 4 + [True] * 12


def test_a_palette_that_is_cut_off_is_refused(tmp_path):
    ds = dataset(fan_frames(1), "PALETTE COLOR")
    for name in ("Red", "Green", "Blue"):
        setattr(ds, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 16])
        setattr(ds, f"{name}PaletteColorLookupTableData", b"\0\1\2\3")
    with pytest.raises(InputError, match="its colour palette cannot be used"):
        open_dicom(save(tmp_path / "a.dcm", ds))


@pytest.mark.parametrize("said", [{"PixelPresentation": "COLOR"}, {"UltrasoundColorDataPresent": 1}, {}])
def test_colours_above_grey_levels_are_refused_where_they_are_shown(tmp_path, said):
    """Supplemental palette: PS3.3 C.7.6.19."""
    ds = dataset(fan_frames(1), **said)
    for name in ("Red", "Green", "Blue"):
        setattr(ds, f"{name}PaletteColorLookupTableDescriptor", [64, 192, 16])
        setattr(ds, f"{name}PaletteColorLookupTableData", bytes(128))
    path = save(tmp_path / "a.dcm", ds)
    if not said:
        with open_dicom(path) as scan:
            assert scan.read().tissue_mask is None
        return
    with pytest.raises(InputError, match=r"colours above them.*convert it to RGB"):
        open_dicom(path)


def test_monochrome1_is_dark_where_values_are_large(tmp_path):
    frames = fan_frames(2)
    with open_dicom(write_dicom(tmp_path / "a.dcm", 255 - frames, "MONOCHROME1")) as scan:
        np.testing.assert_allclose(scan.read_db(0, 2), grey_to_db(frames, 60), atol=1e-4)
        assert scan.read().tissue_mask is None


def ramp(top, kind=np.uint16):
    return np.linspace(0, top, 256).round().astype(kind).reshape(1, 16, 16)


@pytest.mark.parametrize("bits", [10, 12, 15])
def test_more_than_8_bits_span_the_dynamic_range_of_bits_stored(tmp_path, bits):
    frame = ramp(2**bits - 1) // 2
    with open_dicom(write_dicom(tmp_path / "a.dcm", frame, bits=bits)) as scan:
        np.testing.assert_allclose(scan.read_db(0, 1), grey_to_db(frame, 60, 2**bits - 1), atol=1e-4)
        assert scan.source.units == "grey"


@pytest.mark.parametrize(("top", "full_scale"), [(65535, 65535), (4000, 4095), (200, 255)])
def test_16_bits_say_nothing_of_full_scale_and_the_largest_value_does(tmp_path, top, full_scale):
    frame = ramp(top)
    with open_dicom(write_dicom(tmp_path / "a.dcm", frame)) as scan:
        np.testing.assert_allclose(scan.read_db(0, 1), grey_to_db(frame, 60, full_scale), atol=1e-4)
        assert f"Full scale (0 dB) taken as {full_scale}." in scan.source.assumptions


@pytest.mark.parametrize("photometric", ["MONOCHROME2", "MONOCHROME1"])
@pytest.mark.parametrize("span", [1000, 255])  # also as many levels as 8 bits have
def test_the_window_of_more_than_8_bits_spans_the_dynamic_range(tmp_path, photometric, span):
    frame = ramp(4095)
    window = {"WindowCenter": 500.5 + span / 2, "WindowWidth": span + 1}
    path = write_dicom(tmp_path / "a.dcm", frame, photometric, bits=12, **window)
    with open_dicom(path) as scan:
        frames_db = scan.read_db(0, 1)
        assert "The window in the file spans the dynamic range." in scan.source.assumptions
    share = np.clip((frame - 500.0) / span, 0, 1)
    share = 1 - share if photometric == "MONOCHROME1" else share
    np.testing.assert_allclose(frames_db, 60 * (share - 1), atol=1e-4)


@pytest.mark.parametrize("photometric", ["MONOCHROME2", "MONOCHROME1"])
@pytest.mark.parametrize("window", [{}, {"WindowCenter": 2500, "WindowWidth": 1000}, {"VOILUTSequence": [Dataset()]}])
def test_levels_that_are_told_are_of_all_stored_values(tmp_path, photometric, window):
    frames = fan_frames(2)
    stored = frames.astype(np.uint16)  # of 12 bits, as large as those of 8
    stored = 4095 - stored if photometric == "MONOCHROME1" else stored
    path = write_dicom(tmp_path / "a.dcm", stored, photometric, bits=12, **window)
    with DicomScan(path, with_options(None, path, levels=(0, 255), strict=True, dynamic_range_db=60)) as scan:
        np.testing.assert_allclose(scan.read_db(0, 2), grey_to_db(frames, 60), atol=1e-4)


def test_the_window_of_8_bits_is_for_the_screen_alone(tmp_path):
    frames = fan_frames(1)
    path = write_dicom(tmp_path / "a.dcm", frames, WindowCenter=60, WindowWidth=80)
    with open_dicom(path, dynamic_range_db=50) as scan:
        np.testing.assert_allclose(scan.read_db(0, 1), grey_to_db(frames, 50), atol=1e-4)
        assert scan.source.assumptions[0].startswith("No ultrasound region")  # the range was given, not assumed


CAPTURE = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7.3"}


@pytest.mark.parametrize(("slope", "intercept"), [(0.0625, 0), (1, -1024), (-1, 4095), (-0.5, 100)])
def test_the_window_is_of_rescaled_values(tmp_path, slope, intercept):
    """Modality LUT before VOI LUT: PS3.3 C.11.1, C.11.2."""
    frame = ramp(4095)
    window = {"WindowCenter": 2000 * abs(slope) + (intercept if slope > 0 else intercept - 4000 * abs(slope))}
    window |= {"WindowWidth": 3000 * abs(slope), "RescaleSlope": slope, "RescaleIntercept": intercept}
    rescaled = slope * frame.astype(float) + intercept
    with open_dicom(write_dicom(tmp_path / "a.dcm", frame, bits=12, **window, **CAPTURE)) as scan:
        frames_db = scan.read_db(0, 1)
    share = (rescaled - (window["WindowCenter"] - 0.5)) / (window["WindowWidth"] - 1) + 0.5
    np.testing.assert_allclose(frames_db, 60 * (np.clip(share, 0, 1) - 1), atol=1e-3)


@pytest.mark.parametrize("bits", [8, 12])
def test_a_negative_slope_turns_grey_levels_round(tmp_path, bits):
    frame, top = ramp(2**bits - 1, np.uint8 if bits == 8 else np.uint16), 2**bits - 1
    turned = {"RescaleSlope": -1, "RescaleIntercept": top, **CAPTURE}
    with open_dicom(write_dicom(tmp_path / "a.dcm", frame, bits=bits, **turned)) as scan:
        np.testing.assert_allclose(scan.read_db(0, 1), grey_to_db(top - frame, 60, top), atol=1e-4)


def test_levels_by_a_table_are_refused(tmp_path):
    table = Dataset()
    table.ModalityLUTType = "US"
    with pytest.raises(InputError, match="grey levels by a table"):
        open_dicom(write_dicom(tmp_path / "a.dcm", fan_frames(1), ModalityLUTSequence=[table], **CAPTURE))

    with pytest.raises(InputError, match=r"grey levels by a table \(VOI LUT\)"):
        open_dicom(write_dicom(tmp_path / "a.dcm", fan_frames(1).astype(np.uint16), VOILUTSequence=[table]))


@pytest.mark.parametrize(("bits", "value", "limit"), [(8, 255, None), (8, 240, 255), (16, 65535, None)])
def test_padding_around_the_image_is_black_and_the_same_value_in_it_stays(tmp_path, bits, value, limit):
    frames = np.minimum(fan_frames(2, 96, 96), 230).astype(np.uint8 if bits == 8 else np.uint16)
    frames[:, 50, 45:50] = min(value, 255)
    padded = np.where(frames == 0, value, frames).astype(frames.dtype)
    if limit is not None:
        padded[:, 0] = limit
    more = {"PixelPaddingValue": value} | ({} if limit is None else {"PixelPaddingRangeLimit": limit})
    with open_dicom(write_dicom(tmp_path / "a.dcm", padded, **more)) as scan:
        cine = scan.read()
        assert sum("Pixel Padding Value" in note for note in scan.source.assumptions) == 1
    expected = frames.astype(float)
    if limit is not None:
        expected[:, 0] = 0
    np.testing.assert_allclose((cine.frames / 60 + 1) * 255, expected, atol=0.01)
    with open_dicom(write_dicom(tmp_path / "a.dcm", fan_frames(2), PixelPaddingValue=0)) as scan:
        assert not any("Padding" in note for note in scan.source.assumptions)


def test_lossy_compression_leaves_grey_speckle_grey(tmp_path):
    """JPEG with halved chroma, made by Pillow: speckle stays tissue, a block of colour does not become it."""
    import io

    from PIL import Image
    from pydicom.encaps import encapsulate

    rgb = np.repeat(fan_frames(1, 128, 128)[0][..., None], 3, axis=2)
    rgb[80:112, 48:80] = (220, 60, 20)
    stream = io.BytesIO()
    Image.fromarray(rgb).save(stream, "JPEG", quality=75, subsampling="4:2:2")
    ds = dataset(rgb[None], "YBR_FULL_422", PixelData=encapsulate([stream.getvalue()]))
    ds["PixelData"].is_undefined_length = True
    with open_dicom(save(tmp_path / "a.dcm", ds, JPEGBaseline8Bit)) as scan:
        cine = scan.read()
    y = np.asarray(Image.open(stream).convert("YCbCr"))[..., 0]
    np.testing.assert_allclose(cine.frames[0], grey_to_db(y, 60), atol=60 * 2 / 255)
    colour = np.zeros((128, 128), bool)
    colour[80:112, 48:80] = True
    assert not cine.tissue_mask[0][colour].any()
    far = np.ones((128, 128), bool)
    far[72:120, 40:88] = False  # a block of chroma beyond it
    assert cine.tissue_mask[0][far].all()


def test_grey_frames_of_a_colour_file_have_no_colour(tmp_path):
    frames = np.repeat(fan_frames(3)[..., None], 3, axis=3)
    with open_dicom(write_dicom(tmp_path / "a.dcm", frames, "RGB", RLELossless)) as scan:
        assert scan.has_colour is False and scan.read().tissue_mask is None
    frames[2, 5, 5] = (0, 200, 0)
    with open_dicom(write_dicom(tmp_path / "b.dcm", frames, "RGB", RLELossless)) as scan:
        assert scan.has_colour is True
    with open_dicom(tmp_path / "b.dcm", frames=slice(0, 2)) as scan:
        assert scan.has_colour is False


def test_colours_have_no_sign_whatever_the_label_says(tmp_path):
    frames = fan_frames(2)
    colours = np.repeat(frames[..., None], 3, axis=-1)
    with open_dicom(write_dicom(tmp_path / "a.dcm", colours, "RGB", PixelRepresentation=1)) as scan:
        np.testing.assert_allclose(scan.read_db(0, 2), grey_to_db(frames, 60), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"PhotometricInterpretation": "CMYK"}, "a Photometric Interpretation that is not read"),
        ({"PhotometricInterpretation": "RGB"}, "1 samples per pixel, which does not fit RGB"),
        ({"PixelRepresentation": 1}, "signed pixel values"),
        ({"BitsAllocated": 32, "BitsStored": 32}, "pixels of 32 bits stored in 32"),
        ({"BitsStored": 9}, "pixels of 9 bits stored in 8"),
        ({"Rows": 0}, "frames of 0 x 64"),
        ({"Rows": 65000, "Columns": 65000}, "frames of 65000 x 65000"),
        ({"Columns": None}, "attribute Columns is missing"),
        ({"NumberOfFrames": -1}, "-1 frames"),
        ({"NumberOfFrames": 2000000000}, "bytes for 2000000000 frames"),
        ({"NumberOfFrames": 99999999999}, "bytes for 99999999999 frames"),
        ({"Rows": 640}, "pixel data of 4096 bytes; expected 40960 bytes"),
    ],
)
def test_pixels_that_no_ultrasound_image_has(tmp_path, change, found):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(1), **change)
    with pytest.raises(InputError) as caught:
        open_dicom(path)
    assert found in str(caught.value) and "\n" not in str(caught.value)
