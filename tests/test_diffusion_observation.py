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


@pytest.mark.parametrize(
    ("y", "r", "q"),
    [(y, 0.25, 0.2) for y in (0.1, 0.45, 0.6, 0.95)]
    + [(y, r, q) for y in (0.45, 0.6) for r, q in ((0.05, 0.15), (0.02, 0.02))],
)
def test_log_power_explains_by_the_stronger_echo(y, r, q):
    # Against brute force: the posterior of x ~ N(0.5, r^2), n ~ N(0.42, q^2) given y = max(x, n) + noise, on a grid.
    model = LogPower(60.0, std_db=1.5, interference=0.0)
    x, n, seen = (torch.tensor([v], dtype=torch.float64) for v in (0.5, 0.42, y))
    got = torch.cat(model.explain(seen, x, r**2, n, q**2))
    grid = torch.linspace(-1.2, 2.2, 3401, dtype=torch.float64)
    gx, gn = grid[:, None], grid[None, :]
    noise = 1.5 / 60
    log = -0.5 * ((gx - 0.5) / r) ** 2 - 0.5 * ((gn - 0.42) / q) ** 2 - 0.5 * ((y - torch.maximum(gx, gn)) / noise) ** 2
    weight = torch.softmax(log.flatten(), 0).reshape(log.shape)
    expected = torch.stack([(weight * gx).sum(), (weight * gn).sum()])
    assert (got - expected).abs().max() < 0.12 * min(r, q) + 0.004


def test_log_power_leaves_both_alone_where_they_already_explain_the_frame():
    model = LogPower(60.0)
    x, n = torch.tensor([0.7]), torch.tensor([0.2])
    ax, an = model.explain(model.predict(x, n), x, 0.01, n, 0.01)
    assert float((ax - x).abs()) < 1e-3 and float((an - n).abs()) < 1e-3


def test_log_power_stays_finite_far_from_the_frame():
    model = LogPower(60.0)
    x, n = torch.tensor([3.0, -2.0, 0.5]), torch.tensor([-4.0, 3.0, 0.5])
    for spread in (1e-6, 0.05):
        ax, an = model.explain(torch.tensor([0.0, 1.0, 0.0]), x, spread, n, spread)
        assert bool(torch.isfinite(torch.stack([ax, an])).all())


def test_additive_explains_like_a_kalman_update():
    y, x, n = torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([0.2])
    ax, an = Additive(0.1).explain(y, x, 0.04, n, 0.05)
    assert float(ax) == pytest.approx(0.5 + 0.04 * 0.3 / 0.10, abs=1e-6)
    assert float(an) == pytest.approx(0.2 + 0.05 * 0.3 / 0.10, abs=1e-6)
