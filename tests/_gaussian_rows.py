"""Rows of 8 equal pixels to train on, each Gaussian, so that the best answer is known in closed form."""

import torch

from usdehaze.training import data


class GaussianRows:
    """A source of such frames; a subclass says how they are drawn, in `_frames(n, generator)`."""

    description, fingerprint, simulated = "Gaussian rows", "gaussian", True

    @property
    def held_out(self):
        return self._frames(64, torch.Generator().manual_seed(1))

    @property
    def sample(self):
        return self._frames(256, torch.Generator().manual_seed(2))

    def draw(self, batch, seed, stream, step, device):
        return self._frames(batch, data.generator_for(seed, stream, 0, step, device))
