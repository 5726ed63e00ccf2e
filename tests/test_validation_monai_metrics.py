"""gCNR and CNR as MONAI metrics: the figures of the plain functions, accumulated as MONAI accumulates."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from usdehaze.validation import metrics
from usdehaze.validation.monai_metrics import CNRMetric, GCNRMetric


def batch(seed: int, n: int = 2, frames: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames in dB, ``(n, frames, 24, 30)``, and their labels on one channel."""
    rng = np.random.default_rng(seed)
    labels = np.zeros((n, 1, 24, 30), dtype=np.uint8)
    labels[..., 2:14, 2:12], labels[..., 4:22, 15:28] = 255, 128
    images = rng.normal(-40, 6, (n, frames, 24, 30)) + np.where(labels == 255, 8, 0)
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels)


def expected(measure, images: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    pairs = zip(images.numpy(), labels.numpy(), strict=True)
    values = [[measure(f[s[0] == 255], f[s[0] == 128]) for f in i] for i, s in pairs]
    return np.array(values)


def test_frames_of_a_network_that_is_trained_are_measured_as_they_are() -> None:
    images, labels = batch(0)
    values = expected(metrics.cnr, images, labels)
    assert CNRMetric()(y_pred=images.requires_grad_(), y=labels).numpy() == pytest.approx(values, abs=1e-6)
    halves = images.detach().bfloat16()
    values = expected(metrics.cnr, halves.float(), labels)
    assert CNRMetric()(y_pred=halves, y=labels).numpy() == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize(
    "metric, measure",
    [
        (GCNRMetric(), metrics.gcnr),
        (GCNRMetric(bins=256), lambda a, b: metrics.gcnr(a, b, 256)),
        (CNRMetric(), metrics.cnr),
    ],
)
def test_batches_give_the_plain_figures_a_frame_and_their_mean(metric, measure) -> None:
    first, second = batch(0), batch(1, n=1)
    values = metric(y_pred=first[0], y=first[1])
    assert values.shape == (2, 3)
    assert values.numpy() == pytest.approx(expected(measure, *first), abs=1e-6)
    metric(y_pred=list(second[0]), y=list(second[1]))  # MONAI also passes lists of channel-first samples
    every = np.concatenate([expected(measure, *first), expected(measure, *second)])
    assert metric.aggregate().item() == pytest.approx(every.mean(), abs=1e-6)
    assert metric.aggregate("none").shape == (3, 3)
    metric.reset()
    metric(y_pred=second[0], y=second[1])
    assert metric.aggregate().item() == pytest.approx(expected(measure, *second).mean(), abs=1e-6)


def test_frames_without_a_region_are_left_out_and_counted() -> None:
    images, labels = batch(2)
    labels = labels.repeat(1, 3, 1, 1)
    labels[0, 1] = 0
    metric = CNRMetric(get_not_nans=True)
    values = metric(y_pred=images, y=labels)
    assert math.isnan(values[0, 1]) and torch.isfinite(values).sum() == 5
    mean, counted = metric.aggregate("sum")
    assert counted.item() == 5 and mean.item() == pytest.approx(values[torch.isfinite(values)].sum().item(), rel=1e-6)


def test_labels_may_have_other_values_and_must_fit_the_frames() -> None:
    images, labels = batch(3)
    camus = torch.where(labels == 255, 170, torch.where(labels == 128, 85, 0))
    assert torch.equal(
        GCNRMetric(tissue_label=170, haze_label=85)(y_pred=images, y=camus), GCNRMetric()(y_pred=images, y=labels)
    )
    for wrong in (labels[:, :, 1:], labels.repeat(1, 2, 1, 1), labels[:1], None):
        with pytest.raises(ValueError, match="y must"):
            GCNRMetric()(y_pred=images, y=wrong)


def test_an_ignite_evaluator_reports_both() -> None:
    pytest.importorskip("ignite", reason="pytorch-ignite drives MONAI's evaluators")
    from monai.data import DataLoader, Dataset
    from monai.engines import SupervisedEvaluator
    from monai.handlers import IgniteMetricHandler, from_engine

    images, labels = batch(4, n=5)
    samples = [{"image": i, "label": s} for i, s in zip(images, labels, strict=True)]
    taken_off = torch.nn.Module()
    taken_off.forward = lambda frames: frames - 3  # type: ignore[method-assign]
    handlers = {
        name: IgniteMetricHandler(metric_fn=metric, output_transform=from_engine(["pred", "label"]))
        for name, metric in (("gcnr", GCNRMetric()), ("cnr", CNRMetric()))
    }
    evaluator = SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=DataLoader(Dataset(samples), batch_size=2),
        network=taken_off,
        key_val_metric={"gcnr": handlers["gcnr"]},
        additional_metrics={"cnr": handlers["cnr"]},
    )
    evaluator.run()
    found = evaluator.state.metrics
    assert found["gcnr"] == pytest.approx(expected(metrics.gcnr, images, labels).mean(), abs=1e-6)
    assert found["cnr"] == pytest.approx(expected(metrics.cnr, images, labels).mean(), abs=1e-5)


def test_the_command_never_imports_monai() -> None:
    program = (
        "import sys; import usdehaze.validation.command, usdehaze.validation.report; print('monai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
