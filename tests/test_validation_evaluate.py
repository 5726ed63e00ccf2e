"""From frames and regions to the Metrics JSON: the right numbers in the right places."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import usdehaze
from usdehaze.validation import metrics
from usdehaze.validation.evaluate import evaluate_cine, metrics_document, truth_metrics, write_json
from usdehaze.validation.regions import Region, Regions
from usdehaze.validation.report import summary_rows, write_csv

T, H, W = 3, 24, 40
ALL = frozenset(range(T))


@pytest.fixture
def cine() -> tuple[np.ndarray, np.ndarray, Regions]:
    """Input, output and regions: the output has its haze region lowered by 12 dB in frames 0 and 1, 6 dB in frame 2."""
    rng = np.random.default_rng(0)
    frames = rng.uniform(-35, -5, (T, H, W)).astype(np.float32)
    left, right = np.zeros((2, 1, H, W), dtype=bool)
    left[0, 4:14, 2:12], right[0, 4:20, 20:38] = True, True
    output = frames.copy()
    output[:2, right[0]] -= 12
    output[2, right[0]] -= 6
    return frames, output, Regions((Region("wall", "tissue", left, ALL), Region("lv", "haze", right, ALL)), (T, H, W))


def test_every_metric_has_its_value_before_and_after(cine: Any) -> None:
    frames, output, regions = cine
    document = metrics_document(evaluate_cine("a", frames, output, regions), None)
    summary, wall, lv = document["summary"], regions.mask("tissue", 0), regions.mask("haze", 0)
    assert set(summary) >= {"gcnr", "cnr", "contrast_db", "ks_tissue", "ks_haze", "tissue_shift_db", "haze_shift_db"}
    assert summary["haze_shift_db"]["tissue"] == pytest.approx(-10, abs=1e-4)
    assert summary["contrast_db"]["delta"] == pytest.approx(10, abs=1e-4)
    assert summary["tissue_shift_db"]["tissue"] == 0 and summary["ks_tissue"]["tissue"] == 0
    assert summary["ks_haze"] | {"ci95": 0} == {
        "input": None,
        "tissue": pytest.approx(np.mean([metrics.ks(frames[t][lv], output[t][lv]) for t in range(T)])),
        "delta": None,
        "ci95": 0,
        "n_frames": T,
    }
    before = [metrics.gcnr(frames[t][wall], frames[t][lv]) for t in range(T)]
    after = [metrics.gcnr(output[t][wall], output[t][lv]) for t in range(T)]
    assert summary["gcnr"]["input"] == pytest.approx(np.mean(before))
    assert summary["gcnr"]["tissue"] == pytest.approx(np.mean(after))
    assert summary["gcnr"]["delta"] == pytest.approx(np.mean(after) - np.mean(before))
    low, high = summary["contrast_db"]["ci95"]
    assert low == pytest.approx(6, abs=1e-3) and high == pytest.approx(12, abs=1e-3)  # three frames: 12, 12, 6


def test_every_figure_has_its_estimator_beside_it(cine: Any) -> None:
    frames, output, regions = cine
    for bins, in_frame, in_words in ((None, 37, "equiprobable"), (64, 64, "64 equal bins")):
        document = metrics_document(evaluate_cine("a", frames, output, regions, bins), bins)
        frame = document["frames"][0]
        assert frame["n_pixels"] == {"tissue": 100, "haze": 288}
        assert frame["gcnr"]["bins"] == (metrics.equiprobable_bins(388) if bins is None else in_frame)
        assert in_words in document["settings"]["estimators"]["gcnr"]
        assert set(document["settings"]["estimators"]) == set(document["summary"])
        assert document["settings"]["usdehaze"] == usdehaze.__version__


def test_no_figure_is_less_than_nothing(cine: Any) -> None:
    frames, _, regions = cine
    document = metrics_document(evaluate_cine("a", frames, frames.copy(), regions), None)
    document["summary"]["gcnr"]["delta"] = -1e-9
    rows = {row.name: row for row in summary_rows(document)}
    assert rows["gcnr"].delta == rows["cnr"].delta == "0.000"


def test_frames_of_one_cine_are_one_cluster(cine: Any) -> None:
    frames, output, regions = cine
    one = evaluate_cine("a", frames, output, regions)
    two = evaluate_cine("b", frames, frames - 1, regions, first_frame=5)
    assert [(r["cine"], r["frame"]) for r in two] == [("b", 5), ("b", 6), ("b", 7)]
    document = metrics_document(one + two, None)
    assert document["settings"]["ci95_cluster"] == "cine"
    low, high = document["summary"]["contrast_db"]["ci95"]
    assert low == pytest.approx(0, abs=1e-4) and high == pytest.approx(10, abs=1e-4)  # means of b and of a
    single = metrics_document(one[:1], None)  # one frame says nothing about spread, but its blocks do of gCNR
    assert single["summary"]["contrast_db"]["ci95"] is None
    assert single["summary"]["gcnr"]["ci95"] == one[0]["gcnr"]["ci95"]
    assert single["settings"]["ci95_cluster"] == "block of pixels"


def test_cines_are_compared_in_pairs_each_counted_once(cine: Any) -> None:
    frames, _, regions = cine
    records = []
    for name, removed in (("a", 12), ("b", 6), ("c", 3)):
        lowered = frames.copy()
        lowered[:, regions.mask("haze", 0)] -= removed
        records += evaluate_cine(name, frames, lowered, regions)[: 1 if name == "a" else T]
    summary = metrics_document(records, None)["summary"]
    paired = summary["contrast_db"]["paired"]
    assert paired["mean_difference"] == pytest.approx(7, abs=1e-4)  # 12, 6 and 3, not weighed by frames
    assert (paired["n_clusters"], paired["wilcoxon_p"]) == (3, 0.25)
    assert summary["mean_tissue_db"]["paired"]["wilcoxon_p"] is None  # no cine differs
    assert "paired" not in summary["ks_tissue"]


def test_small_regions_are_warned_of_and_large_ones_are_not(cine: Any) -> None:
    frames, output, regions = cine
    warnings = metrics_document(evaluate_cine("a", frames, output, regions), None)["settings"]["warnings"]
    assert warnings[0].startswith("a region holds only 100 pixels; under 1000")
    wide = np.random.default_rng(1).normal(-30, 4, (1, 90, 90)).astype(np.float32)
    halves = np.zeros((2, 1, 90, 90), dtype=bool)
    halves[0, :, :45], halves[1, :, 45:] = True, True
    large = Regions(
        tuple(Region(role, role, half, frozenset({0})) for role, half in zip(("tissue", "haze"), halves, strict=True)),
        (1, 90, 90),
    )
    assert metrics_document(evaluate_cine("b", wide, wide, large), None)["settings"]["warnings"] == []


def test_intervals_over_few_cines_or_frames_are_said_to_be_too_narrow(cine: Any) -> None:
    frames, output, regions = cine
    records = [record for name in "abcdefghij" for record in evaluate_cine(name, frames, output, regions)]
    told = {n: " ".join(metrics_document(records[:n], None)["settings"]["warnings"]) for n in (1, 3, 27, 30)}
    assert "over 3 frames is too narrow" in told[3] and "over 9 cines is too narrow" in told[27]
    assert "narrow: over" not in told[1] + told[30]
    for record in records[6:]:
        del record["gcnr"]  # measured in two cines alone
    assert "over 2 cines is too narrow" in " ".join(metrics_document(records, None)["settings"]["warnings"])


def test_means_of_input_and_output_are_of_the_same_frames_and_say_of_how_many(cine: Any, tmp_path: Path) -> None:
    frames, output, regions = cine
    output[1, regions.mask("haze", 0)] = -60  # one value: its speckle has no ratio of mean and deviation
    document = metrics_document(evaluate_cine("a", frames, output, regions), None)
    summary = document["summary"]["speckle_snr_haze"]
    assert {name for name, entry in document["summary"].items() if entry["n_frames"] != 3} == {"speckle_snr_haze"}
    assert summary["n_frames"] == 2
    told = {row.name: row.estimator for row in summary_rows(document)}
    assert told["speckle_snr_haze"].endswith("; over 2 of 3 frames") and "of 3 frames" not in told["gcnr"]
    write_csv(tmp_path / "m.csv", document)
    with (tmp_path / "m.csv").open() as file:
        infinite = [row for row in csv.DictReader(file) if row["metric"] == "speckle_snr_haze"][1]
    assert (infinite["tissue"], infinite["delta"]) == ("", "") and float(infinite["input"]) > 0  # as null in the JSON
    before = [metrics.speckle_snr(frames[t][regions.mask("haze", 0)]) for t in (0, 2)]
    assert summary["input"] == pytest.approx(np.mean(before))
    assert summary["tissue"] - summary["input"] == pytest.approx(summary["delta"])


def test_errors_by_region_are_those_put_there() -> None:
    truth = np.full((20, 20), -30.0)
    tissue, haze = np.zeros((2, 20, 20), dtype=bool)
    tissue[:10], haze[10:] = True, True
    estimate = np.where(tissue, truth + 1, truth - 3)
    figures = truth_metrics(truth + 6, estimate, truth, 60, tissue, haze)
    assert figures["rmse_tissue_db"] == {"input": 6, "tissue": 1, "delta": -5}
    assert figures["rmse_haze_db"] == {"input": 6, "tissue": 3, "delta": -3}


def test_psnr_and_ssim_compare_with_the_truth() -> None:
    truth = np.full((20, 20), -30.0)
    figures = truth_metrics(truth + 6, truth + 3, truth, 60)
    assert figures["psnr_db"]["input"] == pytest.approx(20)
    assert figures["psnr_db"]["delta"] == pytest.approx(20 * math.log10(2))
    assert figures["ssim"]["input"] < figures["ssim"]["tissue"] < 1


def test_json_on_disk_is_strict_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_json(path, {"a": math.inf, "b": [np.float32(0.5), math.nan], "n": np.int64(3), "p": Path("x")})
    assert json.loads(path.read_text()) == {"a": None, "b": [0.5, None], "n": 3, "p": "x"}
    assert list(tmp_path.iterdir()) == [path]
