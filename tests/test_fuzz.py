"""Damaged files of every kind: a small run of ``validation.fuzz``."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limit on address space there")
def test_damaged_files_end_in_frames_or_in_one_line():
    command = [sys.executable, "-m", "validation.fuzz", "--count", "120", "--seed", "2", "--seconds", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("120 files")
    assert "'one line'" in done.stdout and "'frames'" in done.stdout
