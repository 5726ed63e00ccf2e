"""Reading: one object for what to read of a scan, or the same as keywords."""

import dataclasses

import numpy as np
import pytest
from _scans import fan_frames, write

from usdehaze import open_cine
from usdehaze.errors import InputError
from usdehaze.io import Reading, open_scan
from usdehaze.io.reading import ReadingOptions


def test_an_object_and_keywords_read_the_same_and_keywords_go_first(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames(5), "y": fan_frames(5, seed=1)})
    reading = Reading(dataset="y", frames=slice(1, 4), dynamic_range_db=50.0)
    by_object = open_cine(path, reading)
    by_keywords = open_cine(path, dataset="y", frames=slice(1, 4), dynamic_range_db=50.0)
    assert np.array_equal(by_object.frames, by_keywords.frames) and by_object.source == by_keywords.source
    with open_scan(path, reading, frames=slice(4, 5)) as scan:
        assert (scan.source.first_frame, scan.n_frames, scan.source.dataset) == (4, 1, "y")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"units": "volts"}, "units 'volts'; expected one of dB, 8-bit, grey, envelope, I/Q"),
        ({"dynamic_range_db": 0.0}, "dynamic range of 0 dB; expected a positive number of dB"),
        ({"dynamic_range_db": float("nan")}, "dynamic range of nan dB; expected a positive number of dB"),
        ({"frames": slice(0, 4, 2)}, "frames with a step of 2; expected consecutive frames"),
    ],
)
def test_options_that_cannot_be_are_refused_with_the_name_of_the_file(tmp_path, option, message):
    path = write(tmp_path / "a.h5", {"x": fan_frames(5)})
    with pytest.raises(ValueError, match=message):
        Reading(**option)
    with pytest.raises(InputError) as caught:
        open_cine(path, **option)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    "option",
    [
        {"frames": (0, 2)},
        {"frames": 3},
        {"frames": slice(0.0, 2.0)},
        {"dynamic_range_db": "60"},
        {"axes": 5},
        {"dataset": 5},
        {"rectangle": "false"},
        {"levels": 255},
    ],
    ids=str,
)
def test_options_of_another_type_are_named(tmp_path, option):
    scan = write(tmp_path / "scan.h5", {"cine": fan_frames(2)})
    with pytest.raises(TypeError, match=rf"{next(iter(option))} must be .*, found"):
        open_cine(scan, **option)


def test_it_cannot_be_changed_and_takes_keywords_alone():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Reading().units = "dB"
    with pytest.raises(TypeError):
        Reading("x")
    assert set(ReadingOptions.__annotations__) == {field.name for field in dataclasses.fields(Reading)}


def test_frames_outside_the_file_are_refused():
    assert Reading().frame_range(7, "a") == (0, 7)
    assert Reading(frames=slice(-2, None)).frame_range(7, "a") == (5, 7)
    with pytest.raises(InputError, match="a: no frame in 9:12; expected frames within 0:7"):
        Reading(frames=slice(9, 12)).frame_range(7, "a")
