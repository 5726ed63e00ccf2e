"""Scenes whose tissue and haze are known, and every figure of what a dehazer makes of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from usdehaze.cine import Cine
from usdehaze.simulate.tissue import CAVITY, WALL
from usdehaze.validation import metrics
from usdehaze.validation.evaluate import figure, frame_metrics, truth_metrics
from usdehaze.validation.harm import flicker_ratio, harm_figures, leak_bits, leak_correlation


class Decomposed(Protocol):
    """What a dehazer gives back: both ``(T, H, W)`` in dB."""

    @property
    def tissue(self) -> np.ndarray: ...

    @property
    def haze(self) -> np.ndarray: ...


Dehaze = Callable[[Cine], Decomposed]


@dataclass(frozen=True)
class Split:
    """Tissue and haze, ``(T, H, W)`` in dB, deviation of the tissue where there is one, and how they were found."""

    tissue: np.ndarray
    haze: np.ndarray
    std: np.ndarray | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """A cine whose truth is known.

    Attributes:
        hazy: the cine as a dehazer gets it.
        clean: the same without haze; ``clean.frames`` is the true tissue.
        haze: ``(T, H, W)`` float32 dB, the true haze.
        inside: bool ``(H, W)``, the image.
        walls: bool ``(T, H, W)``, tissue that should stay.
        cavities: bool ``(T, H, W)``, fluid under haze, or None where it is not known.
        stranger: ``(H, W)`` dB, haze of another scene, which knows nothing of this one; only chance is measured by it.
    """

    hazy: Cine
    clean: Cine
    haze: np.ndarray
    inside: np.ndarray
    walls: np.ndarray
    cavities: np.ndarray | None = None
    stranger: np.ndarray | None = None

    @property
    def name(self) -> str:
        return self.hazy.source.name

    @property
    def truth(self) -> Split:
        """What a perfect dehazer gives back."""
        return Split(self.clean.frames, self.haze)

    def regions(self, t: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Walls and cavities of a frame, each None where there is nothing to measure on.

        Walls count from one pixel on, cavities where they and the walls are large enough for figures of both.
        """
        walls, cavities = self.walls[t], None if self.cavities is None else self.cavities[t]
        if cavities is not None and min(walls.sum(), cavities.sum()) < metrics.MIN_REGION_PIXELS:
            cavities = None
        return walls if walls.any() else None, cavities


def labelled_scene(hazy: Cine, tissue_db: np.ndarray, haze_db: np.ndarray, labels: np.ndarray) -> Scene:
    """A simulated cine, its truth ``(T, H, W)`` in dB and the simulator's labels ``(T, H, W)`` as a scene."""
    inside = np.ones(labels.shape[1:], bool)
    return Scene(hazy, replace(hazy, frames=tissue_db), haze_db, inside, labels == WALL, labels == CAVITY)


def error_figures(scene: Scene, tissue_db: np.ndarray, t: int = 0) -> dict[str, Any]:
    """Errors of one frame against its true tissue.

    Args:
        scene: whose truth counts.
        tissue_db: ``(H, W)``, what is taken for tissue.
        t: the frame.

    Returns:
        ``psnr_db`` of the pixels inside the image, ``ssim`` of the whole frame, ``rmse_tissue_db`` of walls and
        ``rmse_haze_db`` of cavities, where there are such. Each ``{"input", "tissue", "delta"}``.
    """
    span, hazy, true, inside = scene.hazy.dynamic_range_db, scene.hazy.frames[t], scene.clean.frames[t], scene.inside
    figures = truth_metrics(hazy, tissue_db, true, span, *scene.regions(t))
    psnr = (metrics.psnr_db(image[inside], true[inside], span) for image in (hazy, tissue_db))
    return figures | {"psnr_db": figure(*psnr)}


def wall_error(scene: Scene, tissue_db: np.ndarray) -> dict[str, Any]:
    """``wall_error_db`` of the first frame, mean of the image less that of the true tissue on walls; nothing without
    any."""
    walls, true = scene.walls[0], scene.clean.frames[0]
    if not walls.any():
        return {}
    images = scene.hazy.frames[0], tissue_db
    return {"wall_error_db": figure(*(metrics.mean_shift_db(true[walls], image[walls]) for image in images))}


def hazy_figures(scene: Scene, split: Decomposed, t: int = 0, bins: int | None = None) -> dict[str, Any]:
    """Every figure of one hazy frame.

    Args:
        scene: whose truth counts.
        split: what was made of its hazy cine.
        t: the frame.
        bins: of gCNR; None for equiprobable ones.

    Returns:
        A record: errors of tissue (`error_figures`) and of haze, leakage inside the image, the largest rise of any
        pixel, and figures of walls against cavities where both are large enough.
    """
    span, hazy, inside = scene.hazy.dynamic_range_db, scene.hazy.frames[t], scene.inside
    tissue, haze, true_haze = split.tissue[t], split.haze[t], scene.haze[t][inside]
    record: dict[str, Any] = {"cine": scene.name, "frame": t, **error_figures(scene, tissue, t)}
    estimates = hazy[inside], haze[inside]
    record["haze_psnr_db"] = figure(*(metrics.psnr_db(image, true_haze, span) for image in estimates))
    for name, leak in (("leak_correlation", leak_correlation), ("leak_bits", leak_bits)):
        record[name] = figure(*(leak(image, scene.clean.frames[t][inside], true_haze) for image in estimates))
    record["max_rise_db"] = figure(None, float((tissue - hazy).max()))
    walls, cavities = scene.regions(t)
    if walls is not None and cavities is not None:
        record |= frame_metrics(hazy, tissue, walls, cavities, bins)
    return record


def clean_figures(clean_db: np.ndarray, output_db: np.ndarray, walls: np.ndarray) -> dict[str, Any]:
    """What became of one frame without haze, ``(H, W)`` all: `harm_figures` as figures."""
    return {name: figure(None, value) for name, value in harm_figures(clean_db, output_db, walls).items()}


def removed_flicker(scene: Scene, tissue_db: np.ndarray) -> float:
    """Flicker of what was removed over that of the input, inside the image; ``tissue_db`` is ``(T, H, W)``, T > 1."""
    hazy = scene.hazy.frames[: len(tissue_db)]
    return flicker_ratio(hazy - tissue_db, hazy, scene.inside)
