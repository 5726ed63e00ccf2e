"""One channel in time, ``(1, T, H, W)``: the same values, padded, batched, and taken by 2-D and 3-D networks."""

import numpy as np
import pydicom
import pytest
import torch
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.data import DataLoader, Dataset, MetaTensor
from monai.inferers import SliceInferer
from monai.networks.nets import UNet
from monai.transforms import (
    Compose,
    ConcatItemsd,
    CopyItemsd,
    Flip,
    LoadImage,
    Rotate90,
    SaveImaged,
    Spacing,
    SpatialPadd,
)

from usdehaze import Dehazer, open_cine
from usdehaze.cine import Cartesian, Cine
from usdehaze.errors import InputError
from usdehaze.io import read_result
from usdehaze.transforms import (
    DehazeUltrasound,
    DehazeUltrasoundd,
    LoadUltrasound,
    LoadUltrasoundd,
    SaveUltrasoundd,
    UltrasoundDicomReader,
    UltrasoundReader,
)
from usdehaze.transforms.meta import geometry_in, meta_of


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Cines of 2, 1 and 4 frames of a fan, the first and the last DICOM screens with times."""
    folder = tmp_path_factory.mktemp("scans")
    first, last = (
        write_dicom(folder / f"{n}.dcm", fan_frames(n, seed=n), regions=[region(delta=(0.05, 0.04))], FrameTime="40")
        for n in (2, 4)
    )
    return [first, write(folder / "1.h5", {"cine": fan_frames(1, seed=1)}), last]


def test_frames_are_those_of_the_other_layout_and_the_affine_has_time_first(scans):
    for load in (LoadUltrasound(layout="1THW"), LoadImage(UltrasoundReader, layout="1THW")):
        for scan in scans:
            image, plain = load(scan), LoadUltrasound()(scan)
            assert image.shape == (1, *plain.shape) and torch.equal(image[0].as_tensor(), plain.as_tensor())
            assert geometry_in(image) == geometry_in(plain)
            assert image.affine.shape == (4, 4) and np.array_equal(image.affine[1:, 1:], plain.affine)
            assert tuple(image.meta["spatial_shape"]) == tuple(plain.shape)
    assert LoadImage(UltrasoundDicomReader, layout="1THW")(scans[0]).shape == (1, 2, 64, 64)
    for wrong in ("TCHW", "HWT", None):
        with pytest.raises(ValueError, match="layout"):
            LoadUltrasoundd("image", layout=wrong)


def test_time_is_the_first_axis_in_seconds():
    frames = np.full((5, 40, 60), -30, np.float32)
    cine = Cine(frames, Cartesian((2e-4, 3e-4), (0.001, -0.02)), 60.0, 0.5 + 0.04 * np.arange(5))
    image = MetaTensor(frames[None], meta=meta_of(cine, "a.h5", "1THW"))
    assert np.allclose(image.affine, [[0.04, 0, 0, 0.5], [0, 0.2, 0, 1], [0, 0, 0.3, -20], [0, 0, 0, 1]])
    assert np.allclose(image.pixdim, [0.04, 0.2, 0.3])
    assert Spacing((0.08, 0.4, 0.6))(image).shape == (1, 3, 20, 30)


def test_values_of_the_tissue_are_the_same_and_its_layout_is_kept(scans, options):
    dehazer = Dehazer.from_pretrained(**options)
    dehaze = DehazeUltrasound(dehazer, return_haze=True)
    for scan in scans[:2]:
        expected = dehazer.dehaze(open_cine(scan))
        tissue, haze = dehaze(LoadUltrasound(layout="1THW")(scan))
        assert np.array_equal(tissue.numpy(), expected.tissue[None])
        assert np.array_equal(haze.numpy(), expected.haze[None])
        assert tissue.affine.shape == (4, 4) and geometry_in(tissue) == geometry_in(LoadUltrasound()(scan))


def test_moved_pixels_are_refused_and_padding_in_time_is_not(scans, options):
    image, dehaze = LoadUltrasound(layout="1THW")(scans[2]), DehazeUltrasound(**options)
    for spoil in (Flip(2), Flip(1), Rotate90(spatial_axes=(1, 2)), Rotate90(spatial_axes=(0, 2))):
        with pytest.raises(InputError, match="has moved its pixels"):
            dehaze(spoil(image))
    padded = SpatialPadd("image", (6, -1, -1), value=-60)({"image": image})["image"]
    assert padded.shape[1] == 6
    tissue, plain = dehaze(padded), dehaze(image)
    inside = slice(1, 5)  # symmetric padding
    assert torch.equal(padded[:, inside].as_tensor(), image.as_tensor())
    assert torch.allclose(tissue[:, inside].as_tensor(), plain.as_tensor(), atol=60)  # streams go by frame number
    assert (tissue[:, 0] == -60).all() and (tissue[:, 5] == -60).all()


def test_cines_of_different_length_make_a_batch_for_2d_and_3d_networks(scans):
    steps = Compose([LoadUltrasoundd("image", layout="1THW"), SpatialPadd("image", (8, -1, -1), value=-60)])
    data = Dataset([{"image": scan} for scan in scans], steps)
    batch = next(iter(DataLoader(data, batch_size=3)))["image"]
    assert batch.shape == (3, 1, 8, 64, 64)
    torch.manual_seed(0)
    whole = UNet(3, 1, 2, (4, 8), (2,))
    frame = UNet(2, 1, 2, (4, 8), (2,)).eval()
    with torch.no_grad():
        assert whole(batch.as_tensor()).shape == (3, 2, 8, 64, 64)
        made = SliceInferer(roi_size=(64, 64), spatial_dim=0, sw_batch_size=4)(batch.as_tensor(), frame)
        assert torch.allclose(made[1, :, 3], frame(batch.as_tensor()[1:2, :, 3])[0], atol=1e-5)


def test_results_are_written_from_either_layout(tmp_path, scans, options):
    made = {}
    for layout in ("THW", "1THW"):
        steps = Compose(
            [
                LoadUltrasoundd("image", layout=layout),
                CopyItemsd("image", names="tissue"),
                DehazeUltrasoundd("tissue", haze_key="haze", **options),
                SaveUltrasoundd("tissue", output_dir=tmp_path / layout),
                ConcatItemsd(["tissue", "haze", "image"], name="result"),
                *(
                    SaveImaged(
                        key,
                        output_dir=tmp_path / f"{layout}-monai",
                        output_postfix="",
                        output_ext=ext,
                        separate_folder=False,
                        print_log=False,
                    )
                    for key, ext in (("result", ".dehazed.h5"), ("tissue", ".dehazed.dcm"))
                ),
            ]
        )
        steps({"image": scans[0]})
        for folder in (layout, f"{layout}-monai"):
            result = read_result(tmp_path / folder / "2.dehazed.h5")
            assert np.allclose(result.cine.frame_times_s, [0, 0.04])
            derived = pydicom.dcmread(tmp_path / folder / "2.dehazed.dcm").pixel_array
            made[folder] = result.tissue, result.haze, result.input, derived, result.cine.geometry
    first = made.pop("THW")
    for other in made.values():
        assert all(np.array_equal(a, b) for a, b in zip(first[:4], other[:4], strict=True)) and first[4] == other[4]
