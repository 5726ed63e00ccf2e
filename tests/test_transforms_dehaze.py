"""DehazeUltrasound and DehazeUltrasoundd: the Dehazer's own values, types kept, stale geometry refused, workers."""

import copy
import functools
import json
import pickle

import numpy as np
import pytest
import torch
from _scans import fan_frames, in_db, speckled_fan, write
from monai.data import CacheDataset, DataLoader, Dataset, MetaTensor, decollate_batch
from monai.transforms import (
    CenterSpatialCrop,
    Compose,
    Flip,
    Flipd,
    Resize,
    Resized,
    Rotate90,
    ScaleIntensityRange,
    ScaleIntensityRanged,
    Transform,
    Zoom,
)
from monai.utils import TransformBackends

from usdehaze import Dehazer, open_cine
from usdehaze.cine import Cartesian, Cine, Polar, Sector
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.simulate import simulate_cine
from usdehaze.transforms import (
    DbToGrey,
    DehazeUltrasound,
    DehazeUltrasoundD,
    DehazeUltrasoundd,
    DehazeUltrasoundDict,
    LoadUltrasound,
    LoadUltrasoundd,
    SaveUltrasoundd,
)
from usdehaze.transforms.meta import geometry_in, meta_of


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    return write(tmp_path_factory.mktemp("scans") / "fan.h5", {"cine": fan_frames(3, 80, 96)})


@pytest.fixture(scope="module")
def expected(scan, options):
    """The Dehazer's own result on the scan."""
    result = Dehazer.from_pretrained(**options).dehaze(open_cine(scan))
    assert np.abs(result.tissue - result.cine.frames).max() > 1  # the tiny priors do something
    return result


@functools.cache
def rectangle(n_frames=2, seed=3):
    """Frames that no sector is found in, ``(T, 32, 32)`` float32 dB."""
    return simulate_cine(n_frames=n_frames, seed=seed, n_depth=32, n_angle=32).hazy


def test_tissue_and_haze_are_exactly_the_dehazers(scan, options, expected):
    tissue, haze = DehazeUltrasound(return_haze=True, **options)(LoadUltrasound()(scan))
    assert np.array_equal(tissue.numpy(), expected.tissue)
    assert np.array_equal(haze.numpy(), expected.haze)


def test_array_and_dictionary_versions_agree(scan, options, expected):
    image = LoadUltrasound()(scan)
    made = DehazeUltrasoundd("image", haze_key="haze", **options)({"image": image, "label": 7})
    assert set(made) == {"image", "haze", "label"} and made["label"] == 7
    assert np.array_equal(made["image"].numpy(), expected.tissue)
    assert np.array_equal(made["haze"].numpy(), expected.haze)
    assert DehazeUltrasoundD is DehazeUltrasoundDict is DehazeUltrasoundd
    assert "usdehaze" not in image.meta and np.array_equal(image.numpy(), expected.cine.frames)  # untouched


def test_a_dehazer_of_ones_own_is_used(scan, options, expected):
    dehazer = Dehazer.from_pretrained(**options)
    assert np.array_equal(DehazeUltrasound(dehazer)(LoadUltrasound()(scan)).numpy(), expected.tissue)
    assert DehazeUltrasound(dehazer).dehazer is dehazer
    with pytest.raises(TypeError, match="steps have no effect"):
        DehazeUltrasound(dehazer, steps=3)


def test_metadata_are_kept_and_say_how_the_tissue_was_made(scan, options, expected):
    image = LoadUltrasound()(scan)
    tissue, haze = DehazeUltrasound(return_haze=True, seed=5, **options)(image)
    for made in (tissue, haze):
        assert isinstance(made, MetaTensor)
        changed = {key for key in made.meta if key != "affine" and str(made.meta[key]) != str(image.meta.get(key))}
        new = {"usdehaze", "usdehaze_version", "estimate", "n_frames", "frame_digests"}
        assert changed == new and made.meta["n_frames"] == 3
        assert torch.equal(made.affine, image.affine)
        settings = made.meta["usdehaze"]
        assert (settings["preset"], settings["steps"], settings["seed"]) == ("fast", 2, 5)
        assert settings["tissue_prior"] == expected.settings["tissue_prior"]
    assert (tissue.meta["estimate"], haze.meta["estimate"]) == ("tissue", "haze")
    tissue.meta["usdehaze"]["seed"] = 6
    assert haze.meta["usdehaze"]["seed"] == 5


def test_several_samples_bring_their_deviation(scan, options):
    image = LoadUltrasound(frames=slice(1))(scan)
    chosen = {**options, "samples": 2}
    result = Dehazer.from_pretrained(**chosen).dehaze(open_cine(scan, frames=slice(1)))
    tissue, std = DehazeUltrasound(return_std=True, **chosen)(image)
    assert np.array_equal(tissue.numpy(), result.tissue) and np.array_equal(std.numpy(), result.std)
    made = DehazeUltrasoundd("a", std_key="s", **chosen)({"a": image})
    assert set(made) == {"a", "s"} and np.array_equal(made["s"].numpy(), result.std)
    for one in ({"samples": 1}, {"preset": "preview"}):
        with pytest.raises(UsdehazeError, match="samples of at least 2, found 1"):
            DehazeUltrasound(return_std=True, **{**options, **one})
    assert len(DehazeUltrasound(return_std=True, **options)(image)) == 2  # the fast preset takes two


@pytest.mark.parametrize(
    ("convert", "kind", "dtype"),
    [
        (np.asarray, np.ndarray, np.float32),
        (lambda a: a.astype(np.float64), np.ndarray, np.float64),
        (lambda a: np.rint(a).astype(np.int16), np.ndarray, np.float32),
        (torch.from_numpy, torch.Tensor, torch.float32),
        (lambda a: torch.from_numpy(a).half(), torch.Tensor, torch.float16),
        (lambda a: torch.from_numpy(a).bfloat16(), torch.Tensor, torch.bfloat16),
        (lambda a: torch.from_numpy(a).requires_grad_(), torch.Tensor, torch.float32),
        (lambda a: MetaTensor(a, meta={"mine": 1}), MetaTensor, torch.float32),
    ],
    ids=["float32", "float64", "int16", "tensor", "half", "bfloat16", "gradient", "metatensor"],
)
def test_the_type_that_comes_in_goes_out(options, convert, kind, dtype):
    frames = convert(rectangle())
    tissue = DehazeUltrasound(**options)(frames)
    assert type(tissue) is kind and tissue.dtype == dtype and tissue.shape == (2, 32, 32)
    values = torch.as_tensor(frames).detach().float().numpy()
    result = Dehazer.from_pretrained(**options).dehaze(Cine(values, Cartesian()))
    np.testing.assert_allclose(torch.as_tensor(tissue).float().numpy(), result.tissue, rtol=2**-8)
    if kind is MetaTensor:
        assert tissue.meta["mine"] == 1 and tissue.meta["usdehaze"]["steps"] == 2


def test_plain_arrays_have_their_sector_found(scan, options, expected):
    """Frames alone, without metadata, give what the file gave: its sector was found in the frames as well."""
    assert expected.cine.geometry.found_by == "sector finder"
    assert np.array_equal(DehazeUltrasound(**options)(expected.cine.frames), expected.tissue)


def test_a_fan_on_its_side_is_refused_where_the_sector_is_sought(options):
    upright = in_db(speckled_fan(2, 160, 200)).astype(np.float32)
    sides = upright.swapaxes(1, 2)
    find = DehazeUltrasound(geometry="find", dynamic_range_db=60, **options)
    assert find(upright).shape == upright.shape
    for lying in (sides, torch.from_numpy(sides.copy())[None]):
        with pytest.raises(InputError, match="fan lies on its side; expected rows before columns; exchange them"):
            find(lying)
    as_it_is = DehazeUltrasound(geometry=Cartesian(), dynamic_range_db=60, **options)
    assert as_it_is(sides).shape == sides.shape


@pytest.mark.parametrize(("n_frames", "order"), [(4, (1, 2, 0)), (4, (2, 1, 0)), (12, (1, 2, 0))])
def test_frames_along_another_axis_are_refused_where_the_geometry_is_sought(options, n_frames, order):
    frames = simulate_cine(n_frames=n_frames, seed=2, n_depth=64, n_angle=48).hazy
    find = DehazeUltrasound(geometry="find", dynamic_range_db=60, **options)
    assert find(frames).shape == find(frames[None])[0].shape == frames.shape
    with pytest.raises(InputError, match=r"seem to lie along another axis, found shape .*; expected frames, rows, col"):
        find(frames.transpose(order))


def test_a_geometry_given_wins(scan, options, expected):
    sector = Sector(47.5, -3.0, 5.0, 60.0, -0.5, 0.4)
    given = Cartesian(sector=sector, found_by="file")
    result = Dehazer.from_pretrained(**options).dehaze(Cine(expected.cine.frames, given))
    assert not np.array_equal(result.tissue, expected.tissue)
    for frames in (expected.cine.frames, LoadUltrasound()(scan)):
        tissue = DehazeUltrasound(geometry=given, **options)(frames)
        assert np.array_equal(np.asarray(tissue), result.tissue)
    assert geometry_in(tissue) == given  # and is what the tissue's metadata say from then on


def test_the_dynamic_range_is_the_metadatas_or_60_or_the_one_given(options):
    frames = rectangle() / 2  # 30 dB
    dehazer = Dehazer.from_pretrained(**options)
    for given, meta, span in ((None, {}, 60.0), (None, {"dynamic_range_db": 40.0}, 40.0), (35, {}, 35.0)):
        tissue = DehazeUltrasound(dehazer, dynamic_range_db=given)(MetaTensor(frames, meta=dict(meta)))
        assert np.array_equal(tissue.numpy(), dehazer.dehaze(Cine(frames, Cartesian(), span)).tissue), span
        assert tissue.meta["dynamic_range_db"] == span


@pytest.mark.filterwarnings("error")
def test_arrays_that_are_read_only_or_of_another_byte_order_are_taken(options):
    dehaze = DehazeUltrasound(Dehazer.from_pretrained(**options), Cartesian(), 60)
    frames, expected = rectangle().copy(), dehaze(rectangle())
    frames.setflags(write=False)
    for given in (frames, frames.astype(">f4"), np.asfortranarray(frames), frames[::-1, ::-1][::-1, ::-1]):
        tissue = dehaze(given)
        assert np.array_equal(tissue, expected) and tissue.dtype == given.dtype


@pytest.mark.parametrize(
    "spoil",
    [Resize((40, 48)), Flip(1), Rotate90(), Zoom(1.25), CenterSpatialCrop((80, 90))],
    ids=lambda transform: type(transform).__name__,
)
def test_frames_whose_pixels_have_moved_are_refused(scan, options, spoil):
    image = spoil(LoadUltrasound(frames=slice(1))(scan))
    with pytest.raises(InputError) as caught:
        DehazeUltrasound(**options)(image)
    text = str(caught.value)
    assert text.startswith("fan.h5: ") and type(spoil).__name__ in text and "geometry='find'" in text
    assert "\n" not in text


def test_the_refusal_comes_out_of_a_compose(scan, options):
    steps = Compose([LoadUltrasoundd("image"), Flipd("image", 0), DehazeUltrasoundd("image", **options)])
    with pytest.raises(RuntimeError, match="DehazeUltrasoundd") as caught:
        steps({"image": scan})
    assert "its geometry no longer fits" in str(caught.value.__cause__)


def test_moved_pixels_are_dehazed_with_their_sector_found_anew(scan, options):
    image = Flip(1)(LoadUltrasound(frames=slice(1))(scan))
    tissue = DehazeUltrasound(geometry="find", **options)(image)
    found = geometry_in(tissue)
    assert found.found_by == "sector finder" and found.sector.apex_x == pytest.approx(47.5, abs=2)
    assert np.array_equal(tissue.numpy(), DehazeUltrasound(**options)(image.numpy()))
    with pytest.raises(ValueError, match="geometry must be"):
        DehazeUltrasound(geometry="search")


def test_pixels_that_came_back_to_their_place_are_accepted(scan, options, expected):
    flip = Flip(1)
    assert np.array_equal(DehazeUltrasound(**options)(flip(flip(LoadUltrasound()(scan)))).numpy(), expected.tissue)


def test_pixels_known_to_hold_no_tissue_keep_their_bits(options):
    """What has been moved or picked since is refused rather than dehazed where it must not be."""
    frames = rectangle(2)
    mask = np.ones(frames.shape, bool)
    mask[1, 8:20, 10:30] = False
    image = MetaTensor(frames, meta=meta_of(Cine(frames, Cartesian(), tissue_mask=mask), "a.dcm"))
    dehaze = DehazeUltrasound(return_haze=True, return_std=True, **{**options, "samples": 2})
    made, everywhere = dehaze(image), dehaze(frames)
    for array, plain, kept in zip(made, everywhere, (frames, np.float32(-60), np.float32(0)), strict=True):
        assert np.array_equal(array.numpy(), np.where(mask, plain, kept))
        assert not np.array_equal(array.numpy(), plain)
    with pytest.raises(InputError, match="1 frames have been picked of 2"):
        dehaze(image[1:])
    for geometry in ("find", Cartesian()):
        with pytest.raises(InputError, match="mask of what is no tissue no longer fits; dehaze before"):
            DehazeUltrasound(geometry=geometry, **options)(Flip(1)(image))


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (np.full((1, 32, 32), -61, np.float32), r"must lie in \[-60, 0\] dB, found \[-61, -61\]"),
        (np.full((1, 32, 32), 0.5, np.float32), r"found \[0.5, 0.5\]"),
        (np.full((1, 32, 32), np.nan, np.float32), r"found \[nan, nan\]"),
        (np.zeros((32, 32), np.float32), r"shape \(32, 32\); expected an array or tensor \(T, H, W\)"),
        (np.zeros((2, 1, 32, 32), np.float32), r"shape \(2, 1, 32, 32\)"),
        (np.zeros((0, 32, 32), np.float32), "not empty"),
        ([[[0.0]]], "list; expected an array"),
    ],
)
def test_frames_that_are_not_decibels_are_refused_in_one_line(options, frames, found):
    with pytest.raises(InputError, match=found) as caught:
        DehazeUltrasound(**options)(frames)
    assert "\n" not in str(caught.value)


def test_an_estimate_is_no_scan(scan, options):
    item = DehazeUltrasoundd("a", haze_key="b", **options)({"a": LoadUltrasound(frames=slice(1))(scan)})
    for key, estimate in (("a", "tissue"), ("b", "haze")):
        said = rf"fan.h5: its metadata say that it is the {estimate} of a scan that was dehazed; expected the frames of"
        with pytest.raises(InputError, match=said):
            DehazeUltrasoundd(key, **options)(item)
        with pytest.raises(InputError, match=said):
            DehazeUltrasound(geometry="find", dynamic_range_db=60, **options)(item[key])


@pytest.mark.parametrize("layout", ["THW", "1THW"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_is_refused_in_one_line_that_says_how_to_take_it_apart(tmp_path, scan, options, layout, size):
    """Of several scans, and of one, which looks like one channel in time."""
    load = LoadUltrasoundd("image", layout=layout)
    dehaze = DehazeUltrasoundd("image", haze_key="haze", **options)
    batch = next(iter(DataLoader(Dataset([{"image": scan}] * size, load), batch_size=size)))
    made = next(iter(DataLoader(Dataset([{"image": scan}] * size, Compose([load, dehaze])), batch_size=size)))
    for refuse in (
        lambda: dehaze(batch),
        lambda: DehazeUltrasound(geometry="find", dynamic_range_db=60, **options)(batch["image"]),
        lambda: DbToGrey()(batch["image"]),
        lambda: SaveUltrasoundd("image", input_key="haze", output_dir=tmp_path)(made),
    ):
        with pytest.raises(InputError, match=rf"^batch of scans: {size} collated into .*; take it apart.*decollate"):
            refuse()
    assert torch.equal(dehaze(decollate_batch(batch)[0])["image"], decollate_batch(made)[0]["image"])


def test_a_scaled_scan_is_refused_by_name(scan, options):
    image = ScaleIntensityRange(-60, 0, 0, 1)(LoadUltrasound()(scan))
    with pytest.raises(InputError, match=r"fan.h5: frames must lie in \[-60, 0\] dB"):
        DehazeUltrasound(**options)(image)


def test_a_polar_geometry_of_another_shape_is_refused(options):
    polar = Polar(np.linspace(0.01, 0.1, 16), np.linspace(-0.5, 0.5, 32))
    with pytest.raises(InputError, match="polar geometry does not fit"):
        DehazeUltrasound(geometry=polar, **options)(rectangle())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"step": 3}, "unexpected keyword argument 'step'"),
        ({"preset": "slow"}, "no preset 'slow'"),
        ({"steps": 0}, "steps and samples must be at least 1"),
        ({"steps": "ten"}, "steps must be a whole number, found 'ten'"),
        ({"samples": 2.5}, "samples must be a whole number"),
        ({"caution": 1.5}, r"caution must lie in \[0, 1\], found 1.5"),
        ({"strength": "half"}, r"strength must lie in \[0, 1\], found 'half'"),
        ({"sigma_max": -1.0}, "noise levels must fall above 0"),
        ({"device": "gpu"}, "no device 'gpu'"),
        ({"precision": "fp8"}, "no precision 'fp8'"),
        ({"batch_size": 0}, "batch size must be at least 1, or auto, found 0"),
        ({"guidance": "magic"}, "no guidance 'magic'"),
        ({"posterior": "nowhere.safetensors"}, "no such posterior"),
        ({"dynamic_range_db": -60}, "dynamic range of -60 dB"),
        ({"geometry": (1, 2)}, "geometry must be"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_options_fail_in_the_constructor(wrong, said):
    for transform in (DehazeUltrasound, functools.partial(DehazeUltrasoundd, "image")):
        with pytest.raises((TypeError, ValueError, UsdehazeError), match=said):
            transform(**wrong)


def test_keys_are_checked(options):
    step = DehazeUltrasoundd(["a", "b"], haze_key=["ha", "hb"], allow_missing_keys=True, **options)
    frames = rectangle(1)
    assert set(step({"b": frames})) == {"b", "hb"}
    with pytest.raises(KeyError, match="`hb` exists already"):
        step({"b": frames, "hb": 0})
    with pytest.raises(KeyError, match="`a` of transform `DehazeUltrasoundd` was missing"):
        DehazeUltrasoundd(["a", "b"], **options)({"b": frames})
    for haze_key in ("haze", ["ha", "a"], ["ha", "ha"], ["ha"]):
        with pytest.raises(ValueError):
            DehazeUltrasoundd(["a", "b"], haze_key=haze_key)


def test_two_keys_are_dehazed_each_on_its_own(options):
    first, second = rectangle(1, 1), rectangle(1, 2)
    made = DehazeUltrasoundd(["a", "b"], haze_key=["ha", "hb"], **options)({"a": first, "b": second})
    tissue, haze = DehazeUltrasound(return_haze=True, **options)(second)
    assert np.array_equal(made["b"], tissue) and np.array_equal(made["hb"], haze)
    assert not np.array_equal(made["a"], made["b"])


def test_the_dehazer_is_made_on_first_use_and_never_pickled(options):
    transform = DehazeUltrasoundd("image", **options)
    before = pickle.dumps(transform)
    item = {"image": rectangle(1)}
    tissue = transform(item)["image"]
    assert transform.dehaze.dehazer is transform.dehaze.dehazer
    assert pickle.dumps(transform) == before and len(before) < 2000  # a stable hash for PersistentDataset as well
    for other in (pickle.loads(before), copy.deepcopy(transform)):
        assert np.array_equal(other(item)["image"], tissue)


def test_a_transform_with_a_dehazer_of_ones_own_can_be_pickled(options):
    transform = DehazeUltrasound(Dehazer.from_pretrained(**options))
    frames = rectangle(1)
    assert np.array_equal(pickle.loads(pickle.dumps(transform))(frames), transform(frames))


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    return [{"image": write(folder / f"{i}.h5", {"cine": fan_frames(2, seed=i)})} for i in range(4)]


@pytest.mark.parametrize(("context", "workers"), [("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)])
def test_workers_give_what_the_main_process_gives(scans, options, context, workers):
    steps = Compose([LoadUltrasoundd("image"), DehazeUltrasoundd("image", haze_key="haze", **options)])
    alone = [steps(scan) for scan in scans]  # also leaves a made dehazer behind, which must not travel
    dataset = Dataset(scans, steps)
    loader = DataLoader(dataset, batch_size=2, num_workers=workers, multiprocessing_context=context)
    items = [item for batch in loader for item in decollate_batch(batch)]
    assert len(items) == 4
    for item, single in zip(items, alone, strict=True):
        assert torch.equal(item["image"], single["image"]) and torch.equal(item["haze"], single["haze"])
        assert item["image"].meta["source_name"] == single["image"].meta["source_name"]
        assert item["image"].meta["usdehaze"] == single["image"].meta["usdehaze"]
        assert json.loads(item["image"].meta["geometry"])["sector"] is not None


def test_threads_that_share_one_transform_give_the_same(scans, options):
    steps = Compose([LoadUltrasoundd("image"), DehazeUltrasoundd("image", **options)])
    cached = CacheDataset(scans, steps, num_workers=2, progress=False)
    for item, scan in zip(cached, scans, strict=True):
        assert torch.equal(item["image"], steps(scan)["image"])


def test_monai_transforms_afterwards_act_on_each_frame(scan, options, expected):
    steps = Compose(
        [
            LoadUltrasoundd("image"),
            DehazeUltrasoundd("image", haze_key="haze", **options),
            ScaleIntensityRanged(["image", "haze"], -60, 0, 0, 1, clip=True),
            Resized("image", (40, 48), mode="area"),
            Flipd("image", 1),
        ]
    )
    made = steps({"image": scan})
    shrunk = expected.tissue.reshape(3, 40, 2, 48, 2).mean((2, 4))[:, :, ::-1] / 60 + 1
    np.testing.assert_allclose(made["image"].numpy(), shrunk, atol=1e-5)
    np.testing.assert_allclose(made["haze"].numpy(), expected.haze / 60 + 1, atol=1e-6)
    assert [step["class"] for step in made["image"].applied_operations] == ["Resize", "Flip"]


def test_a_compose_of_our_steps_is_a_monai_transform():
    for transform in (DehazeUltrasound, DehazeUltrasoundd, LoadUltrasound, LoadUltrasoundd):
        assert issubclass(transform, Transform) and set(transform.backend) <= set(TransformBackends)
