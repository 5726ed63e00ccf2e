"""Frames picked or put in another order after loading are never saved as others."""

import numpy as np
import pydicom
import pytest
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.transforms import Compose, ConcatItemsd, CopyItemsd, Lambdad

from usdehaze.errors import InputError
from usdehaze.io import read_result
from usdehaze.transforms import (
    DehazeUltrasoundd,
    LoadUltrasoundd,
    SaveUltrasoundd,
    UltrasoundDicomWriter,
    UltrasoundHDF5Writer,
)

PICKS = {
    "later": (slice(3, 6), "3 frames have been picked of 6"),
    "reversed": ([5, 4, 3, 2, 1, 0], "put in another order"),
    "repeated": ([0, 0, 1, 2, 3, 4], "put in another order"),
    "added": ([0, 1, 2, 3, 4, 5, 5], "frames have been added, 7 are there of 6"),
}


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """One frame six times, ever dimmer: no later one is brighter than an earlier one. As DICOM and as HDF5."""
    folder = tmp_path_factory.mktemp("scans")
    fading = np.stack([fan_frames(1)[0] // (k + 1) for k in range(6)])
    return [write_dicom(folder / "fade.dcm", fading, regions=[region()]), write(folder / "fade.h5", {"cine": fading})]


def load(scan, **reading):
    return LoadUltrasoundd("image", **reading)({"image": scan})


def dehaze(item, options):
    steps = [
        CopyItemsd("image", names="tissue"),
        DehazeUltrasoundd("tissue", haze_key="haze", **options),
        ConcatItemsd(["tissue", "haze", "image"], name="result"),
    ]
    return Compose(steps)(item)


def picked(item, pick):
    """Every image of an item, its frames picked, and the images made one anew."""
    some = {key: image[pick] if image.ndim == 3 else image[:, pick] for key, image in item.items() if key != "result"}
    return ConcatItemsd(["tissue", "haze", "image"], name="result")(some) if "tissue" in some else some


def save_in_every_way(item, folder):
    """Calls, each of which writes one kind of file."""

    def writing(writer, key):
        made = writer()
        made.set_data_array(item[key])
        made.write(folder / key, verbose=False)

    calls = [
        lambda: SaveUltrasoundd("tissue", output_dir=folder)(item),
        lambda: writing(UltrasoundHDF5Writer, "result"),
        lambda: writing(UltrasoundDicomWriter, "tissue"),
        lambda: writing(UltrasoundDicomWriter, "haze"),
    ]
    return calls if item["tissue"].meta["source_layout"].startswith("DICOM") else calls[:2]


@pytest.mark.parametrize("layout", ["THW", "1THW"])
@pytest.mark.parametrize("name", PICKS)
def test_frames_picked_before_or_after_dehazing_are_not_saved_as_others(tmp_path, scans, options, name, layout):
    pick, said = PICKS[name]
    for scan in scans:
        image = load(scan, layout=layout)
        for item in (dehaze(picked(image, pick), options), picked(dehaze(image, options), pick)):
            for save in save_in_every_way(item, tmp_path):
                with pytest.raises(InputError, match=rf"{scan.name}: .*({said}.*frames=|channels, from 6 frames)"):
                    save()
    assert not list(tmp_path.iterdir())


def test_frames_picked_as_the_scan_is_loaded_are_saved_as_themselves(tmp_path, scans, options):
    for scan in scans:
        item = dehaze(load(scan, frames=slice(3, 6)), options)
        for save in save_in_every_way(item, tmp_path / scan.suffix):
            save()
        for made in (tmp_path / scan.suffix / "fade.dehazed.h5", tmp_path / scan.suffix / "result"):
            result = read_result(made)
            assert (result.cine.source.first_frame, len(result.tissue)) == (3, 3)
            assert np.array_equal(result.tissue, item["tissue"].numpy())
    for made in ("fade.dehazed.dcm", "tissue", "haze"):
        assert pydicom.dcmread(tmp_path / ".dcm" / made).SourceImageSequence[0].ReferencedFrameNumber == [4, 5, 6]


def test_frames_of_other_values_make_a_result_but_no_dicom_image(tmp_path, scans, options):
    darker = Lambdad("image", lambda x: (x - 0.1).clamp(min=-60))
    item = dehaze(darker(load(scans[1])), options)
    SaveUltrasoundd("tissue", output_dir=tmp_path)(item)
    assert np.array_equal(read_result(tmp_path / "fade.dehazed.h5").input, item["image"].numpy())
    loaded = load(scans[0])
    for save in (save_in_every_way({**dehaze(darker(loaded), options), **loaded}, tmp_path)[i] for i in (0, 2, 3)):
        with pytest.raises(InputError, match=r"fade.dcm: what was dehazed is not what its file holds"):
            save()
