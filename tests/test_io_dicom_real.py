"""Real DICOM files: what each of them gives, and what dciodvfy thinks of what is made of it."""

import hashlib
import shutil

import numpy as np
import pydicom
import pytest
from _dicom import US_MULTIFRAME, region, write_dicom
from _dicom_results import complaints, derive
from _scans import fan_frames

from usdehaze.errors import InputError
from usdehaze.io import open_scan
from usdehaze.io.dicom import open_dicom

# frames, size, what is taken as the image, row pitch in mm, any colour
ULTRASOUND = {
    "ExplVR_BigEnd.dcm": (1, (60, 80), "whole", None, True),
    "IM00001.implicit_little_endian.dcm": (8, (240, 320), "fan", 2.2938, True),
    "JPEGExtended_3s_1f_u_08_08.dcm": (1, (576, 768), "rectangle", 0.0418, True),
    "JPGLosslessP14SV1_1s_1f_8b.dcm": (1, (768, 1024), "fan", 0.2548, False),
    "OBXXXX1A_2frame.dcm": (2, (600, 800), "fan", 0.2623, True),
    "OBXXXX1A_rle.dcm": (1, (600, 800), "rectangle", 0.2623, True),
    "US-PAL-8-10x-echo.dcm": (10, (430, 600), "rectangle", None, True),
    "US1_J2KI.dcm": (1, (480, 640), "rectangle", None, True),
    "US1_UNCI.dcm": (1, (480, 640), "rectangle", None, True),
    "YBR_422.dcm": (1, (555, 800), "rectangle", 0.0616, True),
    "YBR_FULL-RLE.dcm": (1, (480, 640), "rectangle", 0.0954, True),
    "examples_jpeg2k.dcm": (1, (480, 640), "rectangle", None, True),
    "examples_palette.dcm": (1, (350, 800), "rectangle", None, True),
    "examples_rgb_color.dcm": (1, (240, 320), "rectangle", None, True),
    "examples_ybr_color.dcm": (30, (240, 320), "fan", None, True),
    "gdcm-US-ALOKA-16.dcm": (1, (480, 640), "rectangle", 0.3827, True),
    "gdcm-US-RGB-8-epicard.dcm": (1, (480, 640), "fan", None, True),
    "jpeg-ls-Palette.dcm": (10, (430, 600), "rectangle", None, True),
    "no-pixel-spacing.dcm": (1, (600, 800), "rectangle", 0.3305, True),
    "sonoque_anechoic-3mm-3mm.dcm": (1, (1455, 2083), "rectangle", 0.0291, True),
    "will-jxl.dcm": (27, (708, 1016), "fan", 0.2724, True),
}
REFUSED = {
    "malformed/20-wrong-transfer-syntax.dcm": "of another kind (CT Image Storage)",
    "malformed/DICOMDIR-empty.dcm": "is a DICOMDIR that lists no ultrasound image",
    "malformed/ExplVR_LitEndNoMeta.dcm": "without the header of a DICOM file",
    "malformed/MR_truncated.dcm": "of another kind (MR Image Storage)",
    "malformed/badVR.dcm": "of another kind (RT Dose Storage)",
    "malformed/bad_sequence.dcm": "of another kind (CT Image Storage)",
    "malformed/meta_missing_tsyntax.dcm": "without a Transfer Syntax UID",
    "malformed/no_meta.dcm": "is no scan (unknown content)",
    "other/CT_small.dcm": "of another kind (CT Image Storage)",
    "other/OT-PAL-8-face.dcm": "without the header of a DICOM file",
    "other/chrJapMulti.dcm": "of another kind (Computed Radiography Image Storage)",
    "other/emri_small.dcm": "of another kind (Enhanced MR Image Storage)",
    "other/parametric_map_float.dcm": "of another kind (Parametric Map Storage)",
    "other/rtdose.dcm": "of another kind (RT Dose Storage)",
}
needs_dciodvfy = pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="no dciodvfy (Debian: dicom3tools)")


def test_every_file_has_its_line(data_dir):
    here = {path.relative_to(data_dir / "dicom").as_posix() for path in (data_dir / "dicom").rglob("*.dcm")}
    assert here == {f"us/{name}" for name in ULTRASOUND} | set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_ultrasound_is_refused_in_one_line(data_dir, name):
    with pytest.raises(InputError) as caught:
        open_scan(data_dir / "dicom" / name)
    assert REFUSED[name] in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ULTRASOUND)
def test_ultrasound_is_read_and_written(data_dir, tmp_path, name):
    """Sources keep every byte; pixels that are no tissue keep every bit; dciodvfy finds nothing that is new."""
    if name == "will-jxl.dcm":
        pytest.importorskip("imagecodecs")
    path, target = data_dir / "dicom" / "us" / name, tmp_path / "out.dcm"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with open_dicom(path) as scan:
        sector, spacing_m = scan.geometry.sector, scan.geometry.spacing_m
        image = "whole" if sector is None else "fan" if sector.angle_max - sector.angle_min > 0.1 else "rectangle"
        pitch = spacing_m and round(1000 * spacing_m[0], 4)
        assert (scan.n_frames, scan.shape, image, pitch, scan.has_colour) == ULTRASOUND[name]
        source, mask = scan.picture(0), scan.read(0, 1).tissue_mask
    ds, _ = derive(path, target, frames=slice(0, 1))
    first = ds.pixel_array
    seen = source.levels if first.ndim == 2 else source.rgb
    kept = np.ones(scan.shape, bool) if mask is None else mask[0]
    assert np.array_equal(first[~kept], seen[~kept])
    assert (first != seen).any()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    if shutil.which("dciodvfy"):
        assert not (_of_the_instance(complaints(target)) - _of_the_instance(complaints(path)))


def _of_the_instance(lines):
    """A source whose own UID breaks the rules breaks them where it is referred to as well."""
    return {line.replace("(0x0008,0x1155)", "(0x0008,0x0018)").replace("Referenced SOP", "SOP") for line in lines}


@needs_dciodvfy
@pytest.mark.parametrize("syntax", ["explicit", "rle", "jpeg-ls", "j2k"])
@pytest.mark.parametrize("kind", ["cine", "still", "colour", "no times", "part", "haze"])
def test_a_source_without_faults_gives_results_without_faults(tmp_path, syntax, kind):
    frames = fan_frames(1 if kind == "still" else 4)
    more = {"FrameTime": None, "FrameIncrementPointer": None} if kind == "no times" else {}
    if kind == "part":
        more = {"FrameTime": None, "FrameTimeVector": [0, 20, 30, 40], "FrameIncrementPointer": 0x00181065}
    rgb = np.repeat(frames[..., None], 3, axis=3)
    rgb[:, 20:30, 20:30, 0] = 255
    item = region(ReferencePixelX0=31, ReferencePixelY0=0)
    photometric = "RGB" if kind == "colour" else "MONOCHROME2"
    path = write_dicom(
        tmp_path / "a.dcm",
        rgb if kind == "colour" else frames,
        photometric,
        regions=[item],
        LossyImageCompression="00",
        UltrasoundColorDataPresent=0,
        **more,
    )
    what = "haze" if kind == "haze" else "tissue"
    part = slice(1, 3) if kind == "part" else None
    ds, _ = derive(path, tmp_path / "b.dcm", what=what, transfer_syntax=syntax, frames=part)
    assert (ds.SOPClassUID == US_MULTIFRAME) == (kind != "still")
    assert complaints(tmp_path / "b.dcm") <= complaints(path)


def test_the_same_picture_in_several_syntaxes_is_the_same_frame(data_dir):
    """One image of the set is there as RGB and as JPEG 2000, another as RLE and as JPEG-LS."""
    folder = data_dir / "dicom" / "us"
    for one, other, within in (
        ("US1_UNCI.dcm", "US1_J2KI.dcm", 2),
        ("US-PAL-8-10x-echo.dcm", "jpeg-ls-Palette.dcm", 0),
    ):
        with open_dicom(folder / one) as a, open_dicom(folder / other) as b:
            last = a.n_frames - 1
            difference = a.picture(last).rgb.astype(int) - b.picture(last).rgb
            assert np.abs(difference).max() <= within


def test_pydicom_sees_the_same_colours(data_dir):
    """Its own conversion to RGB, for files that are stored as YBR or compressed."""
    for name in ("YBR_422.dcm", "YBR_FULL-RLE.dcm", "examples_ybr_color.dcm", "examples_jpeg2k.dcm"):
        path = data_dir / "dicom" / "us" / name
        with open_dicom(path) as scan:
            ours = scan.picture(0).rgb
        theirs = pydicom.pixels.pixel_array(path, index=0)
        assert np.abs(ours.astype(int) - theirs).max() <= 1
