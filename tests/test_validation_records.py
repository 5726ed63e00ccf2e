"""What makes a record stale: any code that decides a figure, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.engines.registry import TorchEngine
from validation import records
from validation.records import Records, code_hash, digest_of, made_by


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package and studies of a few lines each."""
    for name, text in {
        "usdehaze/dehazing/chain.py": "x = 1\n",
        "usdehaze/cli/process.py": "x = 1\n",
        "validation/bench/parts.py": "from validation import hazes\nfrom validation.records import kept\n",
        "validation/bench/tables.py": "from validation.bench import parts\n",
        "validation/hazes.py": "x = 1\n",
        "validation/records.py": "from validation.bench.parts import y\n",  # imports that go round are no trouble
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(records, "PACKAGE", tmp_path / "usdehaze")
    monkeypatch.setattr(records, "STUDIES", tmp_path / "validation")
    return tmp_path


def hashed() -> str:
    code_hash.cache_clear()
    found = code_hash("validation.bench.parts")
    code_hash.cache_clear()
    return found


@pytest.mark.parametrize(
    ("name", "text", "counts"),
    [
        ("usdehaze/dehazing/chain.py", "x = 2\n", True),
        ("usdehaze/training/new.py", "x = 1\n", True),
        ("validation/bench/parts.py", "from validation import hazes\n", True),
        ("validation/hazes.py", "x = 2\n", True),
        ("usdehaze/dehazing/chain.py", '"""Says what."""\nx = (\n    1  # why\n)\n', False),
        ("usdehaze/cli/process.py", "x = 2\n", False),
        ("validation/bench/tables.py", "x = 2\n", False),
    ],
)
def test_code_that_decides_a_figure_counts_and_no_other(checkout: Path, name: str, text: str, counts: bool) -> None:
    before = hashed()
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text(text)
    assert (hashed() != before) == counts


def test_what_measures_is_found_by_its_imports() -> None:
    found = {path.name for path in records._imported("validation.bench.wide", set())}
    assert {"wide.py", "parts.py", "figures.py", "scenes.py", "lpips.py", "oracles.py", "traces.py"} < found
    assert not {"tables.py", "summary.py", "gap.py"} & found


def test_a_piece_of_work_is_done_once(tmp_path: Path) -> None:
    kept = Records(tmp_path / "new", "validation.bench.wide")
    done = [kept.kept("a", "scan", {"seed": seed}, lambda: {"figure": np.float32(0.5)}) for seed in (0, 1, 0)]
    assert done[0] == done[2] and done[0]["figure"] == 0.5 and done[0]["cine"] == "scan"
    assert len(list((tmp_path / "new").iterdir())) == 2
    assert kept.found("a", "scan", {"seed": 1}) == done[1] and kept.found("b", "scan", {"seed": 1}) is None


def test_arrays_are_told_apart_by_their_bytes() -> None:
    a, b = np.zeros((2, 3)), np.ones((2, 3))
    assert digest_of(a, b) == digest_of(a.copy(), b) != digest_of(b, a)
    assert digest_of(a, None) != digest_of(a)


def test_another_engine_makes_another_record() -> None:
    cine = Cine(np.zeros((1, 8, 8), np.float32), Cartesian())
    ours = Dehazer.from_pretrained(device="cpu")
    engine = TorchEngine(ours.model)
    engine.name = "onnxruntime"
    other = Dehazer(ours.model, device="cpu", engine=engine)
    assert made_by(cine, ours)["engine"] == "torch"
    assert made_by(cine, other) == made_by(cine, ours) | {"engine": "onnxruntime"}
