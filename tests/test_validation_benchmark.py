"""The truth-known benchmark, with stand-ins for simulator and method whose figures are known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from usdehaze.cine import Cine, Polar
from usdehaze.validation.benchmark import BASELINE, FIRST_SEED, OURS, benchmark_table, run_benchmark, trust_table

H, W = 40, 30
SEEDS: list[int] = []


def simulate(n_frames: int, seed: int) -> SimpleNamespace:
    """Walls at -20 dB, cavities at -50 dB, haze that lifts every pixel by 6 dB."""
    SEEDS.append(seed)
    rng = np.random.default_rng(seed)
    tissue = np.full((n_frames, H, W), -20.0) + rng.normal(0, 2, (n_frames, H, W))
    labels = np.ones((n_frames, H, W), dtype=np.uint8)
    labels[:, :, W // 2 :] = 2
    tissue[labels == 2] -= 30
    geometry = Polar(np.linspace(0.005, 0.15, H), np.linspace(-0.6, 0.6, W))
    hazy, tissue, haze = ((tissue + lift).astype(np.float32) for lift in (6, 0, 4))
    return SimpleNamespace(hazy=hazy, tissue=tissue, haze=haze, geometry=geometry, dynamic_range_db=80.0, labels=labels)


def removes(db: float):
    return lambda cine: SimpleNamespace(tissue=cine.frames - db, haze=cine.frames - 2, settings={"removes": db})


@pytest.fixture
def document() -> dict:
    SEEDS.clear()
    return run_benchmark(n_scenes=3, n_frames=2, methods={OURS: removes(3), BASELINE: removes(0)}, simulate=simulate)


def test_figures_are_those_of_the_known_errors(document: dict) -> None:
    ours, baseline = document["summary"], document["others"][BASELINE]
    assert ours["psnr_db"]["input"] == pytest.approx(20 * math.log10(80 / 6), abs=1e-3)
    assert ours["psnr_db"]["tissue"] == pytest.approx(20 * math.log10(80 / 3), abs=1e-3)
    assert document["settings"]["estimators"]["gcnr"].endswith("; ceil(2 N^0.4) equiprobable bins on pooled ranks")
    assert baseline["psnr_db"]["tissue"] == pytest.approx(20 * math.log10(80 / 6), abs=1e-3)
    assert ours["haze_psnr_db"]["input"] == pytest.approx(20 * math.log10(80 / 2), abs=1e-3)
    assert ours["clean_change_db"]["tissue"] == pytest.approx(3, abs=1e-3)
    assert ours["max_rise_db"]["tissue"] == pytest.approx(-3, abs=1e-3)
    # Walls and cavities do not overlap; one of the 35 bins straddles the gap and costs at most half a bin.
    assert 1 - 0.5 / 17 <= ours["gcnr"]["tissue"] == document["others"]["truth"]["gcnr"]["tissue"]
    for region in ("tissue", "haze"):  # 6 dB of haze, 3 dB of them removed
        assert ours[f"rmse_{region}_db"]["input"] == pytest.approx(6, abs=1e-3)
        assert ours[f"rmse_{region}_db"]["tissue"] == pytest.approx(3, abs=1e-3)
    assert ours["ks_tissue"]["tissue"] > 0.3 and baseline["ks_tissue"]["tissue"] == 0


def test_figures_of_trust_are_those_of_the_stand_ins(document: dict) -> None:
    ours, baseline, truth = document["summary"], document["others"][BASELINE], document["others"]["truth"]
    assert ours["clean_shift_db"]["tissue"] == pytest.approx(-3, abs=1e-3)
    assert baseline["clean_shift_db"]["tissue"] == 0
    assert ours["clean_rise_db"]["tissue"] == pytest.approx(-3, abs=1e-3)
    assert ours["removed_flicker"]["tissue"] == pytest.approx(0, abs=1e-5)  # always the same 3 dB
    # The true haze follows the tissue here, so there is no tissue that it does not tell, and nothing to leak.
    assert ours["leak_correlation"]["tissue"] == truth["leak_correlation"]["tissue"] == 0
    assert truth["leak_bits"]["tissue"] == 0


def test_haze_that_holds_the_tissue_is_a_leak_in_the_benchmark() -> None:
    def with_haze_of_its_own(n_frames: int, seed: int) -> SimpleNamespace:
        truth = simulate(n_frames, seed)
        truth.haze = np.random.default_rng(seed + 1).normal(-30, 5, truth.tissue.shape).astype(np.float32)
        return truth

    document = run_benchmark(n_scenes=2, n_frames=1, methods={OURS: removes(3)}, simulate=with_haze_of_its_own)
    leak = document["summary"]["leak_correlation"]
    assert leak["tissue"] > 0.99 and leak["input"] > 0.99  # the stand-in's haze is the frame itself
    assert document["others"]["truth"]["leak_correlation"]["tissue"] == pytest.approx(0, abs=1e-9)
    assert "removed_flicker" not in document["summary"]  # a single frame


def test_trust_has_a_table_of_its_own_that_names_the_full_study(document: dict) -> None:
    header, *rows, last = trust_table(document)
    assert header.split() == ["input", *BASELINE.split(), OURS, "truth"]
    assert [row.split()[0] for row in rows[:2]] == ["clean_shift_db", "clean_change_db"]
    assert [row.split()[3] for row in rows[:2]] == ["-3.000", "3.000"]
    assert "python -m validation.trust" in last


def test_seeds_are_fixed_and_kept_from_training(document: dict) -> None:
    assert SEEDS == [FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2]
    assert FIRST_SEED >= 1_000_000_000
    assert document["settings"]["seeds"] == [FIRST_SEED, FIRST_SEED + 2]
    assert document["settings"]["methods"] == {OURS: {"removes": 3}, BASELINE: {"removes": 0}}
    assert document["settings"]["ci95_cluster"] == "cine"
    assert len(document["frames"]) == 6


def test_scenes_without_cavities_have_no_region_figures_but_count_for_the_rest() -> None:
    def blank(n_frames: int, seed: int) -> SimpleNamespace:
        truth = simulate(n_frames, seed)
        if seed == FIRST_SEED:
            truth.labels[:] = 1
        return truth

    document = run_benchmark(n_scenes=2, n_frames=1, methods={OURS: removes(3)}, simulate=blank)
    assert "gcnr" not in document["frames"][0] and "psnr_db" in document["frames"][0]
    assert document["summary"]["gcnr"]["tissue"] > 0.97


def test_table_has_a_column_a_method_beside_its_rows(document: dict) -> None:
    header, *rows = benchmark_table(document)
    assert header.split() == ["input", *BASELINE.split(), OURS, "truth"] and len(header) <= 100
    names = [row.split()[0] for row in rows]
    assert rows[names.index("psnr_db")].split()[1:] == ["22.50", "22.50", "28.52", "-"]
    gcnr = names.index("gcnr")
    assert names[gcnr : gcnr + 3] == ["gcnr", "ks_tissue", "tissue_shift_db"]  # never shown alone


def test_frames_reach_the_method_as_a_cine() -> None:
    seen: list[Cine] = []

    def spy(cine: Cine) -> SimpleNamespace:
        seen.append(cine)
        return SimpleNamespace(tissue=cine.frames, haze=cine.frames)

    run_benchmark(n_scenes=1, n_frames=2, methods={OURS: spy}, simulate=simulate)
    hazy, clean = seen
    assert hazy.frames.dtype == np.float32 and hazy.dynamic_range_db == 80
    assert np.allclose(hazy.frames - clean.frames, 6, atol=1e-4)
