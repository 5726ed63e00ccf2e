"""DbToGrey: SaveImage writes the picture that it is, the right way up."""

import numpy as np
import pytest
import torch
from _scans import fan_frames, write
from monai.data import MetaTensor, PersistentDataset
from monai.transforms import Compose, LoadImage, SaveImaged
from PIL import Image

from usdehaze import open_cine
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.transforms import DbToGrey, DbToGreyD, DbToGreyd, DbToGreyDict, LoadUltrasoundd


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """Three frames, taller than wide, brighter from frame to frame."""
    frames = fan_frames(3, 80, 48) // np.array([3, 2, 1], np.uint8)[:, None, None]
    return write(tmp_path_factory.mktemp("scans") / "fan.h5", {"cine": frames})


@pytest.mark.parametrize(
    ("layout", "frame", "expected"), [("THW", None, 1), ("1THW", None, 1), ("THW", 0, 0), ("1THW", -1, 2)]
)
def test_a_png_shows_the_frame_with_rows_down(tmp_path, scan, layout, frame, expected):
    steps = [LoadUltrasoundd("image", layout=layout), DbToGreyd("image", frame=frame)]
    saver = SaveImaged(
        "image", output_dir=tmp_path, output_postfix="", output_ext=".png", separate_folder=False, print_log=False
    )
    made = Compose([*steps, saver])({"image": scan})["image"]
    picture = np.asarray(Image.open(tmp_path / "fan.png"))
    cine = open_cine(scan)
    assert np.array_equal(picture, db_to_grey(cine.frames[expected], cine.dynamic_range_db))
    assert made.shape == (1, 48, 80) and made.dtype == torch.uint8
    again = LoadImage("PILReader", ensure_channel_first=True)(tmp_path / "fan.png")
    assert np.array_equal(again.numpy(), made.numpy())


@pytest.mark.parametrize("layout", ["THW", "1THW"])
def test_a_nifti_file_holds_all_frames_as_they_lie_in_the_scan(tmp_path, scan, layout):
    steps = [LoadUltrasoundd("image", layout=layout), DbToGreyd("image", frame="all")]
    how = {"output_postfix": "", "output_ext": ".nii.gz", "separate_folder": False, "print_log": False}
    Compose([*steps, SaveImaged("image", output_dir=tmp_path, **how)])({"image": scan})
    written, cine = open_cine(tmp_path / "fan.nii.gz"), open_cine(scan)
    assert np.array_equal(*(db_to_grey(each.frames, 60) for each in (written, cine)))
    assert not any("on its side" in note for note in written.source.assumptions)


@pytest.mark.filterwarnings("error:Corrupt cache")
def test_a_persistent_cache_can_be_read_again(tmp_path, scan):
    steps = Compose([LoadUltrasoundd("image"), DbToGreyd("image")])
    first, second = (PersistentDataset([{"image": str(scan)}], steps, tmp_path, track_meta=True)[0] for _ in "ab")
    assert torch.equal(first["image"].as_tensor(), second["image"].as_tensor())


def test_single_frames_and_other_dynamic_ranges(tmp_path):
    frames = np.linspace(-40, 0, 20, dtype=np.float32).reshape(1, 4, 5)
    for kind in (np.asarray, torch.as_tensor, lambda a: MetaTensor(a, meta={"dynamic_range_db": 40.0})):
        image = kind(frames)
        known = isinstance(image, MetaTensor)
        grey = DbToGrey(dynamic_range_db=None if known else 40)(image)
        assert type(grey) is type(image) and np.array_equal(np.asarray(grey)[0].T, db_to_grey(frames[0], 40))
    rows = DbToGrey(columns_first=False, frame="all", dynamic_range_db=40)(np.repeat(frames, 3, axis=0))
    assert rows.shape == (3, 4, 5) and rows.dtype == np.uint8 and rows.min() == 0 and rows.max() == 255
    assert DbToGreyD is DbToGreyDict is DbToGreyd


def test_the_affine_goes_with_the_axes():
    affine = np.array([[0.2, 0, 1], [0, 0.3, -20], [0, 0, 1.0]])
    image = MetaTensor(np.full((1, 4, 5), -30, np.float32), affine=affine)
    assert np.allclose(DbToGrey()(image).affine, [[0.3, 0, -20], [0, 0.2, 1], [0, 0, 1]])
    assert np.allclose(DbToGrey(columns_first=False)(image).affine, affine)
    assert tuple(DbToGrey()(image).meta["spatial_shape"]) == (5, 4)


def test_what_is_no_picture_is_refused():
    frames = np.full((2, 4, 5), -30, np.float32)
    for spoilt, said in ((frames / -60, "values from 0.5"), (frames * np.nan, "values from nan"), (frames[0], "shape")):
        with pytest.raises(InputError, match=said):
            DbToGrey()(spoilt)
    with pytest.raises(InputError, match="no frame 2 among 2"):
        DbToGrey(frame=2)(frames)
    for wrong in ({"frame": 1.5}, {"frame": "first"}, {"dynamic_range_db": 0}):
        with pytest.raises((TypeError, ValueError)):
            DbToGreyd("image", **wrong)
