"""How far a prior's estimates are off, from how far they were off on frames it was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from usdehaze.priors.prior import Prior


@dataclass(frozen=True)
class Doubted:
    """A prior that says of its own estimates' errors what its card says was measured, times a factor.

    `Prior.spread` knows nothing but the variance of the data, and takes an estimate for several times less certain
    than it is: what tells tissue from haze is then lost. The factor stands for what sets real frames apart from
    held-out ones.

    Attributes:
        prior: whose card has ``held_out``, mean squared errors over ``sigma^2`` by ``sigma``; without it, spreads are
            the prior's own.
        factor: by which variances are larger than measured, positive.
    """

    prior: Prior
    factor: float

    @property
    def data_mean(self) -> float:
        """See `Prior.data_mean`."""
        return self.prior.data_mean

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        """See `Prior.forward`."""
        return self.prior(x, sigma)

    def spread(self, sigma: float) -> float:
        """Variance of the estimate's error at noise level sigma, at most that of `Prior.spread`.

        Between measured noise levels the logarithm of the error is taken as linear in that of the level; below the
        lowest the error over ``sigma^2`` stays, above the highest the prior's own spread holds.
        """
        own = self.prior.spread(sigma)
        levels, errors = self._measured
        if not len(levels) or math.log(sigma) > levels[-1]:
            return own
        return min(own, self.factor * sigma**2 * math.exp(np.interp(math.log(sigma), levels, errors)))

    @cached_property
    def _measured(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of noise levels, rising, and of the errors over ``sigma^2`` there."""
        held_out = sorted((float(sigma), float(error)) for sigma, error in self.prior.card.get("held_out", {}).items())
        return np.log([sigma for sigma, _ in held_out]), np.log([error for _, error in held_out])
