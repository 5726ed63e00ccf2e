"""The learned joint posterior: one network that knows tissue, haze, and how the two make a frame."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from usdehaze.priors.files import load_card, save_card

# Quantiles of the gain that the network tells, and the share of the distribution that each stands for.
LEVELS = (0.025, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.975)
_BORDERS = (0.0, *((a + b) / 2 for a, b in pairwise(LEVELS)), 1.0)
WEIGHTS = tuple(b - a for a, b in pairwise(_BORDERS))
# Of the dynamic range: that of the simulator's median frame, -12 dB of 60; and a bound, so that noise makes no image.
EXPOSURE, HIGHEST_LIFT = 0.8, 0.25
INPUTS, OUTPUTS = 3, 2 + len(LEVELS)


class LearnedPosterior(nn.Module):
    """Expected tissue and haze given both under noise and the frame they make: ``D(x_t, n_t, sigma, y)``.

    Trained on pairs that are put together from unpaired tissue and haze, it is the denoiser of the joint posterior
    itself: `E[x, n | x_t, n_t, y]`. The preconditioning is that of Karras et al. (EDM, 2022, table 1) about the frame,
    ``D_x = y + c_skip (x_t - y) + c_out F_x``, and likewise for haze, each with the deviation of its own data from the
    frame: what the network predicts has unit variance at every noise level.

    Beside the means it tells quantiles of the gain ``min(0, x - y)`` of every pixel, learned by pinball loss; one of
    colour images (C = 3 in place of 1 below) tells means alone.

    Args:
        network: maps ``(B, 3 C, depth, angle)`` and ``c_noise (B,)`` to ``(B, 11, depth, angle)``; in colour to
            ``(B, 2 C, depth, angle)``.
        card: training card; must hold ``name``, ``frame_mean`` and ``frame_std`` of a pixel of the frames,
            ``tissue_std`` and ``haze_std`` of ``x - y`` and ``n - y``, ``sigma_max`` and ``grid`` (depth, angle);
            ``channels``, C, is 1 where it is left out, and ``exposure`` 0, see `lift_of`.
    """

    def __init__(self, network: nn.Module, card: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.sha256 = self.weights_sha256 = ""
        self.channels = int(card.get("channels", 1))
        self.exposure = float(card.get("exposure", 0.0))

    @property
    def name(self) -> str:
        """Name, and hash of card and weights together, as a result file quotes them."""
        return f"{self.card['name']} sha256:{self.sha256}"

    @property
    def spreads(self) -> tuple[float, float]:
        """Deviation of tissue and of haze from the frame, model units."""
        return float(self.card["tissue_std"]), float(self.card["haze_std"])

    def predict(self, u: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
        """The network's own output: means ``(B, 2 C, depth, angle)`` in units of :meth:`target`, then quantiles.

        Args:
            u: ``(B, 2 C, depth, angle)`` tissue and haze under noise.
            sigma: ``(B, 1, 1, 1)``.
            y: ``(B, C, depth, angle)`` frames in [0, 1].
        """
        scales = (sigma**2 + self._spread(u) ** 2).rsqrt()
        frame = (y - self.card["frame_mean"]) / self.card["frame_std"]
        seen = torch.cat([scales * (u - self._twice(y)), frame], dim=1)
        predicted: Tensor = self.network(seen, (sigma.log() / 4).flatten())
        return predicted

    def target(self, clean: Tensor, u: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
        """What the network has to predict for its denoiser to return ``clean`` ``(B, 2 C, ...)`` (EDM, equation 8)."""
        skip, out = self._scales(u, sigma)
        y = self._twice(y)
        return ((clean - y) - skip * (u - y)) / out

    def forward(self, u: Tensor, sigma: float | Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Expected clean tissue and haze, and quantiles of the gain.

        Args:
            u: ``(B, 2 C, depth, angle)`` tissue and haze in [0, 1] (0 = floor, 1 = 0 dB) plus noise of deviation sigma.
            sigma: noise level, a number or ``(B,)``, in the same units.
            y: ``(B, C, depth, angle)`` frames in [0, 1].

        Returns:
            ``(B, 2 C, depth, angle)``, and rising quantiles ``(B, 9, depth, angle)`` of the gain in [-1, 0] at
            `LEVELS`, in colour none of them, both float32.
        """
        level = torch.as_tensor(sigma, dtype=torch.float32, device=u.device).expand(len(u)).reshape(-1, 1, 1, 1)
        clean, gains = self.denoise(u, level, y)
        return clean, gains.sort(dim=1).values.clamp(-1, 0)

    def denoise(self, u: Tensor, sigma: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`forward` for ``sigma`` ``(B, 1, 1, 1)``, the quantiles as the network tells them: in any order."""
        skip, out = self._scales(u, sigma)
        told = self.predict(u, sigma, y).float()
        means, quantiles = told[:, : 2 * self.channels], told[:, 2 * self.channels :]
        y = self._twice(y)
        return y + skip * (u - y) + out * means, self.spreads[0] * quantiles

    def _twice(self, y: Tensor) -> Tensor:
        """A frame for tissue and for haze."""
        return y if self.channels == 1 else torch.cat([y, y], dim=1)

    def _spread(self, u: Tensor) -> Tensor:
        return u.new_tensor(self.spreads).repeat_interleave(self.channels).reshape(1, -1, 1, 1)

    def _scales(self, u: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        spread = self._spread(u)
        total = sigma**2 + spread**2
        return spread**2 / total, sigma * spread * total.rsqrt()

    def save(self, path: Path) -> None:
        """Writes ``path`` (safetensors) and the card beside it.

        Raises:
            InputError: they cannot be written.
        """
        self.weights_sha256, self.sha256 = save_card(path, self.network, self.card | {"kind": "posterior"})

    @staticmethod
    def load(which: str | Path) -> LearnedPosterior:
        """Reads a posterior.

        Args:
            which: path of a ``.safetensors`` file, or the name of a shipped one.

        Raises:
            InputError: no such file, a card that is missing or of a prior, weights that do not fit their hash.
        """
        network, card, hashes = load_card(which, "posterior")
        posterior = LearnedPosterior(network, card)
        posterior.weights_sha256, posterior.sha256 = hashes
        return posterior.eval().requires_grad_(False)


def lift_of(y: Tensor, exposure: float = EXPOSURE) -> Tensor:
    """How much frames are `raised` for a posterior that knows them exposed for reading: ``(B, 1, 1, 1)``.

    Args:
        y: ``(B, 1, depth, angle)`` in [0, 1].
        exposure: where the brightest fiftieth of a frame begins at least; a darker one is brought up to it.
    """
    rows = y.flatten(1)
    bright = rows.topk(max(1, rows.shape[1] // 50)).values[:, -1]
    return (exposure - bright).clamp(0, HIGHEST_LIFT).reshape(-1, 1, 1, 1)


def raised(frames: Tensor, lift: Tensor) -> Tensor:
    """Frames in [0, 1] with more gain; what lies on the floor stays there, as nothing is known of it."""
    return torch.where(frames > 0, (frames + lift).clamp(max=1), frames)


def pinball(told: Tensor, gain: Tensor) -> Tensor:
    """Mean pinball loss of quantiles ``(B, 9, depth, angle)`` at `LEVELS` for the gain ``(B, 1, depth, angle)``."""
    off = gain - told
    levels = torch.tensor(LEVELS, device=told.device).reshape(1, -1, 1, 1)
    return torch.maximum(levels * off, (levels - 1) * off).mean()
