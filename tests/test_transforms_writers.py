"""The writers: MONAI's own SaveImage with them writes what ``usdehaze process`` writes, and keeps its own writers."""

import shutil

import numpy as np
import pydicom
import pytest
from _dicom import region, write_dicom
from _scans import fan_frames
from monai.data import ImageWriter, ITKWriter, NibabelWriter, PILWriter, image_writer
from monai.transforms import Compose, ConcatItemsd, CopyItemsd, Flip, LoadImaged, SaveImage, SaveImaged

from usdehaze import Dehazer, open_cine
from usdehaze.errors import InputError
from usdehaze.io import Reading, read_result, write_result
from usdehaze.io.dicom import DicomScan, DicomWriter
from usdehaze.transforms import (
    DehazeUltrasoundd,
    LoadUltrasoundd,
    SaveUltrasoundd,
    UltrasoundDicomWriter,
    UltrasoundHDF5Writer,
)
from usdehaze.transforms.writers import register_writers


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """Two frames of a fan on a DICOM screen, with a coloured patch in the second."""
    rgb = np.repeat(fan_frames(2)[..., None], 3, axis=-1)
    rgb[1, 30:40, 20:44] = (200, 20, 20)
    return write_dicom(tmp_path_factory.mktemp("scans") / "scan.dcm", rgb, "RGB", regions=[region(delta=(0.05, 0.04))])


@pytest.fixture(scope="module")
def options(options):
    return {**options, "samples": 2}


@pytest.fixture(scope="module")
def item(scan, options):
    """What a pipeline has made of the scan."""
    steps = [
        LoadImaged("image", reader="usdehaze.transforms.UltrasoundDicomReader"),
        CopyItemsd("image", names="tissue"),
        DehazeUltrasoundd("tissue", haze_key="haze", std_key="std", **options),
        ConcatItemsd(["tissue", "haze", "image", "std"], name="result"),
    ]
    return Compose(steps)({"image": scan})


@pytest.fixture(scope="module")
def expected(scan, options):
    return Dehazer.from_pretrained(**options).dehaze(open_cine(scan))


def saver(folder, suffix, **options):
    return SaveImage(folder, "", suffix, separate_folder=False, print_log=False, **options)


def written(writer, image, path, **options):
    """Calls a writer as SaveImage does, without losing its errors."""
    made = writer(output_dtype=np.float32, **options)
    made.set_data_array(image, channel_dim=0, squeeze_end_dims=True)
    made.set_metadata(image.meta, resample=False)
    made.write(path, verbose=False)


def test_monai_keeps_its_own_writers_whoever_comes_first(monkeypatch):
    monkeypatch.setattr(image_writer, "SUPPORTED_WRITERS", {})
    register_writers()
    assert image_writer.SUPPORTED_WRITERS["png"] == (PILWriter,)
    assert image_writer.SUPPORTED_WRITERS["nii.gz"] == (NibabelWriter, ITKWriter)
    assert set(image_writer.SUPPORTED_WRITERS["*"]) == {NibabelWriter, ITKWriter}
    assert {"h5", "hdf5", "dcm"}.isdisjoint(image_writer.SUPPORTED_WRITERS)  # these stay the wild card's
    assert image_writer.resolve_writer(".dehazed.h5") == (UltrasoundHDF5Writer,)
    for suffix in (".dehazed.dcm", ".dehazed.haze.dcm"):
        assert image_writer.resolve_writer(suffix) == (UltrasoundDicomWriter,)
    assert issubclass(UltrasoundHDF5Writer, ImageWriter) and issubclass(UltrasoundDicomWriter, ImageWriter)


def test_monai_still_saves_images_of_its_own_kinds(tmp_path, item):
    pytest.importorskip("nibabel")
    saver(tmp_path, ".nii.gz")(item["tissue"])
    saver(tmp_path, ".png", channel_dim=0, scale=255)(item["tissue"][:1] / 60 + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.nii.gz", "scan.png"]


def test_the_result_file_is_the_one_write_result_writes(tmp_path, item, expected):
    write_result(tmp_path / "other.h5", expected)
    SaveImaged(
        "result",
        output_dir=tmp_path,
        output_postfix="",
        output_ext=".dehazed.h5",
        separate_folder=False,
        print_log=False,
    )(item)
    ours, theirs = read_result(tmp_path / "scan.dehazed.h5"), read_result(tmp_path / "other.h5")
    for name in ("input", "tissue", "haze", "std"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.cine.geometry == theirs.cine.geometry and ours.cine.source == theirs.cine.source
    assert np.array_equal(ours.cine.frame_times_s, theirs.cine.frame_times_s)
    assert ours.attrs | {"created": ""} == theirs.attrs | {"created": ""}


def test_without_deviation_a_result_has_none(tmp_path, item):
    three = ConcatItemsd(["tissue", "haze", "image"], name="result")(item)
    written(UltrasoundHDF5Writer, three["result"], tmp_path / "a.h5")
    assert read_result(tmp_path / "a.h5").std is None
    assert np.array_equal(read_result(tmp_path / "a.h5").haze, item["haze"].numpy())


def test_dicom_images_are_those_of_saveultrasoundd(tmp_path, item, scan):
    SaveUltrasoundd("tissue", output_dir=tmp_path / "a", save_haze=True, transfer_syntax="rle")(item)
    for key, suffix in (("tissue", ".dehazed.dcm"), ("haze", ".dehazed.haze.dcm")):
        save = saver(tmp_path / "b", suffix).set_options(init_kwargs={"transfer_syntax": "rle"})
        save(item[key])
        ours, theirs = (pydicom.dcmread(tmp_path / folder / f"scan{suffix}") for folder in "ab")
        assert np.array_equal(ours.pixel_array, theirs.pixel_array)
        assert ours.SOPInstanceUID == theirs.SOPInstanceUID
        assert ours.file_meta.TransferSyntaxUID == pydicom.uid.RLELossless
        assert ours.SeriesDescription.startswith({"tissue": "Haze removed", "haze": "Haze estimate"}[key])


def test_colour_stays_and_tissue_gets_darker(tmp_path, item, scan):
    written(UltrasoundDicomWriter, item["tissue"], tmp_path / "a.dcm")
    before, after = (pydicom.dcmread(path).pixel_array.astype(int) for path in (scan, tmp_path / "a.dcm"))
    assert np.array_equal(after[1, 30:40, 20:44], before[1, 30:40, 20:44])
    assert (after <= before).all() and (after < before).mean() > 0.1
    assert np.array_equal(item["tissue"][1, 30:40, 20:44], item["image"][1, 30:40, 20:44])
    assert (item["haze"][1, 30:40, 20:44] == -60).all() and (item["std"][1, 30:40, 20:44] == 0).all()


def test_a_file_that_exists_is_replaced_unless_told_otherwise(tmp_path, item):
    for writer, key in ((UltrasoundHDF5Writer, "result"), (UltrasoundDicomWriter, "tissue")):
        path = tmp_path / key
        path.write_text("mine")
        with pytest.raises(InputError, match="exists already"):
            written(writer, item[key], path, overwrite=False)
        assert path.read_text() == "mine"
        written(writer, item[key], path)
        assert path.stat().st_size > 1000


def test_what_cannot_be_saved_is_refused_in_one_line(tmp_path, item):
    swapped = ConcatItemsd(["tissue", "image", "haze"], name="result")(item)
    for writer, image, said in (
        (UltrasoundDicomWriter, item["image"], "no record of dehazing"),
        (UltrasoundDicomWriter, item["std"], "say tissue_std; expected tissue or haze"),
        (UltrasoundDicomWriter, Flip(1)(item["tissue"]), r"\(Flip\) has moved its pixels"),
        (UltrasoundDicomWriter, item["tissue"][:1], "1 frames have been picked of 2"),
        (UltrasoundDicomWriter, item["tissue"] * 0, "brighter than the input in"),
        (UltrasoundHDF5Writer, item["tissue"], "2 channels, from 2 frames; expected tissue, haze, input"),
        (UltrasoundHDF5Writer, item["haze"], "say haze; expected tissue"),
        (UltrasoundHDF5Writer, swapped["result"], "brighter than the input in"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            written(writer, image, tmp_path / "a")
        assert "\n" not in str(caught.value) and str(caught.value).startswith("scan.dcm")
    with pytest.raises(ValueError, match="not scaled"):
        UltrasoundHDF5Writer(scale=255)
    with pytest.raises(ValueError, match="must be 0, not None"):
        UltrasoundDicomWriter().set_data_array(item["tissue"], channel_dim=None)
    assert not list(tmp_path.iterdir())


def test_a_source_that_changed_or_is_no_dicom_file_is_refused(tmp_path, item, scan):
    copied = shutil.copy(scan, tmp_path / "copy.dcm")
    moved = item["tissue"].clone()
    moved.meta["filename_or_obj"] = str(copied)
    written(UltrasoundDicomWriter, moved, tmp_path / "a.dcm")
    ds = pydicom.dcmread(copied)
    ds.InstanceNumber = 8
    ds.save_as(copied)
    for spoilt, said in (("copy.dcm", "has changed since"), ("gone.dcm", "gone.dcm: cannot be read")):
        moved.meta["filename_or_obj"] = str(tmp_path / spoilt)
        with pytest.raises(InputError, match=said):
            written(UltrasoundDicomWriter, moved, tmp_path / "b.dcm")
    moved.meta["source_layout"] = "HDF5 dataset"
    with pytest.raises(InputError, match="was not read from a DICOM file"):
        written(UltrasoundDicomWriter, moved, tmp_path / "b.dcm")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.dcm", "copy.dcm"]


def test_loadultrasoundd_leads_to_the_same_files(tmp_path, scan, options, item):
    image = LoadUltrasoundd("image")({"image": scan})["image"]
    tissue = DehazeUltrasoundd("tissue", **options)({"tissue": image})["tissue"]
    for name, made in (("a", tissue), ("b", item["tissue"])):
        written(UltrasoundDicomWriter, made, tmp_path / name)
    first, second = (pydicom.dcmread(tmp_path / name) for name in "ab")
    assert first.SOPInstanceUID == second.SOPInstanceUID and first.PixelData == second.PixelData


def test_a_file_is_opened_again_as_it_was_read(tmp_path, options):
    """With levels, without a sector, or by force: pixels, words and UIDs are those that ``usdehaze process`` writes."""
    grey = fan_frames(2)
    b_mode = write_dicom(tmp_path / "grey.dcm", grey, regions=[region()])
    m_mode = write_dicom(tmp_path / "m.dcm", grey, regions=[region(kind=(2, 1))])
    plain = write_dicom(tmp_path / "plain.dcm", grey)
    read = ((b_mode, {"levels": (0, 510)}), (m_mode, {"force": True}), (plain, {"rectangle": True}))
    for scan, reading in read:
        steps = [
            LoadUltrasoundd("image", **reading),
            CopyItemsd("image", names="tissue"),
            DehazeUltrasoundd("tissue", haze_key="haze", **options),
        ]
        item = Compose(steps)({"image": scan})
        expected = tmp_path / f"{scan.stem}.expected.dcm"
        with DicomScan(scan, Reading(**reading)) as opened, DicomWriter(expected, opened) as writer:
            writer.append(Dehazer.from_pretrained(**options).dehaze(opened.read()))
        SaveUltrasoundd("tissue", output_dir=tmp_path)(item)
        written(UltrasoundDicomWriter, item["tissue"], tmp_path / "other.dcm")
        for made in (tmp_path / f"{scan.stem}.dehazed.dcm", tmp_path / "other.dcm"):
            ours, theirs = pydicom.dcmread(made), pydicom.dcmread(expected)
            assert ours.PixelData == theirs.PixelData and ours.DerivationDescription == theirs.DerivationDescription
            assert ours.SOPInstanceUID == theirs.SOPInstanceUID and ours.SeriesInstanceUID == theirs.SeriesInstanceUID
            assert ours.SeriesNumber == theirs.SeriesNumber


def test_another_dynamic_range_than_the_file_was_loaded_at_is_refused(tmp_path, scan, options):
    steps = [LoadUltrasoundd("image"), DehazeUltrasoundd("image", dynamic_range_db=70, **options)]
    with pytest.raises(InputError, match=r"scan.dcm: was dehazed at a dynamic range of 70 dB, but loaded at 60 dB"):
        written(UltrasoundDicomWriter, Compose(steps)({"image": scan})["image"], tmp_path / "a.dcm")
