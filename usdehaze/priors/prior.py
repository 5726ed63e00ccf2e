"""Prior: a denoiser network, what it was trained on, and how it is kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from usdehaze.choices import PriorKind
from usdehaze.errors import InputError
from usdehaze.priors.files import load_card, save_card

PARAMETRISATIONS = ("denoiser", "score")


class Prior(nn.Module):
    """What frames of one kind (tissue or haze) look like, as the denoiser ``D(x, sigma)`` of a diffusion model.

    Two parametrisations make a denoiser of a network. "denoiser" is the preconditioning of Karras et al. (EDM, 2022,
    table 1) about the mean of the data: the network sees and predicts values of unit scale at every noise level.
    "score" is the paper's: the network sees the noisy frame as it is, mapped from [0, 1] to [-1, 1], and the score is
    its output over sigma, ``s = network(2 x - 1) / sigma``. Either gives both views: ``D = x + sigma**2 s``.

    Args:
        network: maps ``(B, C, depth, angle)`` and ``c_noise (B,)`` to ``(B, C, depth, angle)``; C is 1 of scans, 3 of
            colour images.
        card: training card; must hold ``kind``, ``name``, ``data_mean``, ``data_std`` and ``grid`` (depth, angle);
            ``parametrisation`` is "denoiser" where it is left out.

    Raises:
        ValueError: a parametrisation there is not.
    """

    def __init__(self, network: nn.Module, card: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.sha256 = self.weights_sha256 = ""
        self.parametrisation = str(card.get("parametrisation", "denoiser"))
        if self.parametrisation not in PARAMETRISATIONS:
            raise ValueError(f"parametrisation must be one of {PARAMETRISATIONS}, found {self.parametrisation!r}")

    @property
    def name(self) -> str:
        """Name, and hash of card and weights together, as a result file quotes them."""
        return f"{self.card['name']} sha256:{self.sha256}"

    @property
    def channels(self) -> int:
        """C: 1 of scans, 3 of colour images."""
        return int(self.network.config.get("outputs", 1))  # type: ignore[operator, union-attr]

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(C, depth, angle)`` of the frames that it was trained on."""
        depth, angle = self.card["grid"]
        return self.channels, depth, angle

    @property
    def data_mean(self) -> float:
        """Mean of a pixel of the training frames, model units."""
        return float(self.card["data_mean"])

    @property
    def data_variance(self) -> float:
        """Variance of a pixel of the training frames about their mean, in squared model units."""
        return float(self.card["data_std"]) ** 2

    def spread(self, sigma: float) -> float:
        """Variance of the denoised estimate's error, ``sigma^2 v / (sigma^2 + v)`` with the data's own variance ``v``.

        The paper prints ``beta^2 / (beta^2 - 1)``; it is ``+``, and it stands for data of unit variance.
        """
        v = self.data_variance
        return sigma**2 * v / (sigma**2 + v)

    def network_target(self, x0: Tensor, x: Tensor, sigma: Tensor) -> Tensor:
        """What the network has to predict for its denoiser to return ``x0``: EDM, equation 8; minus the noise."""
        skip, out = self._scales(sigma)
        mean = self.data_mean
        return ((x0 - mean) - skip * (x - mean)) / out

    def predict(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The network's own output for noisy frames ``x`` at noise level ``sigma`` ``(B, 1, 1, 1)``."""
        if self.parametrisation == "score":
            seen = 2 * x - 1
        else:
            seen = (sigma**2 + self.data_variance).rsqrt() * (x - self.data_mean)
        predicted: Tensor = self.network(seen, (sigma.log() / 4).flatten())
        return predicted

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Expected clean frames given noisy ones.

        Args:
            x: ``(B, C, depth, angle)`` clean frames in [0, 1] (0 = floor, 1 = 0 dB) plus noise of deviation sigma.
            sigma: noise level, a number or ``(B,)``, in the same units.

        Returns:
            ``(B, C, depth, angle)`` float32.
        """
        level = _levels(sigma, x)
        skip, out = self._scales(level)
        mean = self.data_mean
        return mean + skip * (x - mean) + out * self.predict(x, level).float()

    def score(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Gradient of the log-density of noisy frames, ``(D(x, sigma) - x) / sigma**2``, without its cancellation.

        Arguments and shape as in :meth:`forward`; the unit is one over that of a frame.
        """
        level = _levels(sigma, x)
        prediction = self.predict(x, level).float()
        if self.parametrisation == "score":
            return prediction / level
        _, out = self._scales(level)
        return out / level**2 * prediction - (x - self.data_mean) / (level**2 + self.data_variance)

    def _scales(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of ``x`` (about the mean) and of the network's output in the denoiser."""
        if self.parametrisation == "score":
            return torch.ones_like(sigma), sigma
        total = sigma**2 + self.data_variance
        return self.data_variance / total, sigma * self.card["data_std"] * total.rsqrt()

    def save(self, path: Path) -> None:
        """Writes ``path`` (safetensors) and the card beside it (``path`` with suffix ``.json``).

        Raises:
            InputError: they cannot be written.
        """
        self.weights_sha256, self.sha256 = save_card(path, self.network, self.card)

    @staticmethod
    def load(which: str | Path, kind: PriorKind) -> Prior:
        """Reads a prior.

        Args:
            which: path of a ``.safetensors`` file, or the name of a shipped prior.
            kind: "tissue" or "haze"; a prior of the other kind is refused.

        Raises:
            InputError: no such file, a card that is missing or of another kind, weights that do not fit their hash.
        """
        network, card, hashes = load_card(which, kind)
        try:
            prior = Prior(network, card)
        except ValueError as error:
            raise InputError(Path(which).name, f"not a usable prior ({type(error).__name__})") from None
        prior.weights_sha256, prior.sha256 = hashes
        return prior.eval().requires_grad_(False)


def _levels(sigma: float | Tensor, x: Tensor) -> Tensor:
    """``(B, 1, 1, 1)``."""
    return torch.as_tensor(sigma, dtype=torch.float32, device=x.device).expand(len(x)).reshape(-1, 1, 1, 1)
