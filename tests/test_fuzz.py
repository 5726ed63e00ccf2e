"""Damaged files of every kind: a small run of ``validation.fuzz``."""

import subprocess
import sys
from pathlib import Path

import pytest

from validation.fuzz import judge, make_seeds

ROOT = Path(__file__).resolve().parents[1]


def test_whole_files_end_in_frames_and_derived_images(tmp_path):
    """Else nothing would be seen of what damage does to these."""
    seeds = [seed for seed in make_seeds(tmp_path) if not seed.name.endswith("DICOMDIR")]
    outcomes = {seed.name: judge(seed, tmp_path / "derived.dcm") for seed in seeds}
    assert {name: outcome for name, outcome in outcomes.items() if outcome != ("frames", "")} == {}
    assert (tmp_path / "derived.dcm").is_file()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limit on address space there")
def test_damaged_files_end_in_frames_or_in_one_line():
    command = [sys.executable, "-m", "validation.fuzz", "--count", "120", "--seed", "2", "--seconds", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("120 files")
    assert "'one line'" in done.stdout and "'frames'" in done.stdout
