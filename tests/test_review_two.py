"""A second result on the review page, and marks of structure at risk: what is in the file."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from _hearts import LOWERED, write_hearts
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.io import read_result, write_result
from usdehaze.review import build_review


@pytest.fixture(scope="module")
def hearts(tmp_path_factory):
    return write_hearts(tmp_path_factory.mktemp("hearts"))


def page_json(page):
    return json.loads(re.search(r'id="page-json">(.*?)</script>', page.read_text(), re.S)[1])


def test_the_frames_whose_wall_was_lowered_are_those_at_risk_and_no_others(hearts, tmp_path):
    marks = page_json(build_review(hearts[0], tmp_path / "a.html"))["risk"]["marks"]
    removed = [t for t, (reasons, _) in enumerate(marks) if reasons & 1]
    unsteady = [t for t, (reasons, _) in enumerate(marks) if reasons & 4]
    assert removed == LOWERED and unsteady == [1, 2, 5, 7]  # where the wall goes, and where it comes back
    assert all((pixels > 0) == (reasons > 0) for reasons, pixels in marks)
    assert [m for m in page_json(build_review(hearts[1], tmp_path / "b.html"))["risk"]["marks"] if m[0]] == []


def test_what_differs_between_two_results_is_said_and_nothing_else(hearts, tmp_path):
    about = page_json(build_review(hearts[0], tmp_path / "a.html", against=hearts[1], frames=slice(2, 6)))
    assert about["planes"] == ["input", "removed", "haze", "risk", "other_removed"]
    assert about["against"]["differences"] == [["seed", "3", "4"]] and about["first_frame"] == 2
    assert page_json(build_review(hearts[0], tmp_path / "b.html"))["against"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cine: replace(cine, source=replace(cine.source, sha256="cd" * 32)), "of another source (SHA-256 cdcd"),
        (lambda cine: replace(cine, source=replace(cine.source, first_frame=3)), "frames 4 to 11 of the source"),
        (lambda cine: replace(cine, frames=np.maximum(cine.frames, -59)), "the input of frame 1 is not that of a.de"),
    ],
)
def test_results_that_cannot_be_compared_are_refused_in_one_line_and_no_page_is_left(hearts, tmp_path, change, message):
    result = read_result(hearts[1])
    write_result(tmp_path / "other.dehazed.h5", replace(result, cine=change(result.cine)))
    command = ["review", hearts[0], "--against", tmp_path / "other.dehazed.h5", "-o", tmp_path / "page.html"]
    done = CliRunner().invoke(main, [*map(str, command), "--no-open"])
    (line,) = done.stderr.splitlines()
    assert done.exit_code == 1 and line.startswith(f"usdehaze: {tmp_path / 'other.dehazed.h5'}: {message}")
    assert not (tmp_path / "page.html").exists()


def test_a_second_result_may_hold_more_frames_than_are_shown(hearts, tmp_path):
    result = read_result(hearts[1])
    cine = replace(result.cine, frames=result.cine.frames[3:], frame_times_s=None)
    cine = replace(cine, source=replace(cine.source, first_frame=3))
    write_result(
        tmp_path / "part.dehazed.h5", replace(result, cine=cine, tissue=result.tissue[3:], haze=result.haze[3:])
    )
    page = build_review(tmp_path / "part.dehazed.h5", tmp_path / "a.html", against=hearts[0])
    assert page_json(page)["n_frames"] == 5
    with pytest.raises(InputError, match=r"frames 4 to 8 of the source; expected 1 to 8, those of a\.dehazed\.h5"):
        build_review(hearts[0], tmp_path / "b.html", against=tmp_path / "part.dehazed.h5")
