"""What every test shares: seeds, torch's threads, and the folder of real data."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _tiny_priors import write_tiny_priors

if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores: one thread for each, and for what they start
    os.environ["OMP_NUM_THREADS"] = os.environ["USDEHAZE_TEST_THREADS"] = "1"
torch.set_num_threads(int(os.environ.get("USDEHAZE_TEST_THREADS", "2")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several workers share the tests, the long ones come first: none is left alone with one at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Global random streams start at the same place in every test, whichever tests ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (third-party code draws from the global stream)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options of a dehazer on networks so small that a frame takes no time."""
    return write_tiny_priors(tmp_path_factory.mktemp("priors"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data (``USDEHAZE_DATA``, else ``../shared/data`` beside the repository); skips where absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("USDEHAZE_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"real data not here ({folder}); set USDEHAZE_DATA to its folder")
    return folder
