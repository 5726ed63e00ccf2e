"""LPIPS, the perceptual distance of two frames, on SqueezeNet 1.1 with the published heads of version 0.1."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from usdehaze.errors import InputError

TRUNK_FILE, HEADS_FILE = "squeezenet1_1.npz", "lpips_v0.1_squeeze_heads.npz"
CUTS = (2, 5, 8, 10, 11, 12, 13)  # features are compared after so many layers
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of red, green and blue in [-1, 1]


class Fire(nn.Module):
    """Fire module of Iandola et al. (2016): squeeze by 1 x 1, expand by 1 x 1 and 3 x 3 side by side."""

    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x).relu()
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], dim=1).relu()


def squeezenet_features() -> nn.Sequential:
    """The feature stack of SqueezeNet 1.1, numbered as in torchvision, without weights."""

    def pool() -> nn.MaxPool2d:
        return nn.MaxPool2d(3, stride=2, ceil_mode=True)

    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), pool()),
        *(Fire(64, 16, 64), Fire(128, 16, 64), pool()),
        *(Fire(128, 32, 128), Fire(256, 32, 128), pool()),
        *(Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256)),
    )


class Lpips(nn.Module):
    """Learned perceptual image patch similarity: 0 for equal frames, larger the more they differ to the eye.

    Args:
        folder: holds ``squeezenet1_1.npz`` (torchvision's names) and ``lpips_v0.1_squeeze_heads.npz``.

    Raises:
        InputError: weights that are missing or do not fit.

    Source:
        Zhang, Isola, Efros, Shechtman, Wang, "The unreasonable effectiveness of deep features as a perceptual metric",
        CVPR 2018: features of unit length at each pixel, squared differences, weighed by channel, averaged over pixels
        and added up over layers.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.features = squeezenet_features()
        paths = folder / TRUNK_FILE, folder / HEADS_FILE
        trunk, heads = map(_arrays, paths)
        self.sha256 = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
        try:
            prefix = "features."
            own = {name[len(prefix) :]: value for name, value in trunk.items() if name.startswith(prefix)}
            self.features.load_state_dict(own)
            self.heads = [heads[f"lin{i}.model.1.weight"] for i in range(len(CUTS))]
        except (KeyError, RuntimeError) as error:
            raise InputError(
                folder, f"weights that do not fit ({type(error).__name__})", "LPIPS-squeeze 0.1"
            ) from error
        self.eval().requires_grad_(False)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """``(B,)`` distances of RGB images ``(B, 3, H, W)`` in [-1, 1]."""
        x = (torch.cat([a, b]) - torch.tensor(SHIFT)[:, None, None]) / torch.tensor(SCALE)[:, None, None]
        total, first = torch.zeros(len(a)), 0
        for cut, head in zip(CUTS, self.heads, strict=True):
            x, first = self.features[first:cut](x), cut
            unit = x / (x.square().sum(dim=1, keepdim=True).sqrt() + 1e-10)
            apart = (unit[: len(a)] - unit[len(a) :]).square()
            total = total + (apart * head[0]).sum(dim=1).mean(dim=(1, 2))
        return total

    def distance(self, frame_db: np.ndarray, other_db: np.ndarray, dynamic_range_db: float) -> float:
        """Distance of two frames ``(H, W)`` in dB, seen as grey images: the floor is black, 0 dB is white."""
        grey = torch.from_numpy(np.stack([frame_db, other_db]).astype(np.float32)) * (2 / dynamic_range_db) + 1
        a, b = grey[:, None].expand(-1, 3, -1, -1).split(1)
        with torch.inference_mode():
            return float(self(a, b))


def _arrays(path: Path) -> dict[str, Tensor]:
    """Tensors of a ``.npz`` file, float32, by name."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: torch.from_numpy(stored[name].astype(np.float32)) for name in stored.files}
    except (OSError, ValueError) as error:
        raise InputError(path, f"weights that cannot be read ({type(error).__name__})", "a .npz file") from error
