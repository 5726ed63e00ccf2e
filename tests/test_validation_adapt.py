"""What adapting to a probe gains, as a command: who is trained on, who is measured, and what the tables say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from _scans import fan_frames, write, write_hazy_clip
from _tiny_priors import write_tiny_posterior

from usdehaze.priors.posterior import LearnedPosterior
from validation.adapt import __main__ as adapt
from validation.adapt.tables import HARM, _compared
from validation.paths import PATIENTS

NAMES = json.loads(PATIENTS.read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scans made up under the names that the script reads, and a tiny posterior; no weights of LPIPS."""
    for name in ("camus", "clean-cines"):
        (tmp_path / name).mkdir()
    clips = [*NAMES["clean-cines"]["tuning"][:2], *NAMES["clean-cines"]["held-out"][:1]]
    for seed, clip in enumerate(clips):
        write(tmp_path / "clean-cines" / f"{clip}.h5", {"bmode/frames": fan_frames(4, 96, 96, seed=seed)})
    frames = fan_frames(2, 96, 96)
    label = np.zeros_like(frames)
    label[:, 28:66, 35:48], label[:, 28:66, 50:63] = 170, 85
    patient = tmp_path / "camus" / f"{NAMES['camus']['held-out'][0]}.h5"
    write(patient, {"image": np.where(label == 85, frames // 8, frames), "label": label})
    write_hazy_clip(tmp_path / "echo-haze")
    write_tiny_posterior(tmp_path / "posterior.safetensors")
    monkeypatch.setenv("USDEHAZE_DATA", str(tmp_path))
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    few = ["--steps", "2", "--lr", "0.01", "--clips", "2", "--limit", "1"]
    files = ["--work", str(folder / "work"), "--out", str(folder / "ADAPT.md")]
    return ["--posterior", str(folder / "posterior.safetensors"), *few, *files, *more]


def test_a_posterior_is_adapted_on_clips_for_tuning_and_measured_on_held_out_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapt.main(arguments(folder))
    first = capsys.readouterr()
    (weights,) = (folder / "work").glob("*-0.01.safetensors")
    before, after = (LearnedPosterior.load(path) for path in (folder / "posterior.safetensors", weights))
    assert after.card["fine_tuned_from"] == before.name and "2 scans" in after.card["tissue_data"]

    held_out = {f"{clip}.h5" for clip in NAMES["clean-cines"]["held-out"][:1]}
    records = [json.loads(path.read_text()) for path in (folder / "work" / "records").glob("*.json")]
    for part in "bd":
        of_part = [record for record in records if record["by"]["part"] == part]
        assert {record["by"]["name"] for record in of_part} == held_out
        assert len(of_part) == 2  # no record stands for two priors

    page = (folder / "ADAPT.md").read_text()
    row = re.search(r"^\| 0.3 \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    assert row and float(row.group(2)) == pytest.approx(after.card["held_out"]["0.3"]["tissue"], abs=1e-4)
    assert row.group(1) != row.group(2) and "CAMUS as it is, another probe (2 frames" in page
    adapt.main(arguments(folder))
    again = capsys.readouterr()
    assert again.err == "" and first.out.endswith(again.out)  # nothing is trained or measured twice


def test_changes_are_those_of_the_same_clips() -> None:
    def records(*shifts: float) -> list[dict]:
        return [
            {"cine": str(i), "clean_shift_db": {"input": None, "tissue": shift, "delta": None}}
            for i, shift in enumerate(shifts)
        ]

    for after, printed in (
        (records(-0.5, -2.5), ["-1.500", "+0.500", "+0.500 to +0.500"]),
        (records(-1, -1), ["-1.000", "+1.000", "+0.000 to +2.000"]),
    ):
        (row,) = _compared({"before": records(-1, -3), "adapted": after}, HARM)
        assert [cell.strip() for cell in row.split("|")[2:-1]] == ["", "-2.000", *printed]


def test_without_the_clips_it_says_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USDEHAZE_DATA", str(folder / "nowhere"))
    with pytest.raises(SystemExit, match="set USDEHAZE_DATA"):
        adapt.main(arguments(folder))
