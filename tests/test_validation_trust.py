"""``python -m validation.trust``: what voids a record, so that no table mixes the old and the new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.dehazing.settings import PRESETS
from usdehaze.validation.scene import Scene, Split
from validation import records
from validation.baselines import Method
from validation.records import Records
from validation.trust import study

NETWORKS = ["posterior sha256:00", "tissue sha256:00"]


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small scene for every seed, and networks by name alone."""
    monkeypatch.setattr(study, "simulated_scene", lambda seed, n_frames: scene())
    monkeypatch.setattr(study, "network_names", lambda: NETWORKS)


def scene() -> Scene:
    tissue = np.random.default_rng(1).uniform(-50, -10, (3, 24, 24)).astype(np.float32)
    clean = Cine(tissue, Cartesian(), 60.0, None, Source(name="scene"))
    walls = np.zeros(tissue.shape, bool)
    walls[:, :, :12] = True
    hazy = replace(clean, frames=tissue + 6)
    return Scene(hazy, clean, tissue + 3, np.ones((24, 24), bool), walls, ~walls, tissue[0])


def made(work: Path, what: str = "takes 6 dB off") -> study.Study:
    def make(**_: object) -> object:
        return lambda cine: Split(cine.frames - 6, cine.frames - 3, None, {})

    table = {name: Method(what, make, learned=name == "ours") for name in ("ours", "filter")}
    sizes = {"simulated": 1, "camus": 0, "clean-cines": 0, "cines": 1, "seeds": 0, "calibration": 0}
    return study.Study(table, sizes, work, Records(work, "validation.trust.study"))


def test_every_piece_of_work_is_found_again(tmp_path: Path) -> None:
    all_of_it = made(tmp_path)
    jobs = list(all_of_it.jobs())
    assert {(job.part, job.method) for job in jobs} == {
        (part, method) for part in ("hazy", "clean", "flicker") for method in ("ours", "filter")
    }
    for job in jobs:
        assert all_of_it.record(job) is None
        all_of_it.measure(job)
        assert all_of_it.record(job)["scene"] == "scene"
    hazy = all_of_it.record(jobs[0])["figures"]
    assert hazy["rmse_tissue_db"] == {"input": pytest.approx(6), "tissue": 0, "delta": pytest.approx(-6)}


@pytest.mark.parametrize("change", ["networks", "preset", "method", "code"])
def test_a_change_of_what_made_a_record_voids_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    before = made(tmp_path)
    jobs = [study.Job("hazy", "simulated", 0, name) for name in ("ours", "filter")]
    for job in jobs:
        before.measure(job)
    after = made(tmp_path, "takes 7 dB off" if change == "method" else "takes 6 dB off")
    if change == "networks":
        monkeypatch.setattr(study, "network_names", lambda: [NETWORKS[0], "tissue sha256:01"])
    elif change == "preset":
        monkeypatch.setitem(study.PRESETS, "fast", replace(PRESETS["fast"], steps=7))
    elif change == "code":
        monkeypatch.setattr(records, "code_hash", lambda module: "other")
    found = [after.record(job) is not None for job in jobs]
    assert found == [False, change in ("networks", "preset")]  # a filter knows of neither
