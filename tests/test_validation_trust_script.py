"""``python validation/trust.py``: what voids a record, so that no table mixes the old and the new."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.dehazing.settings import PRESETS
from usdehaze.validation.baselines import Method, Split
from usdehaze.validation.realhaze import Scene

SCRIPTS = Path(__file__).resolve().parents[1] / "validation"
NETWORKS = ["posterior sha256:00", "tissue sha256:00"]


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with one small scene for every seed, and networks by name alone."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("trust")
    monkeypatch.setattr(script, "simulated_scene", lambda seed, n_frames: scene())
    monkeypatch.setattr(script, "network_names", lambda: NETWORKS)
    return script


def scene() -> Scene:
    tissue = np.random.default_rng(1).uniform(-50, -10, (3, 24, 24)).astype(np.float32)
    clean = Cine(tissue, Cartesian(), 60.0, None, Source(name="scene"))
    walls = np.zeros(tissue.shape, bool)
    walls[:, :, :12] = True
    hazy = replace(clean, frames=tissue + 6)
    return Scene(hazy, clean, tissue + 3, tissue[0], np.ones((24, 24), bool), walls, ~walls)


def study(trust: ModuleType, work: Path, what: str = "takes 6 dB off") -> object:
    def make(**_: object) -> object:
        return lambda cine: Split(cine.frames - 6, cine.frames - 3, None, {})

    table = {name: Method(what, make, learned=name == "ours") for name in ("ours", "filter")}
    sizes = {"simulated": 1, "camus": 0, "clean-cines": 0, "cines": 1, "seeds": 0, "calibration": 0}
    return trust.Study(table, sizes, work, work)


def test_every_piece_of_work_is_found_again(trust: ModuleType, tmp_path: Path) -> None:
    made = study(trust, tmp_path)
    jobs = list(made.jobs())
    assert {(job.part, job.method) for job in jobs} == {
        (part, method) for part in ("hazy", "clean", "flicker") for method in ("ours", "filter")
    }
    for job in jobs:
        assert made.record(job) is None
        made.measure(job)
        assert made.record(job)["scene"] == "scene"
    hazy = made.record(jobs[0])["figures"]
    assert hazy["rmse_tissue_db"] == {"input": pytest.approx(6), "tissue": 0, "delta": pytest.approx(-6)}


@pytest.mark.parametrize("change", ["networks", "preset", "method", "code"])
def test_a_change_of_what_made_a_record_voids_it(
    trust: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before = study(trust, tmp_path)
    jobs = [trust.Job("hazy", "simulated", 0, name) for name in ("ours", "filter")]
    for job in jobs:
        before.measure(job)
    after = study(trust, tmp_path, "takes 7 dB off" if change == "method" else "takes 6 dB off")
    if change == "networks":
        monkeypatch.setattr(trust, "network_names", lambda: [NETWORKS[0], "tissue sha256:01"])
    elif change == "preset":
        monkeypatch.setitem(trust.PRESETS, "fast", replace(PRESETS["fast"], steps=7))
    elif change == "code":
        monkeypatch.setattr(trust, "code_hash", lambda *patterns: "other")
    found = [after.record(job) is not None for job in jobs]
    assert found == [False, change in ("networks", "preset")]  # a filter knows of neither


def test_code_counts_and_comments_do_not(trust: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = importlib.import_module("code_hash")
    monkeypatch.setattr(code, "usdehaze", SimpleNamespace(__file__=str(tmp_path / "__init__.py")))
    hashes = []
    for text in ("x = 1\n", '"""Says what."""\nx = 1  # why\n', "x = 2\n"):
        (tmp_path / "a.py").write_text(text)
        code.code_hash.cache_clear()
        hashes.append(code.code_hash("*.py"))
    code.code_hash.cache_clear()
    assert hashes[0] == hashes[1] != hashes[2]
