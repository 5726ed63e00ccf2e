"""Reader studies from results to scores: blinding, answers of readers whose preference is known, statistics."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from _results import POLAR, SECTOR, make_result
from click.testing import CliRunner
from PIL import Image
from scipy import stats

from usdehaze.cli import main
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.io import write_result
from usdehaze.study import make_study, score_study
from usdehaze.study.answers import Judgements, read_answers
from usdehaze.study.design import ITEMS, draw_study, read_study
from usdehaze.study.score import score
from usdehaze.study.statistics import category_counts, crossed_interval, fleiss_kappa, gwet_ac1, paired_test

N_CASES, N_READERS = 6, 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study of six results, and the results."""
    folder = tmp_path_factory.mktemp("study")
    results = [make_result(folder / f"QUILLFEATHER-{c}.dehazed.h5", with_std=False) for c in range(N_CASES)]
    paths = sorted(folder.glob("*.h5"))
    make_study(paths, folder / "s", N_READERS, seed=4, frames=slice(2), with_screen=True)
    return folder / "s", paths, results


def page_data(page: Path) -> dict:
    text = page.read_text()
    return json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def answer(folder: Path, out: Path, reader: str, chosen, rating) -> Path:
    """A file of answers: ``chosen(case) -> arm`` and ``rating(arm, item, case)``."""
    study = read_study(folder)
    answers = []
    for trial in study.readers[reader]:
        arms = {side: trial.arm(side) for side in ("left", "right")}
        answers.append(
            {
                "pair": trial.pair,
                "choice": next(side for side, arm in arms.items() if arm == chosen(trial.case)),
                "ratings": {
                    side: {item: rating(arm, item, trial.case) for item in ITEMS} for side, arm in arms.items()
                },
            }
        )
    document = {"format": "usdehaze-study-answers", "format_version": 1, "study": study.study, "reader": reader}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document | {"answers": answers}))
    return out


def test_pages_are_told_the_shape_of_pixels_and_fans_have_square_ones(tmp_path):
    for name, geometry, expected in (("a", SECTOR, 2 / 3), ("b", POLAR, 1)):
        make_result(tmp_path / f"{name}.dehazed.h5", geometry)
        make_study([tmp_path / f"{name}.dehazed.h5"], tmp_path / name, 1)
        shown = page_data(tmp_path / name / "reader-01.html")["pairs"][0]
        assert shown["row_per_column"] == pytest.approx(expected)


def test_pages_show_input_and_tissue_on_the_sides_that_the_key_says(made):
    folder, _, results = made
    study = read_study(folder)
    for reader, trials in study.readers.items():
        data = page_data(folder / f"{reader}.html")
        assert (data["study"], data["reader"]) == (study.study, reader)
        for shown, trial in zip(data["pairs"], trials, strict=True):
            assert shown["pair"] == trial.pair and len(shown["left"]) == len(shown["right"]) == 2
            result = results[int(trial.case[-3:]) - 1]
            for side in ("left", "right"):
                frames = result.cine.frames if trial.arm(side) == "input" else result.tissue
                picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown[side][1]))))
                assert np.array_equal(picture, db_to_grey(frames[1], 60))


def test_pages_tell_neither_names_nor_which_side_is_which(made):
    folder, paths, _ = made
    for reader in read_study(folder).readers:
        text = (folder / f"{reader}.html").read_text()
        data = page_data(folder / f"{reader}.html")
        assert set(data["pairs"][0]) == {"pair", "frame_time_s", "row_per_column", "left", "right"}
        assert "QUILLFEATHER" not in text and "tissue" not in text and "case-0" not in text and "ab" * 32 not in text
        assert "http:" not in text and "https:" not in text and "default-src 'none'" in text
    assert {case.result for case in read_study(folder).cases} == {path.name for path in paths}


def test_randomisation_is_seeded_and_balanced():
    named = [(f"{c}.h5", "0") for c in range(20)]
    study, same, other = draw_study(named, 4, 1), draw_study(named, 4, 1), draw_study(named, 4, 2)
    assert study == same and study.study != other.study and study.readers != other.readers
    trials = [trial for reader in study.readers.values() for trial in reader]
    assert len({trial.pair for trial in trials}) == 80
    assert [sum(t.left == "tissue" for t in reader) for reader in study.readers.values()] == [10] * 4
    orders = {tuple(t.case for t in reader) for reader in study.readers.values()}
    assert len(orders) == 4 and all(len(set(order)) == 20 for order in orders)


def test_readers_of_known_preference_are_scored_as_they_prefer(made, tmp_path):
    folder = made[0]
    copy = tmp_path / "s"
    copy.mkdir()
    (copy / "study.json").write_text((folder / "study.json").read_text())
    disliked = "case-006"
    for r in (1, 2, 3):
        answer(
            copy,
            copy / "answers" / f"{r}.json",
            f"reader-{r:02d}",
            chosen=lambda case: "input" if case == disliked else "tissue",
            rating=lambda arm, item, case: (
                None if item == "apex" else 3 if item == "septum" else 2 + 2 * (arm == "tissue") - (case == disliked)
            ),
        )
    scores = score_study(copy)
    assert scores["choice"]["share"] == pytest.approx(5 / 6) and scores["choice"]["fleiss_kappa"] == 1
    assert scores["choice"]["by_case"] == {"n": 6, "wilcoxon_p": pytest.approx(0.21875), "sign_p": 0.21875}
    chamber, septum = scores["items"]["chamber"], scores["items"]["septum"]
    assert chamber["difference"] == pytest.approx(2) and chamber["by_case"]["sign_p"] == 2 / 2**6
    assert chamber["ci95"] is None  # no two judgements differ
    assert septum["difference"] == 0 and septum["by_case"] == {"n": 0, "wilcoxon_p": None, "sign_p": None}
    assert "apex" not in scores["items"] and scores["items"]["artefacts"]["better"] == "lower"
    low, high = scores["choice"]["ci95"]
    assert low < 5 / 6 < high

    done = CliRunner().invoke(main, ["study", "score", str(copy)])
    assert done.exit_code == 0 and max(map(len, done.stdout.splitlines()[:-1])) <= 100
    assert json.loads((copy / "scores" / "scores.json").read_text())["choice"]["share"] == scores["choice"]["share"]
    assert {p.name for p in (copy / "scores").iterdir()} == {"scores.json", "scores.csv", "ratings.svg", "choice.svg"}
    assert (copy / "scores" / "choice.svg").read_text().count("<circle") == 4


def test_a_side_bias_is_no_preference(made, tmp_path):
    study = read_study(made[0])
    (tmp_path / "study.json").write_text((made[0] / "study.json").read_text())
    for r, reader in enumerate(study.readers):
        left = {trial.case: trial.left for trial in study.readers[reader]}
        answer(tmp_path, tmp_path / f"answers-{r}.json", reader, left.get, lambda arm, item, case: 3)
    judged = read_answers(tmp_path, study)
    assert judged.choice.mean(axis=1).tolist() == [0.5] * 3  # always the left one


@pytest.mark.parametrize(
    "change, found",
    [
        ({"study": "0"}, "answers to another study"),
        ({"reader": "reader-09"}, "of a reader that the study has not"),
        ({"answers": []}, "no answers in it"),
        ({"answers": [{"pair": "ZZZZZ"}]}, "not shown"),
        ({"format": "else"}, "no usdehaze-study-answers file"),
        ({"format_version": 2}, "another version"),
        ({"answers": "choice"}, "no side"),
        ({"answers": "rating"}, "a rating of septum"),
        ({"answers": "ratings"}, "no ratings at pair"),
    ],
)
def test_answers_that_cannot_be_are_refused_in_one_line(made, tmp_path, change, found):
    (tmp_path / "study.json").write_text((made[0] / "study.json").read_text())
    path = answer(tmp_path, tmp_path / "answers" / "a.json", "reader-01", lambda case: "tissue", lambda *_: 3)
    document = json.loads(path.read_text())
    broken = change.get("answers")
    if broken == "choice":
        document["answers"][0]["choice"] = "both"
    elif broken == "rating":
        document["answers"][0]["ratings"]["left"]["septum"] = 6
    elif broken == "ratings":
        document["answers"][0]["ratings"] = 3
    else:
        document |= change
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=found) as refused:
        score_study(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_study_is_never_replaced_or_scored_without_answers(made):
    folder, paths, _ = made
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match="exists already"):
        make_study(paths, folder, N_READERS)
    with pytest.raises(InputError, match="no answers"):
        score_study(folder)
    with pytest.raises(InputError, match="no such frames"):
        make_study(paths, folder / "more", frames=slice(90, 99))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_kappa_and_ac1_are_those_of_published_examples():
    fleiss = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]]
    fleiss += [[7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]
    assert fleiss_kappa(np.array(fleiss)) == pytest.approx(0.210, abs=5e-4)
    paradox = np.array([[2, 0]] * 118 + [[1, 1]] * 7)  # Gwet 2008: 94 % agree, and kappa is below 0
    assert fleiss_kappa(paradox) == pytest.approx(-0.029, abs=1e-3)
    assert gwet_ac1(paradox) == pytest.approx(0.9407, abs=1e-3)
    assert (fleiss_kappa(np.array([[3], [3]])), gwet_ac1(np.array([[3], [3]]))) == (None, 1.0)
    labels = np.array([[0, 1, np.nan], [0, 0, 1]])
    assert category_counts(labels).tolist() == [[2, 0], [1, 1]]  # the third case has one reader


def test_tests_leave_out_ties_and_are_exact():
    assert asdict(paired_test(np.array([1.0, 2, 3, 0, np.nan]))) == {"n": 3, "wilcoxon_p": 0.25, "sign_p": 0.25}
    values = np.array([1.0, 1, -2, 2, 3, -1, 4, 4])
    ranks, signs = stats.rankdata(abs(values)), np.array(list(product((-1, 1), repeat=8)))
    as_far = abs(signs @ ranks) >= abs(np.sign(values) @ ranks)
    assert paired_test(values).wilcoxon_p == pytest.approx(as_far.mean())
    assert paired_test(values).sign_p == pytest.approx(stats.binomtest(6, 8).pvalue)
    spread = np.arange(-3.0, 17)[np.arange(20) != 3].repeat(2)  # too many with ties: the normal approximation
    assert paired_test(spread).wilcoxon_p == stats.wilcoxon(spread).pvalue


def test_intervals_of_a_seed_are_the_same_each_time_and_those_of_another_seed_others():
    values = np.arange(24).reshape(3, 8) * 7 % 5 - 1.0
    values[1, 2] = np.nan
    low, high = crossed_interval(values, 3).ci95
    assert (low, high) == (pytest.approx(-0.058287627757), pytest.approx(2.14023974299))
    assert crossed_interval(values, 3).ci95 == (low, high) != crossed_interval(values, 4).ci95


def test_intervals_of_shares_and_ratings_stay_where_these_can_be():
    values = np.ones((3, 20))
    values[0, :2] = 0
    low, high = crossed_interval(values).ci95
    assert high > 1  # widened for few readers
    assert crossed_interval(values, bounds=(0, 1)).ci95 == (low, 1)
    judged = Judgements(
        tuple("abc"), tuple(map(str, range(20))), values, {"apex": np.stack([1 + 0 * values, 4 + values])}
    )
    scores = score(judged)
    assert scores["choice"]["ci95"] == (low, 1) and scores["items"]["apex"]["ci95"][1] == 4


def test_intervals_are_wider_for_few_readers_and_none_for_a_single_judgement():
    rng = np.random.default_rng(0)
    values = rng.normal(0.5, 1, (8, 1)) + rng.normal(0, 0.2, (8, 30))  # readers differ, cases hardly
    all_of_them, few = crossed_interval(values), crossed_interval(values[:3])
    assert all_of_them.mean == pytest.approx(values.mean())
    low, high = all_of_them.ci95
    half = 2.365 * values.mean(axis=1).std(ddof=1) / 8**0.5  # t of 7 degrees
    assert (high - low) / 2 == pytest.approx(half, rel=0.12)
    assert few.ci95[1] - few.ci95[0] > high - low
    assert crossed_interval(np.array([[0.5]])).ci95 is None
    gaps = values.copy()
    gaps[::2, ::3] = np.nan
    assert crossed_interval(gaps).mean == pytest.approx(np.nanmean(gaps))


def test_a_key_whose_trials_are_of_no_case_or_no_arm_is_refused(made, tmp_path):
    for change in ({"left": "haze"}, {"case": "case-099"}):
        document = json.loads((made[0] / "study.json").read_text())
        document["readers"]["reader-01"][0] |= change
        (tmp_path / "study.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match="a damaged key of a study"):
            read_study(tmp_path)


def test_a_result_and_a_link_to_it_are_no_two_cases(tmp_path):
    make_result(tmp_path / "a.dehazed.h5")
    (tmp_path / "b.dehazed.h5").symlink_to(tmp_path / "a.dehazed.h5")
    with pytest.raises(InputError, match="the same result twice"):
        make_study([tmp_path / "a.dehazed.h5", tmp_path / "b.dehazed.h5"], tmp_path / "study")


def test_a_study_of_other_pictures_is_another_study(tmp_path):
    paths = [tmp_path / f"{name}.dehazed.h5" for name in "ab"]
    for path in paths:
        make_result(path)
    codes = [make_study(paths, tmp_path / "s", 1, frames=slice(*f), overwrite=True).study for f in ((2,), (2,), (2, 4))]
    made = make_result(tmp_path / "c.dehazed.h5", settings={"seed": 4})
    write_result(
        paths[0], replace(made, tissue=np.maximum(made.tissue - 1, -60)), True
    )  # made anew, of the same source
    codes.append(make_study(paths, tmp_path / "s", 1, frames=slice(2), overwrite=True).study)
    assert codes[0] == codes[1] and len(set(codes)) == 3


def test_a_study_that_is_replaced_leaves_no_page_and_one_with_answers_keeps_its_key(tmp_path):
    paths = [tmp_path / "a.dehazed.h5", tmp_path / "b.dehazed.h5"]
    for path in paths:
        make_result(path)
    folder = tmp_path / "s"
    make_study(paths, folder, 3, frames=slice(1))
    study = make_study(paths, folder, 2, frames=slice(1), overwrite=True)
    assert {path.name for path in folder.iterdir()} == {"study.json", "reader-01.html", "reader-02.html"}
    answer(folder, folder / "answers-reader-01.json", "reader-01", lambda case: "tissue", lambda *_: 3)
    with pytest.raises(InputError, match="holds answers to the study that is there"):
        make_study(paths, folder, 2, seed=1, frames=slice(1), overwrite=True)
    assert make_study(paths, folder, 2, frames=slice(1), overwrite=True) == study  # the same one
    assert score_study(folder)["choice"]["share"] == 1
