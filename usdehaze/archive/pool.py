"""A pool of workers on Ray: a local one, or a cluster that is there."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from usdehaze.archive.actor import Task, Worker
from usdehaze.archive.sources import Source
from usdehaze.archive.store import EXTRA
from usdehaze.errors import UsdehazeError, foreign
from usdehaze.optional import needed

LOCAL, CLIENT = "local", "ray://"
OBJECT_STORE_BYTES = 80 * 2**20  # of a local Ray: names and rows go through it, no pixels
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what it prints, on stdout, where a worker was killed
}
STARTS = 3  # of a local Ray, which gives up after half a minute on a machine that is busy


@dataclass(frozen=True)
class Pool:
    """How many workers, where, and what each of them has.

    Attributes:
        address: "local" for a Ray of this run alone; "auto", ``HOST:PORT``, ``ray://HOST:PORT`` for one that is there.
        workers: processes; None for as many as there is room for.
        cpus: cores of each.
        gpus: of each, a part of one too; None for one where there are GPUs and none elsewhere.
    """

    address: str = LOCAL
    workers: int | None = None
    cpus: float = 1.0
    gpus: float | None = None

    def fitted(self, cpus: float, gpus: float) -> Pool:
        """With workers and GPUs decided, for so many cores and GPUs.

        Raises:
            UsdehazeError: there is no room for as many as are wanted.
        """
        each = float(gpus >= 1) if self.gpus is None else self.gpus
        room = int(min(cpus / self.cpus, gpus / each if each else cpus / self.cpus) + 1e-9)
        wanted = room if self.workers is None else self.workers
        if wanted < 1 or wanted > room:
            asked = f"{wanted or 1} workers of {self.cpus:g} cores and {each:g} GPUs each"
            raise UsdehazeError(f"no room for {asked}: Ray has {cpus:g} cores and {gpus:g} GPUs")
        return replace(self, workers=wanted, gpus=each)


@contextmanager
def connected(pool: Pool) -> Iterator[tuple[Any, Pool]]:
    """Ray, and the pool as it fits into it. A local Ray ends with the block; one that this process has is used.

    Raises:
        UsdehazeError: it is not installed, cannot be reached, or has no room.
    """
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    ray = needed("ray", EXTRA)
    needed("ray.data", EXTRA)
    ours = not ray.is_initialized()
    if ours:
        _start(ray, pool)
    try:
        _hush(ray)
        has = ray.cluster_resources()
        yield ray, pool.fitted(float(has.get("CPU", 0)), float(has.get("GPU", 0)))
    finally:
        if ours:
            ray.shutdown()


def dehazed(ray: Any, pool: Pool, task: Task, sources: Sequence[Source]) -> Iterator[tuple[int, str, str]]:
    """Goes through the scans, and tells index, row and fatal error of each as it is done: see `Worker`.

    A scan whose worker dies is given to another, as often as a scan may be attempted; after that it is left out.

    Raises:
        UsdehazeError: Ray has come to a halt.
    """
    try:
        if pool.address.startswith(CLIENT):  # Ray Data works inside a cluster alone
            there = ray.remote(num_cpus=0)(_Remote).remote(pool, task, sources)
            while (told := ray.get(there.take.remote())) is not None:
                yield told
        else:
            yield from _by_ray_data(ray, pool, task, sources)
    except (ray.exceptions.RayError, ConnectionError, TimeoutError) as error:
        raise UsdehazeError(f"Ray has come to a halt ({foreign(error)}); start again, what is done is kept") from error


class _Remote:
    """`_by_ray_data` in a process of the cluster, for a program that is outside."""

    def __init__(self, pool: Pool, task: Task, sources: Sequence[Source]) -> None:
        ray = needed("ray", EXTRA)
        needed("ray.data", EXTRA)
        _hush(ray)
        self._told = _by_ray_data(ray, pool, task, sources)

    def take(self) -> tuple[int, str, str] | None:
        """The next; None where that was the last."""
        return next(self._told, None)


def _by_ray_data(ray: Any, pool: Pool, task: Task, sources: Sequence[Source]) -> Iterator[tuple[int, str, str]]:
    items = [{"index": index, "source": source.to_json()} for index, source in enumerate(sources)]
    scans = ray.data.from_items(items, override_num_blocks=len(items))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the next Ray but one has other names for the last two
        rows = scans.map(
            Worker,
            fn_constructor_args=(task,),
            compute=ray.data.ActorPoolStrategy(size=pool.workers, max_tasks_in_flight_per_actor=1),
            num_cpus=pool.cpus,
            num_gpus=pool.gpus or None,
            max_task_retries=task.attempts - 1,
            max_restarts=-1,
        )
    for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from zip(*(batch.column(name).to_pylist() for name in ("index", "row", "fatal")), strict=True)


def _start(ray: Any, pool: Pool) -> None:
    """Connects to Ray, or starts it, with its own messages left out."""
    options: dict[str, Any] = {"address": pool.address, "log_to_driver": False, "logging_level": logging.CRITICAL}
    if pool.address == LOCAL:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options["num_cpus"] = max(cores, round((pool.workers or 1) * pool.cpus + 0.499))
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    try:
        with warnings.catch_warnings(), _native_silence():
            warnings.simplefilter("ignore")
            for start in range(1, (STARTS if pool.address == LOCAL else 1) + 1):
                try:
                    ray.init(**options)
                    break
                except Exception as error:  # some are plain `Exception`
                    ray.shutdown()
                    if start == STARTS or pool.address != LOCAL:
                        raise UsdehazeError(f"no Ray at {pool.address} ({foreign(error)})") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _native_silence() -> Iterator[None]:
    """Nothing on stderr from native code, which does not know of `sys.stderr`."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _hush(ray: Any) -> None:
    """What Ray would print of its own: what matters of it is in rows."""
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1  # scans whose worker died too often: they are told of by their absence
