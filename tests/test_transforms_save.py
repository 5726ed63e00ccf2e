"""SaveUltrasoundd: the file is the one ``write_result`` writes."""

import numpy as np
import pydicom
import pytest
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.data import DataLoader, Dataset, decollate_batch
from monai.transforms import Compose, CopyItemsd, Flipd, ToTensord

from usdehaze import Dehazer, open_cine
from usdehaze.errors import InputError
from usdehaze.io import read_result, write_result
from usdehaze.transforms import (
    DehazeUltrasoundd,
    LoadUltrasoundd,
    SaveUltrasoundD,
    SaveUltrasoundd,
    SaveUltrasoundDict,
)


@pytest.fixture(scope="module")
def options(options):
    return {**options, "samples": 2}


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    return write(tmp_path_factory.mktemp("scans") / "fan.h5", {"cine": fan_frames(3)})


def dehazing(options):
    return [
        LoadUltrasoundd("image", frames=slice(1, 3)),
        CopyItemsd("image", names="tissue"),
        DehazeUltrasoundd("tissue", haze_key="haze", std_key="std", **options),
    ]


def assert_same_results(path, other):
    ours, theirs = read_result(path), read_result(other)
    for name in ("input", "tissue", "haze", "std"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.cine.source == theirs.cine.source and ours.cine.geometry == theirs.cine.geometry
    assert {k: v for k, v in ours.attrs.items() if k != "created"} == {
        k: v for k, v in theirs.attrs.items() if k != "created"
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory, scan, options):
    path = tmp_path_factory.mktemp("expected") / "fan.dehazed.h5"
    write_result(path, Dehazer.from_pretrained(**options).dehaze(open_cine(scan, frames=slice(1, 3))))
    return path


def test_the_file_is_the_one_write_result_writes(tmp_path, scan, options, expected):
    save = SaveUltrasoundd("tissue", std_key="std", output_dir=tmp_path / "out")
    made = Compose([*dehazing(options), save])({"image": scan})
    assert made["tissue"].meta["saved_to"] == str(tmp_path / "out" / "fan.dehazed.h5")
    assert_same_results(made["tissue"].meta["saved_to"], expected)
    assert SaveUltrasoundD is SaveUltrasoundDict is SaveUltrasoundd


def test_items_that_went_through_a_batch_are_saved_alike(tmp_path, scan, options, expected):
    batch = next(iter(DataLoader(Dataset([{"image": scan}], Compose(dehazing(options))), batch_size=1)))
    SaveUltrasoundd("tissue", std_key="std", output_dir=tmp_path)(decollate_batch(batch)[0])
    assert_same_results(tmp_path / "fan.dehazed.h5", expected)


def test_a_result_that_exists_is_kept_unless_told_otherwise(tmp_path, scan, options):
    item = Compose(dehazing(options))({"image": scan})
    SaveUltrasoundd("tissue", output_dir=tmp_path)(item)
    with pytest.raises(InputError, match="exists already"):
        SaveUltrasoundd("tissue", output_dir=tmp_path)(item)
    SaveUltrasoundd("tissue", output_dir=tmp_path, overwrite=True)(item)
    assert read_result(tmp_path / "fan.dehazed.h5").std is None


def test_what_is_no_result_of_dehazing_is_refused(tmp_path, scan, options):
    save = SaveUltrasoundd("tissue", output_dir=tmp_path)
    item = Compose(dehazing(options))({"image": scan})
    with pytest.raises(InputError, match=r"fan.h5: no record of dehazing"):
        save({**item, "tissue": item["image"]})
    with pytest.raises(InputError, match="no record of dehazing"):
        save(ToTensord("tissue", track_meta=False)(item))
    with pytest.raises(InputError, match=r"\(Flip\) has moved its pixels"):
        save(Flipd(["image", "tissue", "haze"], 1)(item))
    with pytest.raises(InputError, match=r"shapes \[\(2, 64, 64\), \(1, 64, 64\), \(2, 64, 64\)\]"):
        save({**item, "haze": item["haze"][:1]})
    with pytest.raises(InputError, match="1 frames have been picked of 2"):
        save({key: item[key][1:] for key in ("image", "tissue", "haze")})
    with pytest.raises(InputError, match="say haze; expected tissue"):
        save({**item, "tissue": item["haze"], "haze": item["tissue"]})
    with pytest.raises(InputError, match="brighter than the input in"):
        save({**item, "image": (item["tissue"] - 0.5).clamp(min=-60)})
    with pytest.raises(ValueError, match="one key"):
        SaveUltrasoundd(["a", "b"])
    with pytest.raises(ValueError, match="'image' is the tissue's: keep what goes in, CopyItemsd before dehazing"):
        SaveUltrasoundd("image")
    with pytest.raises(TypeError, match="save_haze must be True or False, found 'no'"):
        SaveUltrasoundd("tissue", save_haze="no")
    assert SaveUltrasoundd("other", allow_missing_keys=True)(item).keys() == item.keys()
    assert not list(tmp_path.iterdir())


def test_for_a_dicom_file_the_derived_images_are_written_too(tmp_path, options):
    scan = write_dicom(tmp_path / "scan.dcm", fan_frames(3), regions=[region()])
    out = tmp_path / "out"
    item = Compose(dehazing(options))({"image": scan})
    SaveUltrasoundd("tissue", output_dir=out, transfer_syntax="jpeg-ls", save_haze=True)(item)
    made = ["scan.dehazed.dcm", "scan.dehazed.h5", "scan.dehazed.haze.dcm"]
    assert sorted(path.name for path in out.iterdir()) == made
    source, tissue, haze = (pydicom.dcmread(path) for path in (scan, out / made[0], out / made[2]))
    assert tissue.file_meta.TransferSyntaxUID == haze.file_meta.TransferSyntaxUID == pydicom.uid.JPEGLSLossless
    levels = np.rint(255 * (1 + item["tissue"].numpy() / 60))
    np.testing.assert_allclose(tissue.pixel_array, levels, atol=1)  # frames 1 and 2, that were asked for
    kept = item["tissue"].numpy() == item["image"].numpy()
    assert np.array_equal(tissue.pixel_array[kept], source.pixel_array[1:][kept]) and 0.1 < kept.mean() < 0.9
    np.testing.assert_allclose(haze.pixel_array, np.rint(255 * (1 + item["haze"].numpy() / 60)), atol=1)
    assert tissue.SeriesInstanceUID != source.SeriesInstanceUID != haze.SeriesInstanceUID


def test_of_a_dicom_file_all_results_are_written_or_none(tmp_path, options):
    scan = write_dicom(tmp_path / "scan.dcm", fan_frames(3), regions=[region()])
    item = Compose(dehazing(options))({"image": scan})
    out = tmp_path / "out"
    out.mkdir()
    (out / "scan.dehazed.dcm").write_text("mine")
    with pytest.raises(InputError, match=r"scan.dehazed.dcm: exists already"):
        SaveUltrasoundd("tissue", output_dir=out)(item)
    with pytest.raises(InputError, match="the input is not what was dehazed"):
        SaveUltrasoundd("tissue", output_dir=out, overwrite=True)({**item, "image": item["image"] * 0.999})
    assert [path.name for path in out.iterdir()] == ["scan.dehazed.dcm"]
    assert (out / "scan.dehazed.dcm").read_text() == "mine"
