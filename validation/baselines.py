"""What else takes haze off: classical methods, and diffusion priors of tissue alone.

Classical methods work on the model grid, as ours does, and their change in dB is put back on the native frame in the
same way, so that no row of a comparison gains or loses by resampling. None is clipped to what it was given: a method
that brightens shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from usdehaze.cine import Cine
from usdehaze.decibels import db_to_power, power_to_db
from usdehaze.dehazing.settings import PRIORS
from usdehaze.diffusion.observation import GaussianNoise
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.validation.benchmark import OURS
from usdehaze.validation.scene import Dehaze, Split

NOISE_STD = GaussianNoise.std  # told to every method that takes haze for Gaussian noise, in units of the dynamic range
GAUSSIAN_STEPS = 100  # of the priors' methods without a haze prior; the paper takes 600
STATIC_COMPONENTS = 1  # of the singular value decomposition, taken for haze

Estimate = Callable[[np.ndarray, float], np.ndarray]


@dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Attributes:
        what: it is, with its settings, in words.
        make: loads what it needs and returns ``dehaze(cine)``.
        temporal: it looks at neighbouring frames, and so gets the whole cine.
        learned: it depends on the installed networks.
        needs: module that must be installed, "" for none.
    """

    what: str
    make: Callable[..., Dehaze]
    temporal: bool = False
    learned: bool = False
    needs: str = ""

    @property
    def available(self) -> bool:
        return not self.needs or find_spec(self.needs) is not None


def methods(gaussian_steps: int = GAUSSIAN_STEPS) -> dict[str, Method]:
    """Every method of the comparison, by the name of its row."""
    noise = f"told a noise of {NOISE_STD:g} of the dynamic range"
    table = {
        "non-local means": Method(
            f"scikit-image, patches of 5 within 6 pixels, {noise}", lambda: classical(non_local_means), needs="skimage"
        ),
        "BM3D": Method(f"optional, non-commercial licence; {noise}", lambda: classical(bm3d), needs="bm3d"),
        "median over beams": Method(
            "median over all beams and frames at each depth, taken off in power", lambda: classical(median_haze), True
        ),
        "SVD over time": Method(
            f"{STATIC_COMPONENTS} singular component of the amplitudes (pixels x frames) taken off",
            lambda: classical(svd_filter),
            True,
        ),
    }
    for guidance, label in (("projection", "projection"), ("pigdm", "PiGDM"), ("dps", "DPS")):
        what = f"our tissue prior, haze as Gaussian noise, Euler-Maruyama, {gaussian_steps} steps, the paper's scale"
        table[f"{label}, Gaussian noise"] = Method(what, partial(gaussian, guidance, gaussian_steps), learned=True)
    table[OURS] = Method("the learned posterior, default preset", ours, learned=True)
    return table


def ours(**options: Any) -> Dehaze:
    """The default preset; options as for `Dehazer.from_pretrained`."""
    return _dehazer(**options).dehaze


def gaussian(guidance: str, steps: int) -> Dehaze:
    """The fast preset's tissue prior under the paper's reverse diffusion, with all else taken for Gaussian noise.

    The paper preset's own network would compare two trainings, not a haze prior with none.
    """
    return _dehazer(
        preset="paper",
        tissue_prior=PRIORS[0],
        guidance=guidance,
        sampler="euler-maruyama",
        steps=steps,
        use_haze_prior=False,
    ).dehaze


def classical(estimate: Estimate) -> Dehaze:
    """``dehaze(cine)`` of an estimate on the model grid.

    Args:
        estimate: tissue ``(T, depth, angle)`` in dB from the frames there, given the dynamic range in dB.

    Returns:
        A method whose haze is what it took off in power, ``10 log10(10^(y/10) - 10^(x/10))``.
    """

    def dehaze(cine: Cine) -> Split:
        span = cine.dynamic_range_db
        mapper = make_mapper(cine.geometry, cine.frames.shape[1:], ModelGrid())
        seen = mapper.to_model(cine.frames).astype(np.float64)
        change = np.clip(estimate(seen, span), -span, 0) - seen
        tissue = np.clip(mapper.apply_gain(cine.frames, change), -span, 0)
        return Split(tissue, removed_power_db(cine.frames, tissue, span))

    return dehaze


def removed_power_db(input_db: np.ndarray, output_db: np.ndarray, dynamic_range_db: float) -> np.ndarray:
    """Power that was taken off, in dB, at least ``-dynamic_range_db``: float32, the shape of the frames."""
    removed = db_to_power(input_db) - db_to_power(output_db)
    return np.maximum(power_to_db(np.maximum(removed, 0)), -dynamic_range_db).astype(np.float32)


def non_local_means(frames_db: np.ndarray, dynamic_range_db: float) -> np.ndarray:
    """Non-local means of each frame (Buades et al., 2005), on [0, 1]."""
    from skimage.restoration import denoise_nl_means

    options = {"patch_size": 5, "patch_distance": 6, "sigma": NOISE_STD, "h": 0.8 * NOISE_STD, "fast_mode": True}
    denoised = [denoise_nl_means(1 + frame / dynamic_range_db, **options) for frame in frames_db]
    return dynamic_range_db * (np.stack(denoised) - 1)


def bm3d(frames_db: np.ndarray, dynamic_range_db: float) -> np.ndarray:
    """BM3D of each frame (Dabov et al., 2007), on [0, 1]. The package's licence is non-commercial."""
    try:
        from bm3d import bm3d as denoise
    except ImportError:
        raise UsdehazeError("BM3D is not installed; pip install bm3d (non-commercial licence)") from None
    denoised = [denoise(1 + frame / dynamic_range_db, sigma_psd=NOISE_STD) for frame in frames_db]
    return dynamic_range_db * (np.stack(denoised) - 1)


def median_haze(frames_db: np.ndarray, dynamic_range_db: float) -> np.ndarray:
    """Takes off, in power, a haze that is the same in every beam and frame: the median at each depth.

    That is how ring-down near a probe is taken off. Where most beams at a depth hold tissue, tissue goes with it.
    """
    haze_db = np.median(frames_db, axis=(0, 2), keepdims=True)
    left = db_to_power(frames_db) - db_to_power(haze_db)
    return power_to_db(np.maximum(left, db_to_power(np.array(-dynamic_range_db))))


def svd_filter(frames_db: np.ndarray, dynamic_range_db: float) -> np.ndarray:
    """Clutter filter over time: the first singular component of pixels x frames is static, and taken off.

    On amplitudes, because log-compressed frames have lost their phase: the component holds static tissue as well, which
    is the method's known weakness on slow tissue, and worse without phase.

    Raises:
        UsdehazeError: a single frame.
    """
    if len(frames_db) < 2:
        raise UsdehazeError("the SVD filter needs a cine, found one frame")
    amplitudes = np.sqrt(db_to_power(frames_db)).reshape(len(frames_db), -1)
    left, values, right = np.linalg.svd(amplitudes, full_matrices=False)
    values[:STATIC_COMPONENTS] = 0
    moving = np.abs((left * values) @ right).reshape(frames_db.shape)
    return np.maximum(power_to_db(moving**2), -dynamic_range_db)


def _dehazer(**options: Any) -> Any:
    from usdehaze.dehazing.dehazer import Dehazer

    return Dehazer.from_pretrained(**options)
