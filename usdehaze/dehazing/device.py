"""Where frames are computed, and how many at once, so that neither batch size nor number of cores changes a bit."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from usdehaze.errors import UsdehazeError

CUDA_CHUNK = 16  # jobs in one network pass on a GPU, always: kernels, and so last bits, depend on it
START_S = 60  # within which threads have to be there
_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_STARTING = threading.Lock()


def find_device(name: str) -> torch.device:
    """The device that "auto", "cpu", "cuda" or "cuda:N" stands for.

    Raises:
        UsdehazeError: another name, or a device that is not there.
    """
    check_device_name(name)
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsdehazeError(
            f"device {name} is not there: {torch.cuda.device_count()} CUDA devices found; use --device cpu"
        )
    return device


def find_devices(names: str) -> list[torch.device]:
    """The devices of a name as of `find_device`, or of several with commas between them, which share the frames.

    Raises:
        UsdehazeError: see `find_device`; several that are not CUDA devices, each named once.
    """
    devices = [find_device(name) for name in str(names).split(",")]
    if 1 < len(devices) > len({d.index for d in devices if d.type == "cuda"} - {None}):
        raise UsdehazeError(f"device {names}: several have to be CUDA devices, each once, such as cuda:0,cuda:1")
    return devices


def check_device_name(name: str) -> None:
    """Raises a `UsdehazeError` for what is not the name of a device, there or not."""
    if name == "auto":
        return
    try:
        known = torch.device(name).type in ("cpu", "cuda")
    except (RuntimeError, TypeError):
        known = False
    if not known:
        raise UsdehazeError(f"no device {name!r}; use auto, cpu, cuda or cuda:N")


def jobs_at_once(device: torch.device) -> int:
    """Jobs that keep a device busy."""
    return CUDA_CHUNK if device.type == "cuda" else torch.get_num_threads()


def run_jobs(
    devices: list[torch.device], run: Callable[[list[_Given], torch.device], list[_Found]], jobs: list[_Given]
) -> list[_Found]:
    """What ``run`` finds for each job, given one at a time on a CPU; 16 on a GPU, filled up where there are fewer."""
    if devices[0].type == "cuda":
        return by_sixteen(devices, run, jobs)
    return _one_thread_each(lambda job: run([job], devices[0])[0], jobs)


def by_sixteen(
    devices: list[torch.device], run: Callable[[list[_Given], torch.device], list[_Found]], jobs: list[_Given]
) -> list[_Found]:
    """See `run_jobs`; GPUs take turns. Last bits are alike where these are."""
    padded = jobs + jobs[:1] * (-len(jobs) % CUDA_CHUNK)
    chunks = [padded[i : i + CUDA_CHUNK] for i in range(0, len(padded), CUDA_CHUNK)]
    with (
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
        ThreadPoolExecutor(len(devices)) as threads,
    ):
        spread = threads.map if len(devices) > 1 else map
        found = list(spread(run, chunks, itertools.cycle(devices)))
    return list(itertools.chain.from_iterable(found))[: len(jobs)]


def _one_thread_each(work: Callable[[_Given], _Found], jobs: list[_Given]) -> list[_Found]:
    """Runs each job on one core, as many at once as there are threads.

    A network pass on one core sums in the same order whatever runs beside it, so that neither batch size nor the
    number of cores changes a bit; and small frames gain more from this than from cores that share one convolution.
    """
    with _STARTING:
        workers = _workers(os.getpid(), torch.get_num_threads())
    return list(workers.map(work, jobs))


@functools.cache
def _workers(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of one core each that stay: new ones ask for all their memory anew, a fifth of a frame's time. A process
    that was forked has none of its parent's.

    What one thread sets, torch gives to those that first ask later: each asks before it sets, and the number is put
    back once all are there.
    """
    started = threading.Barrier(threads + 1, timeout=START_S)

    def start() -> None:
        torch.get_num_threads()
        torch.set_num_threads(1)
        started.wait()

    workers = ThreadPoolExecutor(threads, thread_name_prefix="usdehaze", initializer=start)
    try:
        for _ in range(threads):
            workers.submit(int)
        started.wait()
    finally:
        torch.set_num_threads(threads)
    return workers
