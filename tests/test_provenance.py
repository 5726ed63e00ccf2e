"""The table of what a result says about itself: a row is all that it takes for a setting to be told everywhere."""

import dataclasses
import json
import re
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from _dicom import region, write_dicom
from _dicom_results import derive
from _results import make_result
from _scans import fan_frames
from _tiny_priors import write_tiny_posterior, write_tiny_priors
from click.testing import CliRunner
from monai.data import MetaTensor

from usdehaze import Dehazer, provenance
from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.cli import main
from usdehaze.dehazing.settings import Settings
from usdehaze.io import open_result, read_result
from usdehaze.io.scan import CineScan
from usdehaze.io.zea import ZeaWriter
from usdehaze.provenance import FIELDS, Field, in_words, source_attributes, source_in
from usdehaze.result import Result
from usdehaze.review import build_review
from usdehaze.transforms import DehazeUltrasound
from usdehaze.transforms.result import result_of

WARMTH = Field("warmth", "warmth of the room", "setting", words=lambda kelvin: f"{kelvin:g} K")


@pytest.fixture
def warmth(monkeypatch):
    """A new setting: a row in the table, and its name and value among a result's settings."""
    monkeypatch.setattr(provenance, "FIELDS", (*FIELDS, WARMTH))
    return {"warmth": 291.5}


def warm(result, settings):
    return dataclasses.replace(result, settings={**result.settings, **settings})


def test_a_new_setting_is_in_the_file_and_comes_back_from_it(tmp_path, warmth):
    path = tmp_path / "a.dehazed.h5"
    make_result(path, settings=warmth)
    with h5py.File(path) as file:
        assert file.attrs["warmth"] == 291.5
    with open_result(path) as lazy:
        assert read_result(path).settings["warmth"] == lazy.settings["warmth"] == lazy.attrs["warmth"] == 291.5


def test_a_new_setting_is_in_the_file_for_zea(tmp_path, warmth):
    result = warm(make_result(tmp_path / "a.dehazed.h5"), warmth)
    with ZeaWriter(tmp_path / "a.hdf5", CineScan(result.cine)) as writer:
        writer.append(result)
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert file["custom"].attrs["warmth"] == 291.5


def test_a_new_setting_is_in_monai_s_metadata_and_comes_back_from_them(warmth):
    dehazer = SimpleNamespace(
        settings=SimpleNamespace(samples=1),
        dehaze=lambda cine: Result(
            cine, cine.frames - 1, cine.frames - 2, None, {"seed": 3, **warmth}, usdehaze_version="0.0.1"
        ),
    )
    frames = MetaTensor(torch.full((2, 16, 16), -20.0))
    tissue, haze = DehazeUltrasound(dehazer, geometry=Cartesian(), return_haze=True)(frames)
    assert tissue.meta["usdehaze"] == haze.meta["usdehaze"] == {"seed": 3, "warmth": 291.5}
    result = result_of(tissue, haze, frames)
    assert result.attrs["warmth"] == 291.5 and result.usdehaze_version == "0.0.1"


def test_a_new_setting_is_in_the_words_of_a_derived_dicom_image(tmp_path, warmth):
    scan = write_dicom(tmp_path / "a.dcm", fan_frames(2), regions=[region()])
    image, _ = derive(scan, tmp_path / "b.dcm", settings={**warmth, "sampler": "heun", "sigma_max": 8.0})
    assert image.DerivationDescription.endswith(
        ": preset fast, guidance proximal, sampler heun, steps 32, sigma max 8, samples 1, caution 0.5, strength 1, "
        "seed 0, warmth 291.5 K"
    )


def test_a_new_setting_is_on_the_review_page(tmp_path, warmth):
    make_result(tmp_path / "a.dehazed.h5", settings=warmth)
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html").read_text()
    data = json.loads(re.search(r'id="page-json">(.*?)</script>', page)[1])
    assert ["warmth of the room", "291.5 K"] in data["provenance"]


def test_a_new_setting_is_told_by_info(tmp_path, warmth):
    make_result(tmp_path / "a.dehazed.h5", settings=warmth)
    done = CliRunner().invoke(main, ["info", str(tmp_path / "a.dehazed.h5")])
    assert "warmth:        291.5 K" in done.stdout and "scale:         0.93, 0.88" in done.stdout


def test_the_table_has_a_row_for_people_of_everything_that_a_dehazer_says(tmp_path):
    rows = {field.name for field in FIELDS if field.label and field.kind in ("network", "setting")}
    assert {field.name for field in dataclasses.fields(Settings)} <= rows
    write_tiny_posterior(tmp_path / "posterior.safetensors")
    cine = Cine(np.full((1, 32, 32), -20, np.float32), Cartesian())
    for options in (
        write_tiny_priors(tmp_path),
        {"posterior": str(tmp_path / "posterior.safetensors"), "steps": 1, "samples": 1, "device": "cpu"},
    ):
        assert set(Dehazer.from_pretrained(**options).dehaze(cine).settings) <= rows


def test_a_source_goes_into_attributes_and_comes_back():
    source = Source("a.h5", "ab" * 32, "g/x", "zea 0.1", "I/Q", ("One.", "Two."), 7, 9, "--axes HWT")
    assert source_in(source_attributes(source)) == source
    assert source_in({}) == Source() and source_in(source_attributes(Source())) == Source()
    assert source_in({"assumptions": "Old.", "first_frame": np.int64(2)}) == Source(
        assumptions=("Old.",), first_frame=2
    )


def test_attributes_that_are_no_row_are_kept_and_told_to_nobody(tmp_path):
    make_result(tmp_path / "a.dehazed.h5", settings={"PatientName": "Doe^Jane"})
    result = read_result(tmp_path / "a.dehazed.h5")
    assert result.settings["PatientName"] == "Doe^Jane"
    assert not any("Doe" in words for _, words in provenance.describe(result.attrs))


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, ""), (True, "yes"), (0.93, "0.93"), (1.0, "1"), (4, "4"), ((0.93, 1.0), "0.93, 1"), (np.ones(2), "1, 1")],
)
def test_values_in_words(value, words):
    assert in_words(value) == words
