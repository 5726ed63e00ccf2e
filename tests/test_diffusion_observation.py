import math
import re
from pathlib import Path

import pytest
import torch
from _gaussians import STD, covariance, matrix

from usdehaze.diffusion.echo import Companded, LinearisedLogPower, LinearPower, LogPower
from usdehaze.diffusion.observation import (
    Additive,
    Blend,
    GaussianNoise,
    LinearOperator,
    Observation,
    conjugate_gradients,
)
from usdehaze.errors import UsdehazeError


def frames(seed: int, n: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, generator=g, dtype=torch.float64), torch.rand(n, generator=g, dtype=torch.float64)


POINTWISE = [Additive(), Blend(0.3), LogPower(60.0), LogPower(45.0), LinearPower(), Companded()]


@pytest.mark.parametrize("model", POINTWISE, ids=lambda m: type(m).__name__)
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


@pytest.mark.parametrize(
    "model",
    [LinearPower(std=0.0, interference=1.0), Companded(std=0.0, interference=1.0)],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("weaker", [0.03, 0.1, 0.25])
def test_echo_power_adds_powers_and_spreads_them_by_the_random_phase(model, weaker):
    # Two echoes of envelopes 0.5 and 0.5 * weaker; their summed power over all phases, brought through the curve.
    phase = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000 * 2 * math.pi
    envelope = 0.5 * torch.hypot(1 + weaker * phase.cos(), weaker * phase.sin())
    x, n = (model.compress(torch.tensor(0.5 * e, dtype=torch.float64)) for e in (1.0, weaker))
    assert float(model.expand(model.predict(x, n))) == pytest.approx(float(envelope.square().mean().sqrt()), rel=1e-9)
    assert float(model.variance(x, n)) == pytest.approx(float(model.compress(envelope).var()), rel=0.15)


def test_companding_is_the_mu_law():
    model, e = Companded(255.0), torch.tensor([0.0, 1 / 255, 1.0], dtype=torch.float64)
    torch.testing.assert_close(model.compress(e), torch.tensor([0.0, math.log(2) / math.log(256), 1.0]).double())
    torch.testing.assert_close(model.expand(model.compress(e)), e)
    torch.testing.assert_close(model.slope(e)[1], torch.tensor(255 / math.log(256) / 2).double())


@pytest.mark.parametrize(
    ("model", "h"),
    [(Additive(STD), (1.0, 1.0)), (Blend(0.3, STD), (0.7, 0.3)), (GaussianNoise(STD), (1.0, 0.0))],
    ids=["additive", "blend", "gaussian noise"],
)
@pytest.mark.parametrize("full", [False, True], ids=["one variance", "full covariance"])
def test_linear_models_explain_by_the_gaussian_posterior(model, h, full):
    d, g = 4, torch.Generator().manual_seed(0)
    y, x, n = torch.rand(3, 1, d, generator=g, dtype=torch.float64)
    r, q = (covariance(d, 3), covariance(d, 4)) if full else (0.3 * torch.eye(d).double(), 0.2 * torch.eye(d).double())
    got = torch.cat(model.explain(y, x, r if full else 0.3, n, q if full else 0.2), 1)
    joint = torch.cat([h[0] * torch.eye(d), h[1] * torch.eye(d)], 1).double()
    prior = torch.block_diag(r, q)
    gain = prior @ joint.T @ torch.linalg.inv(joint @ prior @ joint.T + STD**2 * torch.eye(d))
    both = torch.cat([x, n], 1)
    torch.testing.assert_close(got, both + (y - both @ joint.T) @ gain.T)


def operators() -> dict[str, LinearOperator]:
    a = matrix()
    return {
        "matrix": LinearOperator(a, std=STD),
        "functions": LinearOperator(lambda x: x @ a.T, lambda v: v @ a, std=STD, tolerance=1e-12),
    }


@pytest.mark.parametrize("kind", ["matrix", "functions"])
def test_linear_operators_solve_for_the_frames_own_covariance(kind):
    model, a = operators()[kind], matrix()
    g = torch.Generator().manual_seed(1)
    x, n, y = (torch.rand(6, k, generator=g, dtype=torch.float64) for k in (5, 3, 3))
    for r2, q2 in ((0.3, 0.2), (1e-4, 0.0)):  # the second reuses what was found for the first
        s = r2 * a @ a.T + (q2 + STD**2) * torch.eye(3).double()
        e = torch.linalg.solve(s, (y - x @ a.T - n).T).T
        got = model.pull(y, x, r2, n, q2)
        torch.testing.assert_close(got[0], e @ a, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(got[1], e, rtol=1e-9, atol=1e-9)


def test_a_linear_operator_keeps_the_shape_of_frames():
    kernel = torch.tensor([0.25, 0.5, 0.25]).double().reshape(1, 1, 1, 3)
    blur = lambda f: torch.nn.functional.conv2d(f, kernel, padding=(0, 1))  # noqa: E731  (its own adjoint)
    model = LinearOperator(blur, blur, std=0.1)
    x, n, y = torch.rand(3, 2, 1, 4, 6, generator=torch.Generator().manual_seed(2)).double()
    px, pn = model.pull(y, x, 0.2, n, 0.1)
    torch.testing.assert_close(0.2 * blur(blur(pn)) + 0.11 * pn, y - blur(x) - n, rtol=0, atol=1e-5)
    torch.testing.assert_close(px, blur(pn))


def test_conjugate_gradients_solve_each_frame_as_if_it_were_alone():
    s = covariance(8, 6) + 0.01 * torch.eye(8)
    b = (
        torch.rand(5, 8, generator=torch.Generator().manual_seed(3)).double()
        * torch.tensor([1, 1e-6, 1e3, 0, 1])[:, None]
    )
    whole = conjugate_gradients(lambda v: v @ s, b, 1e-10)
    torch.testing.assert_close(whole, torch.linalg.solve(s, b.T).T, rtol=1e-6, atol=1e-12)
    for i in range(5):
        torch.testing.assert_close(
            conjugate_gradients(lambda v: v @ s, b[i : i + 1], 1e-10), whole[i : i + 1], rtol=1e-12, atol=0
        )
    with pytest.raises(UsdehazeError, match="did not settle in 2 iterations"):
        conjugate_gradients(lambda v: v @ s, b, 1e-10, most=2)


def test_an_operator_without_its_adjoint_is_refused():
    with pytest.raises(UsdehazeError, match="needs a function for its adjoint"):
        LinearOperator(lambda x: x)


def test_models_that_are_not_linear_refuse_full_covariances():
    x = torch.rand(1, 4).double()
    for model in (LogPower(60.0), LinearPower(), LinearisedLogPower(60.0)):
        with pytest.raises(UsdehazeError, match="full covariance"):
            model.explain(x, x, covariance(4, 1), x, 0.1)


def test_the_model_that_the_method_page_writes_works():
    page = Path(__file__).parents[1] / "docs" / "method.md"
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if "(Observation)" in c]
    names: dict = {}
    exec(code, names)
    (model,) = [
        v for v in names.values() if isinstance(v, type) and issubclass(v, Observation) and v is not Observation
    ]
    x, n = (t.requires_grad_() for t in frames(4))
    gx, gn = torch.autograd.grad(model().predict(x, n).sum(), (x, n))
    torch.testing.assert_close(model().derivatives(x, n), (gx, gn), rtol=0, atol=1e-12)
    px, pn = model().pull(torch.rand(200).double(), x.detach(), 0.1, n.detach(), 0.1)
    assert bool(torch.isfinite(px + pn).all()) and code.count("\n") <= 22
