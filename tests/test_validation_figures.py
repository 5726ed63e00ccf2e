"""Figures of the test bench on constructed frames, and denoisers whose loss is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from usdehaze.cine import Cartesian, Cine
from usdehaze.priors.prior import Prior
from usdehaze.validation.scene import Scene
from validation.figures import (
    cine_figures,
    clip_figures,
    denoising_loss,
    lost_figures,
    print_db,
    scene_figures,
    trace_figures,
)

N = 128


@pytest.fixture
def scene() -> Scene:
    """A wall and a cavity on the grid of the priors, 10 dB of haze in the upper half; the left quarter is no image."""
    rng = np.random.default_rng(0)
    true = rng.uniform(-55, -45, (1, N, N)).astype(np.float32)
    walls, cavities = np.zeros((2, 1, N, N), bool)
    walls[:, 20:60, 40:80], cavities[:, 20:60, 90:120] = True, True
    true[walls] += 25
    hazy = true.copy()
    hazy[:, :64, 32:] += 10
    inside = np.ones((N, N), bool)
    inside[:, :32] = False
    clean = Cine(true, Cartesian())
    haze = np.full((1, N, N), -60, np.float32)
    return Scene(replace(clean, frames=hazy), clean, haze, inside, walls, cavities)


def test_errors_count_inside_the_image_alone(scene: Scene) -> None:
    tissue = scene.clean.frames[0] + np.where(scene.inside, np.float32(3), np.float32(-9))
    figures = scene_figures(scene, tissue, lpips=None)
    assert figures["psnr_db"]["tissue"] == pytest.approx(20 * math.log10(60 / 3), abs=1e-4)
    assert figures["psnr_db"]["input"] == pytest.approx(10 * math.log10(60**2 / 50), abs=1e-4)  # 10 dB in one half
    assert figures["rmse_tissue_db"]["input"] == pytest.approx(10, abs=1e-4)
    assert figures["rmse_haze_db"]["tissue"] == pytest.approx(3, abs=1e-4)


def test_structure_is_judged_inside_the_image_alone(scene: Scene) -> None:
    """Away from the border, windows that touch the outside are the same in both."""
    spoilt = np.where(scene.inside, scene.clean.frames[0], np.float32(-60))
    spoilt[:, :26] = np.random.default_rng(1).uniform(-60, 0, (N, 26))  # further than a window's radius from the image
    assert scene_figures(scene, scene.clean.frames[0], None)["ssim"]["tissue"] == pytest.approx(1)
    kept = np.where(np.arange(N) < 26, spoilt, scene.clean.frames[0])
    assert scene_figures(scene, kept, None)["ssim"]["tissue"] == pytest.approx(1)


def test_contrast_of_the_truth_stands_beside_that_of_the_output(scene: Scene) -> None:
    figures = scene_figures(scene, scene.hazy.frames[0], lpips=None)
    gcnr = figures["gcnr"]
    assert gcnr["input"] == gcnr["tissue"] == gcnr["true"] > 0.95  # both regions lie under the same haze
    assert figures["psnr_db"]["delta"] == 0


def test_scenes_without_labels_have_no_contrast(scene: Scene) -> None:
    assert set(scene_figures(replace(scene, cavities=None), scene.hazy.frames[0], None)) == {"psnr_db", "ssim"}


def test_a_structure_printed_into_the_haze_shows_by_its_own_level() -> None:
    row, column = np.mgrid[:100, :100]
    septum = (abs(column - 50) < 5) & (abs(row - 50) < 30)
    fading = -20 - 0.2 * row.astype(np.float32)
    assert print_db(fading, septum) == pytest.approx(0, abs=1e-5)  # the ring lies at like depths
    assert print_db(fading + 4 * septum, septum) == pytest.approx(4, abs=1e-5)
    assert print_db(fading - 4 * septum, septum) == pytest.approx(-4, abs=1e-5)


def test_a_clip_whose_cavity_alone_got_darker() -> None:
    rng = np.random.default_rng(0)
    frame = rng.uniform(-40, -20, (60, 60)).astype(np.float32)
    septum, cavity = np.zeros((2, 60, 60), bool)
    septum[10:50, 10:18], cavity[10:50, 25:50] = True, True
    tissue = np.where(cavity, frame - 30, frame)
    figures = clip_figures(frame, tissue, np.full_like(frame, -30), septum, cavity)
    assert figures["ks_tissue"]["tissue"] == figures["tissue_shift_db"]["tissue"] == 0
    assert figures["ks_haze"]["tissue"] == 1 and figures["haze_shift_db"]["tissue"] == pytest.approx(-30)
    assert figures["gcnr"]["tissue"] > 0.95 > 0.3 > figures["gcnr"]["input"]
    assert figures["print_db"]["tissue"] == 0


def test_pixels_are_lost_on_walls_and_elsewhere() -> None:
    frame = np.full((4, 4), -50.0)
    walls, inside = np.zeros((2, 4, 4), bool)
    walls[:2], inside[:3] = True, True
    tissue = frame.copy()
    tissue[0], tissue[2:, :1] = -58, -60
    figures = lost_figures(frame, tissue, walls, inside, -60)
    assert figures["lost_walls"]["tissue"] == 0.5 and figures["lost_elsewhere"]["tissue"] == 0.25


def test_a_removal_cut_short_by_the_floor_has_steps_that_are_not_its_own() -> None:
    """10 dB off a frame whose columns lie 5 dB and 30 dB above the floor in turn."""
    frames = np.where(np.arange(20) % 2, np.float32(-55), np.float32(-30)) * np.ones((2, 20, 1), np.float32)
    figures = cine_figures(frames, np.maximum(frames - 10, -60), np.ones((20, 20), bool), -60)
    assert {name: figure["tissue"] for name, figure in figures.items()} == {
        "flicker": 0,
        "step_db": 5,
        "step_seen_db": 0,  # along the columns that stay above it
    }
    assert "flicker" not in cine_figures(frames[:1], frames[:1], np.ones((20, 20), bool), -60)


def test_a_trace_counts_a_pixel_once_however_often_it_is_lowered() -> None:
    frames = np.full((2, 3, 3), -30.0)
    trace = np.eye(3, dtype=bool)
    lowered = frames.copy()
    lowered[:, 0, 0] -= 6
    lowered[0, 1, 1] -= 1
    lowered[:, 0, 2] -= 50  # beside it
    assert trace_figures(frames, lowered, trace) == {"pixels": 3, "lowered": 1, "largest_db": 6, "mean_db": 13 / 6}


class Shrinks(nn.Module):
    """As the network of a score: its denoiser moves ``share`` of the noise level, ``D = x + sigma share``."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor(share))

    def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return self.share.expand_as(x)


def test_denoising_loss_of_denoisers_known_in_closed_form() -> None:
    card = {"name": "p", "kind": "tissue", "data_mean": 0.5, "data_std": 0.2, "grid": [64, 64]}
    frames, counts = torch.rand(20, 1, 64, 64), torch.ones(20, 1, 64, 64, dtype=torch.bool)
    nothing = Prior(Shrinks(0.0), card | {"parametrisation": "score"})
    assert denoising_loss(nothing, frames, counts, (0.1, 1.0)) == pytest.approx([1, 1], abs=0.01)
    moved = Prior(Shrinks(2.0), card | {"parametrisation": "score"})
    assert denoising_loss(moved, frames, counts, (0.1, 1.0)) == pytest.approx([5, 5], abs=0.05)  # 1 + 2^2


def test_denoising_loss_counts_the_pixels_it_is_told_to() -> None:
    """A denoiser of a constant errs by the frame's distance from it; where that is 0, so is the loss."""
    card = {"name": "p", "kind": "tissue", "data_mean": 0.5, "data_std": 1e-4, "grid": [8, 8]}
    frames = torch.full((3, 1, 8, 8), 0.5)
    frames[:, :, 4:] = 0.9
    upper = torch.zeros_like(frames, dtype=torch.bool)
    upper[:, :, :4] = True
    constant = Prior(Shrinks(0.0), card)
    assert denoising_loss(constant, frames, upper, (1.0,))[0] == pytest.approx(0, abs=1e-6)
    assert denoising_loss(constant, frames, ~upper, (1.0, 2.0)) == pytest.approx([0.16, 0.04], rel=1e-3)
