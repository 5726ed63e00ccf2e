"""Screens outside DICOM: several images, text, colours, the probe at the bottom, echoes dark on white."""

import h5py
import numpy as np
import pytest
from _dicom import region, write_dicom
from _dicom_results import derive
from _scans import fan_frames, in_db, refused, speckled_fan, write
from PIL import Image
from test_io_dicom_modes import tinted

import usdehaze as ud
from usdehaze.dehazing.masking import joined
from usdehaze.geometry import image_mask
from usdehaze.geometry.screen import images_of
from usdehaze.io import open_scan
from usdehaze.io.dicom import open_dicom
from usdehaze.io.hdf5.geometry_group import read_geometry, write_geometry
from usdehaze.notes import Guess
from usdehaze.result import Result

FAN = fan_frames(2, 160, 160)
SPECKLE = np.random.default_rng(0).integers(40, 255, (2, 120, 150), dtype=np.uint8)
TEXT = np.random.default_rng(1).integers(0, 2, (2, 6, 300), dtype=np.uint8) * 200


def screen(*parts, height=200, width=400):
    """Parts ``(top, left, frames)`` on black."""
    frames = np.zeros((2, height, width), np.uint8)
    for top, left, part in parts:
        frames[:, top : top + part.shape[1], left : left + part.shape[2]] = part
    return frames


def as_png(path, frames):
    path = path / "a.png"
    Image.fromarray(frames[0]).save(path)
    return path


def as_tiff(path, frames):
    first, *others = map(Image.fromarray, frames)
    first.save(path / "a.tif", save_all=True, append_images=others)
    return path / "a.tif"


def as_npy(path, frames):
    np.save(path / "a.npy", frames)
    return path / "a.npy"


def as_h5(path, frames):
    return write(path / "a.h5", {"x": frames})


def as_nifti(path, frames):
    import nibabel

    nibabel.Nifti1Image(frames.T, np.eye(4)).to_filename(path / "a.nii.gz")
    return path / "a.nii.gz"


def as_film(path, frames):
    from test_io_films import film, rgb

    colour = frames if frames.ndim == 4 else rgb(frames)
    return film(path / "a.avi", colour, "-c:v", "rawvideo", "-pix_fmt", "bgr24")


def as_dicom(path, frames):
    return write_dicom(path / "a.dcm", frames, "RGB" if frames.ndim == 4 else "MONOCHROME2")


GREY = [as_png, as_tiff, as_npy, as_nifti, as_film, as_dicom]
SOME = [as_png, as_h5, as_dicom]
COLOUR = [as_png, as_tiff, as_h5, as_film]


def guesses(scan):
    return [note for note in scan.source.assumptions if isinstance(note, Guess)]


@pytest.mark.parametrize("save", GREY)
def test_two_fans_on_a_screen_are_two_images(tmp_path, save):
    frames = screen((10, 10, FAN), (10, 220, FAN))
    with open_scan(save(tmp_path, frames)) as scan:
        assert len(images_of(scan.geometry)) == 2
        assert image_mask(scan.geometry, scan.shape)[frames[0] > 0].mean() > 0.95
        assert "2 sectors were found" in " ".join(scan.source.assumptions)


@pytest.mark.parametrize("save", [as_png, as_npy, as_film])
def test_two_linear_images_and_text_around(tmp_path, save):
    frames = screen((40, 20, SPECKLE), (40, 220, SPECKLE), (5, 10, TEXT), (180, 20, TEXT))
    expected = np.zeros((200, 400), bool)
    expected[40:160, 20:170] = expected[40:160, 220:370] = True
    with open_scan(save(tmp_path, frames)) as scan:
        assert (image_mask(scan.geometry, scan.shape) != expected).mean() < 0.01
        assert any("2 largest areas of echoes" in note for note in guesses(scan))
    frames[:, :, 200:380] = 0  # one image, and the text around it tells that it is on a screen
    with open_scan(save(tmp_path, frames)) as scan:
        assert (image_mask(scan.geometry, scan.shape) != (expected & (np.arange(400) < 200))).mean() < 0.01


@pytest.mark.parametrize("save", [as_png, as_h5, as_dicom])
def test_a_bare_rectangle_is_an_image_as_a_whole_unless_a_screen_is_known(tmp_path, save):
    deep_is_dark = np.where(np.arange(200)[:, None] < 120, np.random.default_rng(0).integers(40, 255, (200, 150)), 0)
    path = save(tmp_path, np.repeat(deep_is_dark[None], 2, axis=0).astype(np.uint8))
    with open_scan(path) as scan:
        whole = image_mask(scan.geometry, scan.shape)
    assert whole.all() == (save is not as_dicom) and whole[:118].mean() > 0.95


@pytest.mark.parametrize("save", SOME)
def test_a_screen_of_text_is_refused_unless_forced(tmp_path, save):
    lines = [(top, 20, TEXT) for top in range(10, 190, 20)]
    path = save(tmp_path, screen(*lines, (5, 330, np.full((2, 150, 60), 130, np.uint8))))
    refused(path, "no grey-scale B-mode", "--force")
    assert ud.open_cine(path, force=True).frames.shape[1:] == (200, 400)


@pytest.mark.parametrize("save", COLOUR)
def test_colour_stays_and_colour_all_over_is_refused(tmp_path, save):
    rgb = np.repeat(FAN[..., None], 3, axis=-1)
    rgb[:, 60:90, 70:90] = (220, 40, 0)
    cine = ud.open_cine(save(tmp_path, rgb))
    assert cine.tissue_mask is not None and not cine.tissue_mask[0, 60:90, 70:90].any()
    assert cine.tissue_mask.mean() > 0.95 and "Colour is left as it is" in " ".join(cine.source.assumptions)
    either = np.random.default_rng(0).random(FAN.shape)[..., None] < 0.5
    path = save(tmp_path, (np.where(either, (220, 60, 0), (0, 60, 220)) * (FAN[..., None] > 0)).astype(np.uint8))
    refused(path, "colour all over", "--force")
    assert ud.open_cine(path, force=True).frames.shape[1:] == (160, 160)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_colours_of_more_than_bytes_are_told_by_their_full_scale(tmp_path, dtype):
    rgb = np.repeat(FAN[..., None], 3, axis=-1)
    rgb[:, 60:90, 70:90] = (220, 40, 0)
    values = rgb.astype(dtype) * (257 if dtype == np.uint16 else 1 / 255)
    mask = ud.open_cine(as_npy(tmp_path, values)).tissue_mask
    assert not mask[0, 60:90, 70:90].any() and mask.mean() > 0.95


@pytest.mark.parametrize("tint", ["sepia", "blue", "heat"])
@pytest.mark.parametrize("save", [as_png])
def test_tinted_b_mode_is_b_mode(tmp_path, tint, save):
    cine = ud.open_cine(save(tmp_path, tinted(FAN, tint)))
    assert any("tinted" in note for note in cine.source.assumptions)
    assert cine.tissue_mask is None or cine.tissue_mask[:, 20:150, 75:85].mean() > 0.95


@pytest.mark.parametrize("save", SOME)
def test_the_probe_at_the_bottom_is_noticed_and_left_there(tmp_path, save):
    frames = screen((20, 120, FAN[:, ::-1]))
    with open_scan(save(tmp_path, frames)) as scan:
        sector, shape, cine = scan.geometry.sector, scan.shape, scan.read()
        assert any("upside down" in note for note in guesses(scan))
    assert sector.aspect == -1 and sector.apex_y / sector.aspect == pytest.approx(180, abs=4)
    assert sector.apex_x == pytest.approx(199.5, abs=2)
    assert image_mask(scan.geometry, shape)[frames[0] > 0].mean() > 0.95
    assert np.abs((cine.frames / 60 + 1) * 255 - frames[: len(cine.frames)]).max() < 1
    refused(tmp_path / scan.path.name, "--strict", "upside down", strict=True)


@pytest.mark.parametrize("aspect", [0.7, 1.0, 1.6])
def test_a_fan_upside_down_is_mapped_as_the_same_fan_upright(aspect):
    from dataclasses import replace

    from usdehaze.cine import Cartesian, Sector
    from usdehaze.geometry import make_mapper
    from usdehaze.geometry.screen import upside_down

    upright = Sector(80.0, -3.0, 6.0, 120.0, -0.6, 0.55, aspect)
    below = upside_down(upright, 130)
    assert upside_down(below, 130) == replace(upright, apex_y=pytest.approx(-3.0))
    frames = np.random.default_rng(0).uniform(-60, 0, (2, 130, 161)).astype(np.float32)
    one, other = (make_mapper(Cartesian(sector=s), (130, 161)) for s in (upright, below))
    assert np.allclose(one.to_model(frames), other.to_model(frames[:, ::-1]), atol=1e-4)
    gain = -np.random.default_rng(1).uniform(0, 20, (2, 128, 128)).astype(np.float32)
    assert np.allclose(one.apply_gain(frames, gain), other.apply_gain(frames[:, ::-1], gain)[:, ::-1], atol=1e-4)


def test_a_result_keeps_a_fan_upside_down(tmp_path):
    with open_scan(as_png(tmp_path, FAN[:, ::-1])) as scan, h5py.File(tmp_path / "x.h5", "w") as file:
        write_geometry(file, scan.geometry, None)
        assert read_geometry(file, "x") == scan.geometry


@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("save", [as_png, as_dicom])
def test_a_picture_on_its_side_is_refused_and_an_array_turned(tmp_path, turn, save):
    frames = np.ascontiguousarray(np.rot90(screen((10, 10, FAN), width=220), turn, axes=(1, 2)))
    path = save(tmp_path, frames)
    refused(path, "lies on its side", "--rectangle")
    assert ud.open_cine(path, rectangle=True).geometry.sector is None
    cine = ud.open_cine(as_npy(tmp_path, frames))
    assert cine.frames.shape == (2, 200, 220) and (cine.geometry.sector.aspect < 0) == (turn == 3)


@pytest.mark.parametrize("save", SOME)
def test_echoes_dark_on_white_are_noticed(tmp_path, save):
    frames = screen((10, 120, FAN))
    path = save(tmp_path, 255 - frames)
    cine = ud.open_cine(path)
    assert any("dark on white" in note and note.settle == "--levels BLACK:WHITE" for note in guesses(cine))
    assert np.abs((cine.frames / 60 + 1) * 255 - frames[: len(cine.frames)]).max() < 1
    said = ud.open_cine(path, levels=(255, 0))
    assert np.array_equal(said.frames, cine.frames) and not any("dark on white" in note for note in guesses(said))
    assert ud.open_cine(path, levels=(0, 255), rectangle=True).frames[0, 0, 0] == 0


@pytest.mark.parametrize("full_scale", [1.0, 255.0, 4095.0])
def test_floats_dark_on_white(tmp_path, full_scale):
    grey = np.rint((in_db(speckled_fan()) / 60 + 1) * 255) / 255
    cine = ud.open_cine(as_npy(tmp_path, ((1 - grey) * full_scale).astype(np.float32)))
    assert np.abs(cine.frames / 60 + 1 - grey).max() < 1.5 / 255 and cine.geometry.sector is not None


@pytest.mark.parametrize("save", [as_png, as_npy, as_dicom])
def test_a_white_page_without_a_fan_is_refused_with_what_to_say(tmp_path, save):
    page = np.full((2, 200, 400), 255, np.uint8)
    page[:, 40:160, 100:250] = SPECKLE
    path = save(tmp_path, page)
    refused(path, "white all around", "--levels 0:255", "--levels 255:0")
    assert ud.open_cine(path, levels=(255, 0), rectangle=True).frames[0, 0, 0] == -60


@pytest.mark.parametrize("photometric", ["MONOCHROME2", "MONOCHROME1", "RGB"])
@pytest.mark.parametrize("told", [True, False])
def test_a_derived_dicom_image_stays_dark_on_white(tmp_path, photometric, told):
    frames = 255 - screen((10, 120, FAN))
    stored = 255 - frames if photometric == "MONOCHROME1" else frames
    stored = np.repeat(stored[..., None], 3, axis=-1) if photometric == "RGB" else stored
    stored[:, 150:160, 10:40] = (0, 90, 200) if photometric == "RGB" else stored[:, 150:160, 10:40]
    regions = [region(0, 0, 399, 199)] if told else []
    path = write_dicom(tmp_path / "a.dcm", stored, photometric, regions=regions)
    with open_dicom(path) as scan:
        assert scan.dark_on_white
    ds, _ = derive(path, tmp_path / "b.dcm", by_db=12)
    out = ds.pixel_array.astype(int)
    out, before = (out[..., 0], frames.astype(int)) if photometric == "RGB" else (out, frames.astype(int))
    inside = np.zeros(frames.shape[1:], bool)
    inside[60:140, 190:210] = True
    moved = (out - before)[:, inside]
    assert np.array_equal(out[:, :5], before[:, :5]) and np.median(moved) == 51 and moved.min() >= 0


def test_results_of_several_images_of_a_picture_are_joined(tmp_path):
    cine = ud.open_cine(as_png(tmp_path, screen((10, 10, FAN), (10, 220, FAN))))
    parts = [
        Result(cine.__class__(cine.frames, g), np.maximum(cine.frames - np.float32(5 + i), -60), cine.frames, None, {})
        for i, g in enumerate(images_of(cine.geometry))
    ]
    step = cine.frames - joined(cine, parts).tissue
    assert {*np.round(step[(cine.frames > -40) & image_mask(cine.geometry, cine.frames.shape[1:])])} == {5, 6}


@pytest.mark.parametrize("save", [as_npy, as_h5])
def test_decibels_that_grow_as_echoes_fade_are_refused(tmp_path, save):
    fading = -in_db(speckled_fan())
    refused(save(tmp_path, fading.astype(np.float32)), "grow as echoes fade", "take their negative")
    assert ud.open_cine(save(tmp_path, -fading)).geometry.sector is not None


@pytest.mark.parametrize("save", [as_png, as_npy, as_h5, as_nifti])
def test_of_what_may_be_a_label_map_it_is_said_and_of_coarse_grey_levels_not(tmp_path, save):
    labels = np.zeros((2, 96, 120), np.uint8)
    labels[:, 20:70, 30:90], labels[:, 30:50, 40:60] = 1, 3
    path = save(tmp_path, labels)
    assert any("3 values alone" in note for note in ud.open_cine(path).source.assumptions)
    coarse = ud.open_cine(save(tmp_path, FAN // 50 * 50))  # 6 levels
    assert not any("label map" in note for note in coarse.source.assumptions)
