"""The readers: MONAI's own LoadImage with them gives what LoadUltrasound gives, in every kind of worker."""

import pickle
import shutil

import numpy as np
import pydicom
import pytest
import torch
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.data import DataLoader, Dataset, ImageReader, MetaTensor, ThreadDataLoader, decollate_batch
from monai.transforms import Compose, LoadImage, LoadImaged, Spacing
from monai.transforms.io.array import SUPPORTED_READERS
from torch.utils.data import ConcatDataset

from usdehaze import open_cine
from usdehaze.cine import Cartesian, Cine
from usdehaze.errors import InputError
from usdehaze.transforms import (
    LoadUltrasound,
    LoadUltrasoundd,
    UltrasoundDicomReader,
    UltrasoundHDF5Reader,
    UltrasoundReader,
)
from usdehaze.transforms.meta import encode_mask, geometry_in, mask_in, meta_of

DOTTED = {"dicom": "usdehaze.transforms.UltrasoundDicomReader", "hdf5": "usdehaze.transforms.UltrasoundHDF5Reader"}


def same(ours, other):
    """Whether two MetaTensors hold the same frames and say the same of them."""
    assert type(ours) is type(other) is MetaTensor and torch.equal(ours, other)
    return {k: str(v) for k, v in ours.meta.items()} == {k: str(v) for k, v in other.meta.items()}


@pytest.fixture(scope="module")
def grey():
    return fan_frames(4, 64, 48)


@pytest.fixture(scope="module")
def scans(tmp_path_factory, grey):
    """The same frames as DICOM, with pixels of 0.5 x 0.4 mm and a fifth of the second frame in colour, and as HDF5."""
    folder = tmp_path_factory.mktemp("scans")
    rgb = np.repeat(grey[..., None], 3, axis=-1)
    rgb[1, 30:40, 10:40] = (200, 20, 20)
    regions = [region(right=47, delta=(0.05, 0.04))]
    return {
        "dicom": write_dicom(folder / "scan.dcm", rgb, "RGB", regions=regions),
        "grey": write_dicom(folder / "grey.dcm", grey, regions=regions),
        "hdf5": write(folder / "scan.h5", {"cine": grey}),
    }


def test_frames_are_channels_where_pydicomreader_swaps_frames_and_rows(scans, grey):
    ours, monais = LoadImage(UltrasoundDicomReader)(scans["grey"]), LoadImage("PydicomReader")(scans["grey"])
    assert ours.shape == (4, 64, 48) and monais.shape == (64, 4, 48)
    assert np.array_equal(monais.numpy().swapaxes(0, 1), grey)
    np.testing.assert_allclose(ours.numpy(), 60 * (grey / 255 - 1), atol=1e-4)
    assert ours.meta["original_channel_dim"] == 0


def test_the_affine_has_the_spacing_of_rows_and_of_columns(scans):
    image = LoadImage(UltrasoundDicomReader)(scans["grey"])
    assert np.allclose(image.affine, np.diag([0.5, 0.4, 1])) and np.allclose(image.pixdim, [0.5, 0.4])
    assert geometry_in(image).spacing_m == pytest.approx((5e-4, 4e-4))
    assert Spacing((0.4, 0.4))(image).shape == (4, 80, 48)


@pytest.mark.parametrize("kind", ["dicom", "hdf5"])
def test_loadimage_gives_what_loadultrasound_gives(scans, kind):
    chosen = {"frames": slice(1, 3), "dynamic_range_db": 50.0}
    expected = LoadUltrasound(**chosen)(scans[kind])
    cine = open_cine(scans[kind], **chosen)
    assert np.array_equal(expected.numpy(), cine.frames) and expected.meta["first_frame"] == 1
    assert expected.meta["source_sha256"] == cine.source.sha256 and expected.meta["source_layout"] == cine.source.layout
    reader = {"dicom": UltrasoundDicomReader, "hdf5": UltrasoundHDF5Reader}[kind]
    for given in (reader, UltrasoundReader, DOTTED[kind]):
        assert same(LoadImage(given, **chosen)(scans[kind]), expected)
    assert same(LoadImage(reader(**chosen))(scans[kind]), expected)
    assert same(LoadImage()(scans[kind], reader=reader(**chosen)), expected)
    assert same(LoadImaged("a", reader=pickle.loads(pickle.dumps(reader(**chosen))))({"a": scans[kind]})["a"], expected)


def test_axes_and_units_of_a_dataset_can_be_given(tmp_path, grey):
    path = write(tmp_path / "turned.h5", {"a": np.moveaxis(grey, 0, 2).astype(np.float32), "b": grey})
    chosen = {"dataset": "a", "axes": "HWT", "units": "8-bit"}
    for image in (LoadUltrasoundd("i", **chosen)({"i": path})["i"], LoadImage(UltrasoundHDF5Reader, **chosen)(path)):
        np.testing.assert_allclose(image.numpy(), 60 * (grey / 255 - 1), atol=1e-4)


def test_a_file_is_known_by_its_content(tmp_path, scans):
    dicom, hdf5, everything = UltrasoundDicomReader(), UltrasoundHDF5Reader(), UltrasoundReader()
    assert all(isinstance(reader, ImageReader) for reader in (dicom, hdf5, everything))
    unnamed = shutil.copy(scans["dicom"], tmp_path / "IM_0001")
    for path in (unnamed, [str(unnamed)]):
        assert (dicom.verify_suffix(path), hdf5.verify_suffix(path), everything.verify_suffix(path)) == (
            True,
            False,
            True,
        )
    disguised = shutil.copy(scans["hdf5"], tmp_path / "scan.dcm")
    assert (dicom.verify_suffix(disguised), hdf5.verify_suffix(disguised)) == (False, True)
    (tmp_path / "text.h5").write_text("no scan")
    for path in (tmp_path / "text.h5", tmp_path / "missing.h5", [disguised, disguised]):
        assert not hdf5.verify_suffix(path) and not everything.verify_suffix(path)


def test_what_is_refused_is_refused_in_one_line(tmp_path, scans):
    (tmp_path / "text.h5").write_text("no scan")
    for reader, path, said in (
        (UltrasoundHDF5Reader(), scans["dicom"], r"scan.dcm: is of another kind \(DICOM\); expected HDF5"),
        (UltrasoundDicomReader(), scans["hdf5"], r"scan.h5: is of another kind \(HDF5\); expected DICOM"),
        (UltrasoundHDF5Reader(), tmp_path / "text.h5", "text.h5: is no scan"),
        (UltrasoundReader(), tmp_path / "missing.h5", "missing.h5: no such file"),
        (UltrasoundReader(), [scans["hdf5"]] * 2, "2 files at once; expected one scan"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            reader.read(path)
        assert "\n" not in str(caught.value)


def test_a_refusal_reaches_the_user_of_loadultrasound_where_loadimage_reads_on(tmp_path, scans):
    """A CT image is none of our business: MONAI's reader takes it, axes swapped, unless LoadUltrasound was asked."""
    ds = pydicom.dcmread(scans["grey"])
    ds.SOPClassUID = ds.file_meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    ds.Modality = "CT"
    ds.save_as(tmp_path / "ct.dcm")
    assert LoadImage(UltrasoundDicomReader)(tmp_path / "ct.dcm").shape == (64, 4, 48)
    with pytest.raises(InputError, match=r"ct\.dcm: .*CT") as caught:
        LoadUltrasound()(tmp_path / "ct.dcm")
    assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError) as wrapped:
        Compose([LoadUltrasoundd("image")])({"image": tmp_path / "ct.dcm"})
    assert str(wrapped.value.__cause__) == str(caught.value)


def test_monais_own_choice_of_readers_stays_as_it_was():
    assert not [name for name in SUPPORTED_READERS if "ultrasound" in name]


def test_pixels_that_hold_no_tissue_are_known_from_the_metadata(scans):
    image, cine = LoadImage(UltrasoundDicomReader)(scans["dicom"]), open_cine(scans["dicom"])
    mask = mask_in(image, 4)
    assert np.array_equal(mask, cine.tissue_mask)
    assert not mask[1, 30:40, 10:40].any() and mask[0, 30:40, 10:40].all()
    assert mask_in(LoadUltrasound()(scans["hdf5"]), 4) is None
    with pytest.raises(InputError, match="2 frames have been picked of 4"):
        mask_in(image[:2], 2)


def test_a_mask_that_all_frames_share_fits_whichever_are_picked():
    rng = np.random.default_rng(0)
    frames = np.full((3, 5, 7), -30, np.float32)
    for mask in (np.repeat(rng.random((1, 5, 7)) > 0.5, 3, axis=0), rng.random((3, 5, 7)) > 0.5):
        cine = Cine(frames, Cartesian(), tissue_mask=mask)
        image = MetaTensor(frames, meta=meta_of(cine, "a.dcm"))
        assert np.array_equal(mask_in(image, 3), mask)
        shared = (mask == mask[0]).all()
        assert encode_mask(mask).startswith('{"shape": [1, 5, 7]') == shared
        if shared:
            assert np.array_equal(mask_in(image[1:], 2), mask[1:])


def batches(loader):
    return [item["image"] for batch in loader for item in decollate_batch(batch)]


LOADERS = {
    "fork": lambda data: DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork"),
    "spawn": lambda data: DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context="spawn"),
    "thread": lambda data: ThreadDataLoader(data, batch_size=2, num_workers=0),
    "threads": lambda data: ThreadDataLoader(data, batch_size=2, num_workers=2, use_thread_workers=True),
}


@pytest.mark.parametrize("kind", ["fork", "thread", "threads", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_read_what_the_main_process_reads(scans, kind):
    """Scans with a mask and without collate into one batch, whoever loaded them."""
    paths = [scans[name] for name in ("dicom", "hdf5", "grey", "dicom")]
    alone = [LoadUltrasound()(path) for path in paths]
    loads = (LoadUltrasoundd("image"), LoadImaged("image", reader=UltrasoundReader))
    both = ConcatDataset([Dataset([{"image": str(path)} for path in paths], load) for load in loads])
    for image, expected in zip(batches(LOADERS[kind](both)), alone * 2, strict=True):
        assert torch.equal(image, expected) and torch.equal(image.affine, expected.affine)
        for key in ("geometry", "tissue_mask", "source_sha256", "source_layout", "assumptions"):
            assert image.meta[key] == expected.meta[key], key


def test_levels_rectangle_strict_and_force_are_options_of_every_loader(tmp_path, scans, grey):
    inverted = write(tmp_path / "a.h5", {"cine": 255 - grey})
    for load in (LoadUltrasound, LoadUltrasoundd):
        key = ("image",) if load is LoadUltrasoundd else ()

        def read(path, load=load, key=key, **options):
            step = load(*key, **options)
            return step({"image": str(path)})["image"] if key else step(str(path))

        expected = read(scans["hdf5"], rectangle=True)
        assert torch.equal(read(inverted, levels=[255, 0], rectangle=True), expected)
        assert geometry_in(expected) == Cartesian(None, (0.0, 0.0), None, "none")
        with pytest.raises(InputError, match="--strict"):
            read(scans["hdf5"], strict=True)
    dicom = UltrasoundDicomReader(levels=(0, 510))
    assert dicom.get_data(dicom.read(scans["grey"]))[0].max() < -29
    text = np.zeros((2, 128, 128), np.uint8)
    text[:, ::8, ::6] = 255
    path = write(tmp_path / "b.h5", {"cine": text})
    with pytest.raises(InputError, match="--force"):
        LoadUltrasound()(path)
    assert LoadUltrasound(force=True)(path).shape == (2, 128, 128)


@pytest.mark.parametrize(
    "options",
    [
        {"levels": (1, 1)},
        {"levels": "0:255"},
        {"levels": (0, float("nan"))},
        {"levels": (0, 1, 2)},
        {"rectangle": "false"},
        {"strict": 1},
        {"force": None},
        {"units": "decibel"},
        {"dynamic_range_db": -60},
    ],
)
@pytest.mark.parametrize("make", [UltrasoundReader, LoadUltrasound, lambda **o: LoadUltrasoundd("image", **o)])
def test_options_that_cannot_be_fail_in_the_constructor(make, options):
    with pytest.raises((TypeError, ValueError)):
        make(**options)
