"""MetaImages with their values beside them, sequences of PLUS, and ITK's HDF5."""

import gzip
import zlib

import h5py
import nibabel
import numpy as np
import pytest
from _scans import fan_frames, refused
from test_io_images import mha

import usdehaze as ud
from usdehaze.budget import max_memory
from usdehaze.errors import InputError
from usdehaze.io import list_scans, open_scan
from usdehaze.io.detect import sha256_of
from usdehaze.io.images.metaimage import is_stack

FRAMES = fan_frames(12, 72, 80)


def close(cine, frames=FRAMES):
    return np.abs(cine.frames - 60 * (frames.astype(float) / 255 - 1)).max() < 1e-3


def mhd(folder, data, extra=(), name="a.mhd"):
    """A header without values of `FRAMES`."""
    folder.mkdir(exist_ok=True)
    lines = ["ObjectType = Image", "NDims = 3", "DimSize = 80 72 12", "ElementSpacing = 0.3 0.2 1", *extra]
    lines += ["ElementType = MET_UCHAR", f"ElementDataFile = {data}"]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def test_a_header_without_an_end_is_held_to_one_budget_by_whoever_reads_it(tmp_path):
    path = tmp_path / "a.mha"
    path.write_bytes((b"a = " + b"b" * 60_000 + b"\n") * 80)
    with max_memory(2**20), pytest.raises(InputError, match="inflates to more"):
        is_stack(path)


@pytest.mark.parametrize("kind", ["raw", "zraw", "head", "tail", "list", "numbered"])
def test_values_beside_the_header(tmp_path, kind):
    values = FRAMES.tobytes()
    parts = {f"{kind}.raw": values}
    named, extra = f"{kind}.raw", []
    if kind == "zraw":
        parts, extra = {"zraw.raw": zlib.compress(values)}, ["CompressedData = True"]
    elif kind == "head":
        parts, extra = {"head.raw": b"x" * 100 + values + b"more"}, ["HeaderSize = 100"]
    elif kind == "tail":
        parts, extra = {"tail.raw": b"x" * 333 + values}, ["HeaderSize = -1"]
    elif kind in ("list", "numbered"):
        parts = {f"f{index:02d}.raw": frame.tobytes() for index, frame in enumerate(FRAMES, start=5)}
        named = "f%02d.raw 5 16 1" if kind == "numbered" else "LIST\n" + "\n".join(parts)
    path = mhd(tmp_path / "in", named, extra)
    for name, content in parts.items():
        (tmp_path / "in" / name).write_bytes(content)
    with open_scan(path) as scan:
        for start, stop in ((7, 9), (0, 2), (11, 12)):
            assert np.abs(scan.read_db(start, stop) - 60 * (FRAMES[start:stop] / 255 - 1)).max() < 1e-3
        assert scan.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    assert list_scans([tmp_path / "in"]) == [path]


def test_the_hash_is_of_the_values_too(tmp_path):
    path = mhd(tmp_path, "a.raw")
    (tmp_path / "a.raw").write_bytes(FRAMES.tobytes())
    first = ud.open_cine(path).source.sha256
    (tmp_path / "a.raw").write_bytes(FRAMES[::-1].tobytes())
    assert ud.open_cine(path).source.sha256 != first and first != sha256_of(tmp_path / "a.raw")


@pytest.mark.parametrize("named", ["/etc/passwd", "../a.raw", "sub/a.raw", r"c:\a.raw", "%s.raw 1 2 1"])
def test_values_that_lie_anywhere_else_are_not_followed(tmp_path, named):
    (tmp_path / "a.raw").write_bytes(FRAMES.tobytes())
    refused(mhd(tmp_path / "in", named))


def test_values_that_are_missing_or_cut_off_are_named_and_so_is_the_scan(tmp_path):
    path = mhd(tmp_path / "in", "a.raw")
    refused(path, "keeps its data in another file, 'a.raw', which is not beside it")
    assert list_scans([tmp_path / "in"]) == [path]
    (tmp_path / "in" / "a.raw").write_bytes(FRAMES.tobytes()[:-1])
    refused(path, "declares 69120 bytes but stores 69119")


def plus(path, n_frames, start=10.0, orientation="MFA", stamps=True, frames=None):
    """A sequence of tracked frames."""
    frames = np.resize(FRAMES, (n_frames, 72, 80)) if frames is None else frames
    header = {"Kinds": "domain domain list", "UltrasoundImageOrientation": orientation, "ElementSpacing": "0.2 0.3 1"}
    pose = " ".join(["0.123456"] * 12) + " 0 0 0 1"
    for index in range(n_frames):
        for tool in ("Probe", "Reference", "Stylus"):
            header[f"Seq_Frame{index:04d}_{tool}ToTrackerTransform"] = pose
        if stamps:
            header[f"Seq_Frame{index:04d}_Timestamp"] = f"{start + index / 20 + (index > 3) * 0.5:.6f}"
    return mha(path, frames, header=header.items())


@pytest.mark.parametrize("n_frames", [12, 300])
def test_sequences_of_any_length_are_read_with_their_times(tmp_path, n_frames):
    path = plus(tmp_path / "a.mha", n_frames)
    cine = ud.open_cine(path)
    assert close(cine, np.resize(FRAMES, (n_frames, 72, 80))) and len(cine.frame_times_s) == n_frames
    np.testing.assert_allclose(cine.frame_times_s[[0, 3, 4]], [10, 10.15, 10.7])
    assert not any("third axis" in note for note in cine.source.assumptions)
    assert cine.geometry.spacing_m == pytest.approx((3e-4, 2e-4))


def test_times_that_fall_or_are_missing_are_left_out(tmp_path):
    assert ud.open_cine(plus(tmp_path / "a.mha", 12, stamps=False)).frame_times_s is None
    path = plus(tmp_path / "b.mha", 12)
    path.write_bytes(path.read_bytes().replace(b"Frame0007_Timestamp = 1", b"Frame0007_Timestamp = 0"))
    cine = ud.open_cine(path)
    assert cine.frame_times_s is None
    assert [note for note in cine.source.assumptions if "frame times" in note.lower()] == [
        "The frame times in the file fall, or are not one a frame: they were not used."
    ]


def test_two_frames_of_one_time_do_not_lose_all_times(tmp_path):
    path = plus(tmp_path / "a.mha", 12)
    path.write_bytes(path.read_bytes().replace(b"Timestamp = 10.100000", b"Timestamp = 10.050000"))
    np.testing.assert_allclose(ud.open_cine(path).frame_times_s[:4], [10, 10.05, 10.05, 10.15])


@pytest.mark.parametrize(("orientation", "turn"), [("MN", "flip"), ("UF", ""), ("FM", "T"), ("NM", "T flip")])
def test_sequences_stored_in_another_orientation_come_out_upright(tmp_path, orientation, turn):
    stored = FRAMES[:, ::-1] if "flip" in turn else FRAMES
    stored = stored.transpose(0, 2, 1) if "T" in turn else stored
    cine = ud.open_cine(plus(tmp_path / "a.mha", 12, orientation=orientation, frames=np.ascontiguousarray(stored)))
    assert close(cine)
    assert cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4) if "T" in turn else (3e-4, 2e-4))


def itk(path, voxels, spacing, n_axes=None):
    """HDF5 as ITK writes it; ``voxels`` slowest axis first."""
    n_axes = n_axes or voxels.ndim
    with h5py.File(path, "w") as file:
        file["ITKVersion"] = "5.4.0"
        group = file.create_group("ITKImage/0")
        group.create_dataset("VoxelData", data=voxels, chunks=True, compression="gzip")
        group["Dimension"], group["Spacing"] = np.array(voxels.shape[:n_axes][::-1], "u8"), np.asarray(spacing, float)
        group["Origin"], group["Directions"] = np.zeros(n_axes), np.eye(n_axes)
        group["VoxelType"] = "UCHAR"
    return path


@pytest.mark.parametrize(
    ("voxels", "spacing", "n_axes"),
    [
        (FRAMES, (0.3, 0.2, 40), None),
        (FRAMES[:, None], (0.3, 0.2, 1, 40), None),
        (FRAMES[0], (0.3, 0.2), None),
        (np.repeat(FRAMES[..., None], 3, axis=3), (0.3, 0.2, 1), 3),
        (np.repeat(FRAMES[0, ..., None], 3, axis=2), (0.3, 0.2), 2),
    ],
)
def test_spacing_of_itk_s_hdf5_is_used(tmp_path, voxels, spacing, n_axes):
    cine = ud.open_cine(itk(tmp_path / "a.h5", voxels, spacing, n_axes))
    assert close(cine, FRAMES if len(cine.frames) > 1 else FRAMES[:1])
    assert cine.source.layout == "ITK HDF5" and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))


def test_itk_s_hdf5_whose_axes_are_told_or_whose_spacing_is_unset(tmp_path):
    turned = itk(tmp_path / "a.h5", FRAMES.transpose(1, 2, 0), (1, 0.3, 0.2))
    cine = ud.open_cine(turned, axes="HWT")
    assert close(cine) and cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))
    assert ud.open_cine(itk(tmp_path / "b.h5", FRAMES, (1, 1, 1))).geometry.spacing_m is None
    assert ud.open_cine(itk(tmp_path / "c.h5", FRAMES, (0.3, np.nan, 1))).geometry.spacing_m is None
    refused(itk(tmp_path / "d.h5", np.zeros((3, 4, 32, 32), np.uint8), (1, 1, 1, 1)), "a volume over time")


def test_frames_along_another_axis_than_the_third_are_no_rows(tmp_path):
    still = np.repeat(FRAMES[:1], 12, axis=0)
    for stored in (still.transpose(1, 2, 0), still.transpose(1, 0, 2)):
        stored = np.ascontiguousarray(stored)
        advice = "which they are with Kinds = domain domain list in the header"
        refused(mha(tmp_path / "a.mha", stored), "frames seem to lie along another axis than the third", advice)
        refused(itk(tmp_path / "a.h5", stored, (1, 1, 1)), "frames seem to lie along another axis", "with --axes")
        nibabel.save(nibabel.Nifti1Image(stored.T, np.eye(4)), tmp_path / "a.nii")
        refused(tmp_path / "a.nii", "frames seem to lie along another axis", "with --axes")
        said = mha(tmp_path / "b.mha", stored, header={"Kinds": "domain domain list"}.items())
        assert ud.open_cine(said, rectangle=True).frames.shape == stored.shape


def test_headers_and_streams_of_any_kind_that_itk_reads(tmp_path):
    packed = mha(
        tmp_path / "a.mha", FRAMES, data=gzip.compress(FRAMES.tobytes()), header={"CompressedData": "True"}.items()
    )
    content = packed.read_bytes()
    for first in (b"", b"CompressedData = False\n", b"Comment = made by hand\r\n"):
        packed.write_bytes(first + content)
        assert close(ud.open_cine(packed))
    for unit, spacing in (("cm", "0.03 0.02 1"), ("um", "300 200 1"), ("?", "0.3 0.2 1")):
        header = {"DistanceUnits": unit, "ElementSpacing": spacing}
        cine = ud.open_cine(mha(tmp_path / "b.mha", FRAMES, header=header.items()))
        assert cine.geometry.spacing_m == pytest.approx((2e-4, 3e-4))


def test_a_volume_in_a_sequence_of_one_is_said_to_be_taken_as_frames(tmp_path):
    header = {"NDims": "4", "DimSize": "80 72 12 1", "Kinds": "domain domain domain list"}
    cine = ud.open_cine(mha(tmp_path / "a.mha", FRAMES, header=header.items()))
    assert close(cine) and "The third axis taken as frames." in cine.source.assumptions
