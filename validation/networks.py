"""Networks of explicit priors compared for the arithmetic they get: ``python -m validation.networks --kind tissue``.

Every variant is trained on the same simulated frames with the same number of multiplications (the shipped shape takes
--steps of 16 frames), then asked what a pass costs and what it learned: the denoising loss on frames not seen before,
at noise levels that a rule's preset ``fast`` goes through. Shapes start from nothing, so that a small budget says who
learns faster, not who ends lower; what leaves the shape alone goes on from the shipped weights, and is to be held
against the shipped prior trained on just like that. What follows: ``validation/priors.md``.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from usdehaze.choices import PRIOR_KINDS, PriorKind
from usdehaze.dehazing.settings import PRIORS
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.simulate import training_frames
from usdehaze.training.data import HELD_OUT_SEED, SAMPLE_SEED, noise_generator
from usdehaze.training.objective import draw_sigmas
from validation.markdown import head, row
from validation.paths import RESULTS, RUNS
from validation.records import Records, code_hash

GRID = (128, 128)
LEVELS = (0.05, 0.1, 0.2, 0.4)  # noise levels that are asked for; fast goes from 0.5 to 0.04
POOL, HELD_OUT, BATCH = 1024, 64, 16
LR, LR_GOING_ON = 1e-3, 3e-4
AVERAGES = (0.98, 0.995)  # of the weights, by step; the better one counts
TIMED_CHAINS = 3  # frames of a timed pass

Draw = Callable[[torch.Generator], Tensor]  # noise levels of a batch


def as_shipped(generator: torch.Generator) -> Tensor:
    return draw_sigmas("denoiser", BATCH, generator)


def where_used(generator: torch.Generator) -> Tensor:
    """Only levels that ``fast`` goes through, evenly on the logarithm."""
    low, high = math.log(0.03), math.log(0.7)
    return (low + (high - low) * torch.rand(BATCH, 1, 1, 1, generator=generator)).exp()


@dataclass(frozen=True)
class Variant:
    """A network and how it is trained, where that differs from the shipped priors'."""

    config: dict[str, Any] = field(default_factory=dict)
    change: Callable[[FastUNet], nn.Module] = lambda net: net
    draw: Draw = as_shipped
    goes_on: bool = False  # from the shipped weights
    both: bool = False  # one network takes noisy tissue and noisy haze, and denoises both

    def make(self, shipped: Prior | None = None) -> nn.Module:
        """The network, with the shipped weights where it goes on from them."""
        net = FastUNet(**self.config)
        if self.goes_on and shipped is not None:
            net.load_state_dict(shipped.network.state_dict())
        return self.change(net)


class Attention(nn.Module):
    """Self-attention over all pixels of the coarsest level, after its block."""

    def __init__(self, block: nn.Module, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.block, self.norm = block, nn.GroupNorm(8, channels)
        self.attend = nn.MultiheadAttention(channels, heads, batch_first=True)
        nn.init.zeros_(self.attend.out_proj.weight)

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        h = self.block(h, embedding)
        row = self.norm(h).flatten(2).transpose(1, 2)
        return h + self.attend(row, row, row, need_weights=False)[0].transpose(1, 2).reshape(h.shape)


def with_attention(net: FastUNet) -> nn.Module:
    level: Any = net.down[-1]
    level[-1] = Attention(level[-1], net.config["channels"][-1])
    return net


def edges_repeated(net: FastUNet) -> nn.Module:
    """Convolutions see a frame that goes on beyond its edges, not black."""
    for conv in (m for m in net.modules() if isinstance(m, nn.Conv2d) and m.padding == (1, 1)):
        conv.padding_mode = "replicate"
    return net


class OneTrunk(nn.Module):
    """A frame of tissue and one of haze in, both denoised out."""

    def __init__(self, net: FastUNet) -> None:
        super().__init__()
        self.net, width, cells = net, net.config["channels"][0], net.patch**2
        net.stem = nn.Conv2d(4 * cells, width, 3, padding=1)
        net.head[-1] = nn.Conv2d(width, 2 * cells, 3, padding=1)

    def forward(self, x: Tensor, c_noise: Tensor) -> Tensor:
        return self.net(x, c_noise)


VARIANTS = {
    "as shipped: 24, 48, 96, 192": Variant(),
    "narrow: 16, 32, 64, 128": Variant({"channels": (16, 32, 64, 128)}),
    "wide: 32, 64, 128, 256": Variant({"channels": (32, 64, 128, 256)}),
    "three levels: 24, 48, 96": Variant({"channels": (24, 48, 96)}),
    "two blocks a level": Variant({"blocks": 2}),
    "patches of 4: 48, 96, 192": Variant({"channels": (48, 96, 192), "patch": 4}),
    "one trunk for both priors": Variant(change=OneTrunk, both=True),
    "shipped weights, trained on": Variant(goes_on=True),
    "the same, attention at the coarsest level": Variant(change=with_attention, goes_on=True),
    "the same, edges repeated": Variant(change=edges_repeated, goes_on=True),
    "the same, noise levels 0.03 to 0.7 only": Variant(draw=where_used, goes_on=True),
}


def main() -> None:
    """Trains what is missing, then writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", nargs="+", choices=PRIOR_KINDS, default=PRIOR_KINDS)
    parser.add_argument("--steps", type=int, default=120, help="of the shipped shape; others as many as cost the same")
    parser.add_argument("--variants", nargs="+", type=int, default=range(len(VARIANTS)), help="their numbers; all")
    parser.add_argument("--work", type=Path, default=RUNS / "networks", help="where results are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "NETWORKS.md", help="the tables")
    args = parser.parse_args()
    torch.set_num_threads(1)
    records = Records(args.work, "validation.networks")
    lines = ["# Networks", "", "    " + " ".join(["python -m validation.networks", *sys.argv[1:]]), ""]
    for kind in args.kind:
        rows = {"shipped prior": shipped(kind, args.work)}
        for number in args.variants:
            name = list(VARIANTS)[number]
            by = {
                "budget": args.steps,
                "priors": [Prior.load(prior, k).name for k, prior in zip(PRIOR_KINDS, PRIORS, strict=True)],
            }
            record = records.kept(kind, name, by, partial(measure, VARIANTS[name], kind, args.steps, args.work))
            rows[name] = record | cost_of(VARIANTS[name])
        lines += table(kind, args.steps, rows)
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def frames_of(kind: str, work: Path) -> tuple[Tensor, Tensor]:
    """Frames to train on and frames that are held out, ``(N, 1, depth, angle)``, simulated once."""
    path = work / f"{kind}-{code_hash('validation.networks')}.pt"
    if not path.exists():
        pools = ((POOL, SAMPLE_SEED), (HELD_OUT, HELD_OUT_SEED))
        torch.save([training_frames(kind, n, torch.Generator().manual_seed(s), *GRID) for n, s in pools], path)
    train, held_out = torch.load(path, weights_only=True)
    return train, held_out


def measure(variant: Variant, kind: PriorKind, budget: int, work: Path) -> dict[str, Any]:
    """Trains a variant for what ``budget`` steps of the shipped shape cost, and measures it."""
    torch.manual_seed(0)
    kinds: tuple[PriorKind, ...] = (kind, "haze" if kind == "tissue" else "tissue") if variant.both else (kind,)
    pools = [frames_of(k, work) for k in kinds]
    priors = [Prior.load(PRIORS[k == "haze"], k) for k in kinds]  # their cards hold the scale of the data
    net = variant.make(priors[0])
    steps = round(budget * multiplications(Variant().make(), 1) / multiplications(net, len(kinds)))
    lr = LR_GOING_ON if variant.goes_on else LR
    optimiser = torch.optim.Adam(net.parameters(), lr, (0.9, 0.99))
    averages = {keep: {k: v.clone() for k, v in net.state_dict().items()} for keep in AVERAGES}
    for step in range(steps):
        generator = noise_generator(0, 0, step, torch.device("cpu"))
        sigma = variant.draw(generator)
        seen, wanted = [], []
        for (train, _), prior in zip(pools, priors, strict=True):
            x0 = train[torch.randint(len(train), (BATCH,), generator=generator)]
            x0 = torch.where(torch.rand(BATCH, 1, 1, 1, generator=generator) < 0.5, x0.flip(-1), x0)
            x = x0 + sigma * torch.randn(x0.shape, generator=generator)
            seen.append(scaled(prior, x, sigma))
            wanted.append(prior.network_target(x0, x, sigma))
        loss = (net(torch.cat(seen, 1), (sigma.log() / 4).flatten()) - torch.cat(wanted, 1)).square().mean()
        optimiser.param_groups[0]["lr"] = lr * min(1, (step + 1) / 30, (1 - step / steps) / 0.3)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            for keep, average in averages.items():
                for name, value in net.state_dict().items():
                    average[name].lerp_(value, 1 - min(keep, (2 + step) / (11 + step)))
    losses = {}
    for keep, average in averages.items():
        net.load_state_dict(average)
        losses[f"{keep:g}"] = loss_of(net, priors, [held_out for _, held_out in pools])
    best = min(losses, key=lambda keep: sum(losses[keep]))
    return {"steps": steps, "loss": losses[best], "average": best, "all": losses}


def scaled(prior: Prior, x: Tensor, sigma: Tensor) -> Tensor:
    """Noisy frames as the network sees them, see `Prior.predict`."""
    return (sigma**2 + prior.data_variance).rsqrt() * (x - prior.data_mean)


@torch.inference_mode()
def loss_of(net: nn.Module, priors: Sequence[Prior], held_out: Sequence[Tensor]) -> list[float]:
    """Denoising error of the first kind over ``sigma^2`` at each of `LEVELS`."""
    losses = []
    for sigma in LEVELS:
        generator, level, errors = torch.Generator().manual_seed(7), torch.full((8, 1, 1, 1), sigma), []
        for frames in zip(*(f.split(8) for f in held_out), strict=True):
            noisy = [x + sigma * torch.randn(x.shape, generator=generator) for x in frames]
            seen = torch.cat([scaled(p, x, level) for p, x in zip(priors, noisy, strict=True)], 1)
            got = net(seen, (level.log() / 4).flatten())[:, :1]
            _, out = priors[0]._scales(level)
            errors.append((out * (got - priors[0].network_target(frames[0], noisy[0], level))).square().mean())
        losses.append(float(torch.stack(errors).mean()) / sigma**2)
    return losses


def cost_of(variant: Variant) -> dict[str, Any]:
    """Milliseconds a pass, now, and parameters: a record may be of another day."""
    net = variant.make()
    return {"ms": milliseconds(net, 1 + variant.both), "parameters": sum(p.numel() for p in net.parameters())}


@torch.inference_mode()
def multiplications(net: nn.Module, channels: int) -> int:
    """Of a pass, half the operations that torch counts."""
    with FlopCounterMode(display=False) as counter:
        net(torch.rand(1, channels, *GRID), torch.zeros(1))
    return int(counter.get_total_flops()) // 2


@torch.inference_mode()
def milliseconds(net: nn.Module, channels: int) -> float:
    """Of a pass, per frame, on one core; the fastest of several."""
    net = net.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, level = torch.rand(TIMED_CHAINS, channels, *GRID), torch.zeros(TIMED_CHAINS)
    taken = []
    for _ in range(40):
        began = time.perf_counter()
        net(x, level)
        taken.append(time.perf_counter() - began)
    return min(taken) / TIMED_CHAINS * 1e3


def shipped(kind: PriorKind, work: Path) -> dict[str, Any]:
    """The shipped prior, by the same measure."""
    prior = Prior.load(PRIORS[kind == "haze"], kind)
    return cost_of(Variant()) | {"steps": 0, "loss": loss_of(prior.network, [prior], [frames_of(kind, work)[1]])}


def table(kind: str, steps: int, rows: dict[str, dict[str, Any]]) -> list[str]:
    """One row a network."""
    heads = ["parameters", "ms a pass", "steps", *(f"sigma {s:g}" for s in LEVELS)]
    lines = [f"## {kind.capitalize()}, what {steps} steps of the shipped shape cost: denoising loss over sigma^2", ""]
    lines += head("", heads)
    for name, of in rows.items():
        cells = [f"{of['parameters']:,}", f"{of['ms']:.1f}", f"{of['steps'] or ''}"]
        lines.append(row(name, [*cells, *(f"{loss:.4f}" for loss in of["loss"])]))
    return [*lines, ""]


if __name__ == "__main__":
    main()
