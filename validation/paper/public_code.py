"""Where the paper's public code departs from its text, each as an option, to see what it is worth.

It multiplies elementwise by ``J^T 1``, the gradient of the sum of the estimate, in place of the product ``J^T v``; it
takes that and the residual from the predictor's mean in place of Tweedie's estimate; its norm of DPS is over the batch;
its variances are those of data of unit variance, without the blend's factors; and it starts from noise of deviation 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from usdehaze.diffusion.denoiser import Problem

LambdaKappa = tuple[float, float]


@dataclass(frozen=True)
class PublicRule:
    """PiGDM or DPS as the public code has it.

    Args:
        dps: DPS; else PiGDM.
        scale: lambda and kappa.
        from_mean: residual and gradient of the predictor's mean; else of Tweedie's estimate.
        whole_batch: norm of DPS over all frames together; else each frame's own.
    """

    dps: bool = False
    scale: LambdaKappa = (0.93, 0.88)
    from_mean: bool = True
    whole_batch: bool = True

    def __call__(self, problem: Problem, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        assert step is not None and problem.haze is not None
        with torch.enable_grad():
            at = u.detach().requires_grad_()
            x0, n0 = problem.denoise(*problem.parts(at), sigma)
            estimate = problem.join(x0, n0)
            mean = at + step * (estimate - at) if self.from_mean else estimate
            ones = torch.autograd.grad(mean.sum(), at)[0]
        x, n = problem.parts(mean.detach())
        e = problem.y - problem.observation.predict(x, n)
        if self.dps:
            over = e if self.whole_batch else e.flatten(1)
            norm = torch.linalg.vector_norm(over, dim=None if self.whole_batch else 1).clamp(min=1e-12)
            e = e / (norm if self.whole_batch else norm.reshape(-1, *[1] * (e.ndim - 1)))
        else:
            e = e / 2  # r2 S^-1 with S = r2 + q2 and r2 = q2
        a, b = problem.observation.adjoint(x, n, e)
        pull = problem.join(self.scale[0] * a, self.scale[1] * b)
        return estimate.detach() + ones * pull / step
