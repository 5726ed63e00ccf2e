"""Where studies find what they need, and where they leave what they found."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENTS, HAZES = HERE / "data" / "patients.json", HERE / "data" / "hazes.npz"
RESULTS = HERE / "results"
RUNS = HERE.parent / "runs"  # records and whatever else is not for the repository


def real_scans() -> Path:
    """Folder of real scans: USDEHAZE_DATA, else ``shared/data`` beside the checkout; it need not be there."""
    return Path(os.environ.get("USDEHAZE_DATA", HERE.parents[1] / "shared" / "data"))
