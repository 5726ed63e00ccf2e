"""Frames picked or put in another order after loading are never saved as others."""

import numpy as np
import pydicom
import pytest
import torch
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.transforms import Compose, ConcatItemsd, CopyItemsd, Flipd, Lambdad, Rand2DElasticd

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
    other = dehaze(darker(loaded), options)
    file, given = "what was dehazed is not what its file holds", "the input is not what was dehazed"
    for item, ways in ((other, {0: file, 2: file, 3: file}), ({**other, **loaded}, {0: given, 2: file, 3: file})):
        for way, said in ways.items():
            with pytest.raises(InputError, match=f"fade.dcm: {said}"):
                save_in_every_way(item, tmp_path)[way]()


CHANGES = {
    "haze-moved": (Flipd("haze", 1), "the haze is not what came out of it"),
    "haze-of-another": (Lambdad("haze", lambda x: (x + 0.5).clamp(max=0)), "the haze is not what came out of it"),
    "haze-is-no-number": (Lambdad("haze", lambda x: x * torch.nan), "the haze is not what came out of it"),
    "tissue": (Lambdad("tissue", lambda x: (x - 3).clamp(min=-60)), "the tissue is not what came out of it"),
    "all-deformed": (
        Rand2DElasticd(["image", "tissue", "haze"], (20, 20), (4, 8), prob=1.0),
        "the input is not what was dehazed|brighter than the input",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_images_that_are_not_what_came_out_are_not_saved_as_such(tmp_path, scans, options, change):
    step, said = CHANGES[change]
    for scan in scans:
        item = step(dehaze(load(scan), options))
        item = ConcatItemsd(["tissue", "haze", "image"], name="result")(item)
        ways = save_in_every_way(item, tmp_path)
        for save in (*ways[:2], *(ways[3:] if change.startswith("haze-") else ())):
            with pytest.raises(InputError, match=f"{said}|Flip. has moved its pixels"):
                save()
    assert not list(tmp_path.iterdir())


def test_the_tissue_is_no_haze(tmp_path, scans, options):
    with pytest.raises(InputError, match="the haze is not what came out of it"):
        SaveUltrasoundd("tissue", haze_key="tissue", output_dir=tmp_path)(dehaze(load(scans[1]), options))


@pytest.mark.parametrize("layout", ["THW", "1THW"])
def test_pixels_that_change_places_without_the_affine_are_noticed(scans, options, layout):
    image = load(scans[1], layout=layout)
    for move in (lambda x: x.transpose(-1, -2), lambda x: x.flip(-2), lambda x: x.roll(5, -1)):
        moved = Lambdad("image", move)(image)
        with pytest.raises(InputError, match=r"fade.h5: a spatial transform .*has moved its pixels"):
            DehazeUltrasoundd("image", **options)(moved)
        if torch.equal(moved["image"], image["image"].transpose(-1, -2)):
            with pytest.raises(InputError, match=r"fade.h5: its fan lies on its side"):
                DehazeUltrasoundd("image", geometry="find", **options)(moved)
            continue
        found = DehazeUltrasoundd("image", haze_key="haze", geometry="find", **options)(moved)
        again = DehazeUltrasoundd("image", haze_key="haze", geometry="find", **options)(
            {"image": moved["image"].numpy()}
        )
        assert np.array_equal(found["image"].numpy(), again["image"])
