"""Only grey-scale B-mode is dehazed: by the file's regions, by what it says of its mode, by colours and by layout."""

import numpy as np
import pytest
from _dicom import region, write_dicom
from _dicom_results import derive
from _scans import fan_frames
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.dehazing.masking import joined
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask, sector_mask
from usdehaze.geometry.screen import images_of
from usdehaze.io.dicom import open_dicom
from usdehaze.io.dicom.regions import find_regions
from usdehaze.io.hdf5.geometry_group import read_geometry, write_geometry
from usdehaze.result import Result

BIG = {"height": 160, "width": 160}


def refused(path, *words):
    with pytest.raises(InputError) as caught:
        open_dicom(path)
    assert all(word in str(caught.value) for word in ("no grey-scale B-mode", "--force", *words)), caught.value
    with open_dicom(path, force=True) as scan:
        return scan.read(), " ".join(scan.source.assumptions)


def strip(height=160, width=160, seed=1):
    """``(1, H, W)`` uint8: walls that move up and down in time, as M-mode shows them."""
    depth, time = np.mgrid[:height, :width]
    wall = 40 + 150 * np.exp(-(((depth - 60 - 9 * np.sin(time / 15)) / 6) ** 2))
    return np.clip(wall * np.random.default_rng(seed).uniform(0.5, 1.5, wall.shape), 1, 255).astype(np.uint8)[None]


def screen(*parts, height=200, width=400):
    """Parts ``(top, left, frames)`` on black."""
    n_frames = len(parts[0][2])
    frames = np.zeros((n_frames, height, width), np.uint8)
    for top, left, part in parts:
        frames[:, top : top + part.shape[1], left : left + part.shape[2]] = part
    return frames


@pytest.mark.parametrize("kind", [(2, 1), (3, 3), (3, 4), (2, 2)])
def test_a_screen_of_traces_alone_is_left_alone(tmp_path, kind):
    item = region(0, 0, 159, 159, kind=kind)
    cine, _ = refused(write_dicom(tmp_path / "a.dcm", strip(), regions=[item]), "M-mode or spectral Doppler")
    assert image_mask(cine.geometry, (160, 160)).all()


@pytest.mark.parametrize("mode", ["0002", "0008", "0004", "0020", "0040"])
def test_image_type_tells_the_mode_where_there_are_no_regions(tmp_path, mode):
    image_type = ["ORIGINAL", "PRIMARY", "TTE", mode]
    refused(write_dicom(tmp_path / "a.dcm", strip(), ImageType=image_type))
    with open_dicom(write_dicom(tmp_path / "b.dcm", strip(), ImageType=image_type, regions=[region(0, 0, 159, 159)])):
        pass  # a region of B-mode goes before it


def test_a_screen_with_m_mode_on_it_and_no_fan_is_left_alone(tmp_path):
    """Image Type says that there are both, and nothing says which of the areas is B-mode."""
    image = np.random.default_rng(0).integers(40, 255, (1, 120, 150), dtype=np.uint8)
    frames = screen((20, 10, image), (40, 200, strip(140, 190)))
    refused(write_dicom(tmp_path / "a.dcm", frames, ImageType=["ORIGINAL", "PRIMARY", "TTE", "0003"]), "no fan beside")
    fan = screen((20, 10, fan_frames(1, **BIG)), (40, 200, strip(140, 190)))
    with open_dicom(write_dicom(tmp_path / "b.dcm", fan, ImageType=["ORIGINAL", "PRIMARY", "TTE", "0003"])) as scan:
        image_of = image_mask(scan.geometry, scan.shape)
    assert image_of[40:150, 85:95].all() and not image_of[:, 200:].any()


@pytest.mark.parametrize("agent", ["SonoVue", "Optison", None])
def test_contrast_is_left_alone(tmp_path, agent):
    frames = fan_frames(2, **BIG)
    if agent is None:
        with open_dicom(write_dicom(tmp_path / "a.dcm", frames, ContrastBolusAgent="NONE")):
            return
    refused(
        write_dicom(tmp_path / "a.dcm", frames, ContrastBolusAgent=agent, regions=[region(0, 0, 159, 159)]), "contrast"
    )


def test_the_command_says_so_in_one_line(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", strip(), regions=[region(0, 0, 159, 159, kind=(2, 1))])
    done = CliRunner().invoke(main, ["process", str(path), "-o", str(tmp_path / "out")])
    assert done.exit_code == 1 and done.stderr.count("\n") == 1 and "--force" in done.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_b_mode_beside_a_trace_is_dehazed_and_the_trace_stays(tmp_path):
    """The region of the trace lies over the lower part of that of the fan, as some files have it."""
    frames = screen((0, 120, fan_frames(2, **BIG)), (170, 0, np.repeat(strip(80, 400), 2, axis=0)), height=250)
    regions = [region(0, 0, 399, 249), region(0, 170, 399, 249, kind=(2, 1), units=4)]
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", frames, regions=regions), tmp_path / "b.dcm")
    assert "left as they are" in ds.DerivationDescription
    changed = ds.pixel_array != frames
    assert not changed[:, 170:].any() and changed[:, 20:150, 180:220].mean() > 0.9


@pytest.mark.parametrize("kind", [(4, 0x0A), (5, 0x0D)])
def test_a_region_of_an_ecg_or_of_graphics_within_the_b_mode_stays(tmp_path, kind):
    frames = np.random.default_rng(3).integers(60, 255, (2, 200, 300), dtype=np.uint8)
    regions = [region(0, 0, 299, 199), region(0, 150, 299, 199, kind=kind, units=0)]
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", frames, regions=regions), tmp_path / "b.dcm")
    changed = ds.pixel_array != frames
    assert changed[:, :150].all() and not changed[:, 150:].any()
    assert "waveforms, graphics or colour flow beside the B-mode: 1, left as they are" in ds.DerivationDescription


def test_a_region_of_an_ecg_over_the_whole_b_mode_does_not_keep_it_from_being_dehazed(tmp_path):
    frames = np.random.default_rng(3).integers(60, 255, (2, 200, 300), dtype=np.uint8)
    regions = [region(20, 0, 279, 199), region(0, 0, 299, 199, kind=(4, 0x0A), units=0)]
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", frames, regions=regions), tmp_path / "b.dcm")
    assert (ds.pixel_array != frames)[:, :, 20:280].all() and "left as they are" not in ds.DerivationDescription


LAYOUTS = {
    "beside": [(10, 10, 160), (10, 220, 160)],
    "of two sizes": [(10, 10, 170), (30, 240, 110)],
    "one above the other": [(5, 60, 150), (175, 60, 150)],
    "three": [(10, 5, 120), (10, 135, 120), (10, 265, 120)],
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("told", [True, False])
def test_every_fan_of_a_screen_is_dehazed_by_itself(tmp_path, name, told):
    places = LAYOUTS[name]
    height = 340 if name == "one above the other" else 200
    parts = [(top, left, fan_frames(2, size, size, seed=i)) for i, (top, left, size) in enumerate(places)]
    frames = screen(*parts, height=height)
    regions = [region(left, top, left + size - 1, top + size - 1) for top, left, size in places] if told else []
    with open_dicom(write_dicom(tmp_path / "a.dcm", frames, regions=regions)) as scan:
        geometry = scan.geometry
    sectors = sorted([geometry.sector, *geometry.others], key=lambda sector: (sector.apex_y > 100, sector.apex_x))
    assert [(s.apex_x, s.apex_y) for s in sectors] == [
        (pytest.approx(left + (size - 1) / 2, abs=2), pytest.approx(top - 1, abs=3)) for top, left, size in places
    ]
    lit = frames[0] > 0
    assert image_mask(geometry, lit.shape)[lit].mean() > 0.95


def test_linear_images_beside_each_other_and_text_around(tmp_path):
    """Speckle in rectangles without regions: those of one size are images; bars and text are not."""
    rng = np.random.default_rng(0)
    image = rng.integers(40, 255, (1, 120, 150), dtype=np.uint8)
    bar, text = np.full((1, 18, 380), 120, np.uint8), rng.integers(0, 2, (1, 6, 60), dtype=np.uint8) * 200
    frames = screen((40, 20, image), (40, 220, image), (5, 10, bar), (180, 20, text))
    with open_dicom(write_dicom(tmp_path / "a.dcm", frames)) as scan:
        geometry, notes = scan.geometry, " ".join(scan.source.assumptions)
    expected = np.zeros((200, 400), bool)
    expected[40:160, 20:170] = expected[40:160, 220:370] = True
    found = image_mask(geometry, (200, 400))
    assert (found != expected).mean() < 0.01 and not found[:36].any() and not found[164:].any()
    assert "the 2 largest areas of echoes are taken as B-mode, all else is left" in notes
    frames[:, :, 200:] = 0
    with open_dicom(write_dicom(tmp_path / "b.dcm", frames)) as scan:
        assert not scan.geometry.others
        assert (image_mask(scan.geometry, (200, 400)) != (expected & (np.arange(400) < 200))).mean() < 0.01


def test_a_screen_without_anything_like_echoes_is_left_alone(tmp_path):
    text = np.random.default_rng(0).integers(0, 2, (1, 6, 300), dtype=np.uint8) * 200
    frames = screen(*((top, 20, text) for top in range(10, 190, 20)), (5, 330, np.full((1, 150, 60), 130, np.uint8)))
    refused(write_dicom(tmp_path / "a.dcm", frames), "no area that looks like it")


TINTS = {
    "sepia": lambda g: (g, 0.86 * g, 0.62 * g),
    "blue": lambda g: (0.7 * g, 0.85 * g, g),
    "heat": lambda g: (np.minimum(2 * g, 255), g, np.maximum(2 * g - 255, 0)),
}


def tinted(grey, tint):
    return np.stack(TINTS[tint](grey.astype(float)), axis=-1).astype(np.uint8)


@pytest.mark.parametrize("tint", TINTS)
@pytest.mark.parametrize("photometric", ["RGB", "PALETTE COLOR"])
def test_tinted_b_mode_keeps_its_hue(tmp_path, tint, photometric):
    grey = fan_frames(2, **BIG)
    rgb = tinted(grey, tint)
    if photometric == "RGB":
        rgb[:, 100:115, 70:90] = (0, 200, 30)  # Doppler
        path = write_dicom(tmp_path / "a.dcm", rgb, "RGB", regions=[region(0, 0, 159, 159)])
    else:
        table = tinted(np.arange(256), tint)
        attributes = {}
        for i, name in enumerate(("Red", "Green", "Blue")):
            attributes[f"{name}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
            attributes[f"{name}PaletteColorLookupTableData"] = (table[:, i].astype(np.uint16) * 257).tobytes()
        path = write_dicom(tmp_path / "a.dcm", grey, photometric, regions=[region(0, 0, 159, 159)], **attributes)
    with open_dicom(path) as scan:
        assert "The B-mode is tinted" in " ".join(scan.source.assumptions)
        sector = sector_mask(scan.geometry.sector, (160, 160))
    ds, _ = derive(path, tmp_path / "b.dcm", by_db=12)
    out = ds.pixel_array.astype(int)
    doppler = (rgb == (0, 200, 30)).all(axis=-1)
    assert np.array_equal(out[doppler], rgb[doppler])
    changed = (out != rgb).any(axis=-1)
    assert changed[:, sector].mean() > 0.9 and np.array_equal(out[:, ~sector], rgb[:, ~sector])
    luma_in, luma_out = (np.rint(a @ [0.299, 0.587, 0.114]) for a in (rgb.astype(float), out))
    bright = changed & (luma_in > 80)
    assert np.abs(luma_in[bright] - luma_out[bright] - 51).max() <= 4
    table = tinted(np.arange(256), tint).astype(int)
    table_luma = np.rint(table @ [0.299, 0.587, 0.114])
    nearest = np.abs(luma_out[bright][:, None] - table_luma).argmin(axis=1)
    assert np.quantile(np.abs(out[bright] - table[nearest]).max(axis=-1), 0.95) <= 16


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_doppler_over_grey_is_no_tint_and_a_screen_full_of_it_is_left_alone(tmp_path, seed):
    rng = np.random.default_rng(seed)
    grey = fan_frames(2, **BIG)
    rgb = np.repeat(grey[..., None], 3, axis=-1)
    box = (slice(None), slice(50, 140), slice(55, 110))
    velocity = rng.random(grey[box].shape) < 0.5
    rgb[box] = np.where(velocity[..., None], (220, 60, 0), (0, 60, 220)) * (grey[box][..., None] > 0)
    with open_dicom(write_dicom(tmp_path / "a.dcm", rgb, "RGB", regions=[region(0, 0, 159, 159)])) as scan:
        assert not scan.tints
        mask = scan.read().tissue_mask
    assert not (mask[0] & (np.ptp(rgb[0], axis=-1) > 16)).any() and mask[0, 20:40, 75:85].all()
    rgb[...] = np.where(rng.random(grey.shape)[..., None] < 0.5, (220, 60, 0), (0, 60, 220)) * (grey[..., None] > 0)
    refused(write_dicom(tmp_path / "b.dcm", rgb, "RGB", regions=[region(0, 0, 159, 159)]), "colour all over")


def test_regions_told_twice_are_one_and_colour_flow_serves_without_tissue(tmp_path):
    ds = open_dicom(
        write_dicom(
            tmp_path / "a.dcm",
            fan_frames(1, **BIG),
            regions=[region(0, 0, 159, 159), region(2, 2, 150, 150), region(0, 0, 80, 80, kind=(1, 2))],
        )
    ).attributes
    found = find_regions(ds, (160, 160))
    assert len(found.b_mode) == 1 and not found.colour_flow and not found.traces
    ds.SequenceOfUltrasoundRegions = ds.SequenceOfUltrasoundRegions[2:]
    assert find_regions(ds, (160, 160)).colour_flow


def test_results_of_several_images_are_joined_and_their_geometry_kept(tmp_path):
    import h5py

    frames = screen((10, 10, fan_frames(2, **BIG)), (10, 220, fan_frames(2, **BIG)))
    with open_dicom(write_dicom(tmp_path / "a.dcm", frames)) as scan:
        cine = scan.read()
    parts = []
    for i, geometry in enumerate(images_of(cine.geometry)):
        lower = np.maximum(cine.frames - np.float32(5 + i), -60)
        part = Result(cine.__class__(cine.frames, geometry), lower, cine.frames, None, {})
        parts.append(part)
    whole = joined(cine, parts)
    left, right = (sector_mask(g.sector, frames.shape[1:]) for g in images_of(cine.geometry))
    if cine.geometry.sector.apex_x > 200:
        left, right = right, left
    step = cine.frames - whole.tissue
    bright = (frames > 60)[0]
    assert {*np.unique(np.round(step[0][bright & left]))} | {*np.unique(np.round(step[0][bright & right]))} == {5, 6}
    assert whole.cine is cine
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write_geometry(file, cine.geometry, None)
        assert read_geometry(file, "x") == cine.geometry
