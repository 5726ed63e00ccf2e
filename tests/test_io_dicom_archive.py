"""Derived images in the list of an archive: told apart, whole, the same again on a rerun, and marked where asked."""

import shutil

import numpy as np
import pydicom
import pytest
from _dicom import dataset, region, save, write_dicom
from _dicom_results import complaints, derive
from _scans import fan_frames

from usdehaze.dehazing.settings import PRESETS, WITH_RULES, Settings
from usdehaze.geometry import image_mask
from usdehaze.io.dicom import open_dicom
from usdehaze.io.dicom.series import PRODUCTS, series_description, series_number
from usdehaze.io.dicom.write import Mark

TYPE_2 = (
    "PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime ReferringPhysicianName StudyID "
    "AccessionNumber Manufacturer InstanceNumber PatientOrientation SeriesNumber Laterality"
).split()


def settings_of(settings):
    told = settings.told()
    return {**told, "own_settings": settings.own()} if settings.own() else told


def test_presets_and_settings_are_told_apart():
    source = dataset(fan_frames(1), SeriesDescription="Apical four chamber")
    ways = [settings_of(preset) for preset in PRESETS.values()]
    ways += [settings_of(Settings(strength=0.5)), settings_of(Settings(seed=1)), settings_of(Settings(caution=0.9))]
    told = [
        (series_description(source, p, way), series_number(source, p, way)) for way in ways for p in PRODUCTS.values()
    ]
    assert len({description for description, _ in told}) == len({number for _, number in told}) == len(told)
    assert all(len(description) <= 64 and 3000 < number < 4000 for description, number in told)
    assert told[0][0] == "Haze removed (usdehaze fast): Apical four chamber"
    assert told[8][0] == "Haze removed (usdehaze fast, strength 0.5): Apical four chamber"
    many = settings_of(Settings(strength=0.5, seed=1234567, samples=8, caution=0.75, steps=2))
    assert series_description(source, PRODUCTS["tissue"], many).startswith(
        "Haze removed (usdehaze fast, own settings): A"
    )


@pytest.mark.parametrize("preset", [*PRESETS.values(), *WITH_RULES.values()])
def test_a_preset_as_it_is_has_no_settings_of_its_own(preset):
    assert preset.own() == ""


@pytest.mark.parametrize(
    ("charset", "description"), [("ISO_IR 100", "Rückblick"), ("ISO_IR 192", "心尖部"), (None, "Rückblick")]
)
def test_the_source_s_description_is_kept_where_its_character_set_holds_it(tmp_path, charset, description):
    ds = dataset(fan_frames(1), SpecificCharacterSet=charset)
    ds.SeriesDescription = description
    if charset is None:
        ds.add_new(0x0008103E, "LO", description.encode("latin-1"))
    out, _ = derive(save(tmp_path / "a.dcm", ds), tmp_path / "b.dcm")
    assert out.SeriesDescription == f"Haze removed (usdehaze fast): {description}"
    ds = dataset(fan_frames(1), SpecificCharacterSet="ISO_IR 100", SeriesDescription="心尖部")  # never from a file
    assert series_description(ds, PRODUCTS["tissue"], {"preset": "fast"}) == "Haze removed (usdehaze fast)"


def test_missing_attributes_of_type_2_are_written_empty_and_dates_of_the_series_kept(tmp_path):
    ds = dataset(fan_frames(1), SeriesDate="20200102", SeriesTime="030405", ContentDate="20200102", ContentTime="0304")
    for keyword in TYPE_2:
        if keyword in ds:
            del ds[keyword]
    out, _ = derive(save(tmp_path / "a.dcm", ds), tmp_path / "b.dcm")
    assert all(keyword in out for keyword in TYPE_2)
    assert all(not out[keyword].value for keyword in TYPE_2 if keyword != "SeriesNumber")
    assert (out.SeriesDate, out.SeriesTime, out.ContentDate) == ("20200102", "030405", "20200102")
    full, _ = derive(write_dicom(tmp_path / "c.dcm", fan_frames(1), ImageLaterality="L"), tmp_path / "d.dcm")
    assert "Laterality" not in full and full.PatientID == "SENTINEL-ID"


def test_it_says_which_program_wrote_it(tmp_path):
    out, _ = derive(write_dicom(tmp_path / "a.dcm", fan_frames(1)), tmp_path / "b.dcm")
    assert out.file_meta.ImplementationClassUID != pydicom.uid.PYDICOM_IMPLEMENTATION_UID
    assert out.file_meta.ImplementationClassUID.is_valid
    assert out.file_meta.ImplementationVersionName.startswith("USDEHAZE_")


@pytest.mark.parametrize("options", [{}, {"what": "haze"}, {"mark": True}, {"transfer_syntax": "rle"}])
def test_a_rerun_gives_the_same_file(tmp_path, options):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(3), InstanceCreationDate="20200101")
    first, _ = derive(path, tmp_path / "b.dcm", **options)
    again, _ = derive(path, tmp_path / "c.dcm", chunk=1, **options)
    assert (tmp_path / "b.dcm").read_bytes() == (tmp_path / "c.dcm").read_bytes()
    assert "InstanceCreationDate" not in again and first.SOPInstanceUID == again.SOPInstanceUID


@pytest.mark.parametrize("window", [True, False])
def test_the_haze_has_a_window_in_which_it_is_seen(tmp_path, window):
    more = {"WindowCenter": 200, "WindowWidth": 20} if window else {}
    haze, _ = derive(write_dicom(tmp_path / "a.dcm", fan_frames(2), **more), tmp_path / "b.dcm", what="haze")
    assert (haze.WindowCenter, haze.WindowWidth) == (85, 170)  # levels 0 to 170: 20 of 60 dB below full scale
    tissue, _ = derive(tmp_path / "a.dcm", tmp_path / "c.dcm")
    assert (tissue.get("WindowCenter"), tissue.get("WindowWidth")) == ((200, 20) if window else (None, None))


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("what", ["tissue", "haze"])
def test_a_mark_is_written_beside_the_image_and_nowhere_else(tmp_path, colour, what):
    frames = np.zeros((2, 200, 320), np.uint8)
    frames[:, 20:180, 140:300] = fan_frames(2, 160, 160)
    rgb = np.repeat(frames[..., None], 3, axis=-1)
    rgb[:, 3, 3] = (0, 200, 0)
    path = write_dicom(tmp_path / "a.dcm", rgb if colour else frames, "RGB" if colour else "MONOCHROME2")
    plain, _ = derive(path, tmp_path / "b.dcm", what=what)
    marked, _ = derive(path, tmp_path / "c.dcm", what=what, mark=True)
    changed = plain.pixel_array != marked.pixel_array
    changed = changed.any(axis=-1) if changed.ndim == 4 else changed
    with open_dicom(path) as scan:
        image = image_mask(scan.geometry, scan.shape)
    assert 100 < changed[0].sum() < 2000 and np.array_equal(changed[0], changed[1]) and not changed[0][image].any()
    assert marked.SOPInstanceUID != plain.SOPInstanceUID
    source = open_dicom(path).picture(0).levels
    rows, columns = np.nonzero(changed[0])
    assert rows.min() >= 185 and columns.max() < 160 and not source[rows, columns].any()


@pytest.mark.parametrize(
    ("what", "strength", "text"),
    [
        ("tissue", 1.0, "Haze removed (usdehaze)"),
        ("tissue", 0.0, "Haze removed (usdehaze, strength 0)"),
        ("tissue", 0.5, "Haze removed (usdehaze, strength 0.5)"),
        ("haze", 0.0, "Haze estimate (usdehaze)"),
    ],
)
def test_a_mark_says_where_less_than_all_haze_or_none_was_removed(tmp_path, monkeypatch, what, strength, text):
    texts = []
    monkeypatch.setattr("usdehaze.io.dicom.write.Mark", lambda *given: texts.append(given[0]) or Mark(*given))
    path = write_dicom(tmp_path / "a.dcm", fan_frames(2))
    derive(path, tmp_path / "b.dcm", what=what, mark=True, settings={"strength": strength})
    assert texts == [text]


def test_a_mark_fits_small_pictures_and_keeps_off_text():
    picture = np.zeros((120, 400), np.uint8)
    picture[100:, :200] = 255
    mark = Mark("Haze removed (usdehaze)", np.zeros((120, 400), bool), picture)
    assert mark.corner[0] > 90 and mark.corner[1] > 200
    small = np.zeros((12, 20, 3), np.uint8)
    assert Mark("Haze removed", np.ones((12, 20), bool), small).on(small).shape == (12, 20, 3)


@pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="no dciodvfy (Debian: dicom3tools)")
@pytest.mark.parametrize("kind", ["plain", "haze", "marked", "two images", "several bytes"])
def test_dciodvfy_finds_nothing_new(tmp_path, kind):
    frames = fan_frames(3, 96, 96)
    item = region(0, 0, 95, 95, ReferencePixelX0=31, ReferencePixelY0=0)
    ds = dataset(frames, regions=[item], LossyImageCompression="00", UltrasoundColorDataPresent=0)
    if kind == "two images":
        ds.Columns, ds.PixelData = 192, np.concatenate([frames, frames], axis=2).tobytes()
        ds.SequenceOfUltrasoundRegions = [item, region(96, 0, 191, 95, ReferencePixelX0=31, ReferencePixelY0=0)]
    if kind == "several bytes":
        del ds.NumberOfFrames
    ds.SeriesDescription = "Apical four chamber"
    path = save(tmp_path / "a.dcm", ds)
    derive(path, tmp_path / "b.dcm", what="haze" if kind == "haze" else "tissue", mark=kind == "marked")
    assert complaints(tmp_path / "b.dcm") <= complaints(path)
