import math

import pytest
import torch

from usdehaze.diffusion.observation import Additive, LogPower


def frames(seed: int, n: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, generator=g, dtype=torch.float64), torch.rand(n, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("model", [Additive(), LogPower(60.0), LogPower(45.0)])
def test_derivatives_are_those_of_predict(model):
    x, n = (t.requires_grad_() for t in frames(0))
    gx, gn = torch.autograd.grad(model.predict(x, n).sum(), (x, n))
    hx, hn = model.derivatives(x, n)
    torch.testing.assert_close(hx, gx, rtol=0, atol=1e-12)
    torch.testing.assert_close(hn, gn, rtol=0, atol=1e-12)


def test_log_power_adds_powers():
    # -20 dB and -20 dB make -16.99 dB; -10 dB and -40 dB make -9.9957 dB (dynamic range 60 dB).
    model, unit = LogPower(60.0), lambda db: torch.tensor(1 + db / 60, dtype=torch.float64)
    assert float(model.predict(unit(-20.0), unit(-20.0))) == pytest.approx(
        1 + (-20 + 10 * math.log10(2)) / 60, abs=1e-12
    )
    assert float(model.predict(unit(-10.0), unit(-40.0))) == pytest.approx(
        1 + 10 * math.log10(0.1 + 1e-4) / 60, abs=1e-12
    )


@pytest.mark.parametrize("ratio_db", [0.0, 1.0, 3.0, 10.0, 20.0])
def test_log_power_variance_is_that_of_two_echoes_with_random_phase(ratio_db):
    phase = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000 * 2 * math.pi
    weaker = 10 ** (-ratio_db / 20)
    db = 20 * torch.log10(torch.hypot(1 + weaker * phase.cos(), weaker * phase.sin()))
    model = LogPower(60.0, std_db=0.0, interference=1.0)
    x = torch.tensor(0.7, dtype=torch.float64)
    got = float(model.variance(x, x - ratio_db / 60)) * 60**2
    assert got == pytest.approx(float(db.var()), rel=0.06)
