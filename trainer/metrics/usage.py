"""Usage: a rank's use of CPU, memory and GPU, read at most once a second.

The figures come from the kernel and the driver, so a reading does not wait for the device.
"""

import os
import resource
import time
from pathlib import Path

import torch

INTERVAL_SECONDS = 1.0
"""NVML's figures cover the last sixth of a second to the last second."""
PROCESS = Path("/proc/self")
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""The limits of the container (cgroup v2)."""


class Usage:
    """The usage of one rank, without figures that the machine does not provide."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._taken = self._now()
        self._figures: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """The newest figures; shares are 0 to 1, of the time since the last figures.

        cpu_cores: busy cores. cpu_wait: share of time in which the rank was ready to run and had no core. In a
        container with a limit also cpu_quota: the cores that it may use; and cpu_throttled: share of time in scheduler
        periods in which it had used them up and stood still. host_memory and host_memory_free: bytes that the process
        uses, and that it may still use; host_memory_free_share. On a GPU also gpu_use: share of time with a running
        kernel; gpu_memory: the largest allocation so far; gpu_memory_reserved and gpu_memory_total: bytes; and
        gpu_memory_retries: all allocations so far that first had to flush the allocator's cache.
        """
        if time.perf_counter() - self._taken["at"] >= INTERVAL_SECONDS or not self._figures:
            now = self._now()
            elapsed = now.pop("at") - self._taken["at"]
            shares = {name: (spent - self._taken[name]) / elapsed for name, spent in now.items()}
            self._figures = {**shares, **cpu_quota(), **host_memory(), **self._gpu()}
            self._taken = self._now()
        return self._figures

    def _now(self) -> dict[str, float]:
        """Counters of seconds: the clock, and counters whose share of it is a figure."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        counters = {"at": time.perf_counter(), "cpu_cores": used.ru_utime + used.ru_stime}
        schedstat = PROCESS / "schedstat"
        if schedstat.exists():
            # Fields of the main thread: nanoseconds on a processor, nanoseconds of waiting for one, number of slices.
            counters["cpu_wait"] = int(schedstat.read_text().split()[1]) / 1e9
        limit = _cpu_limit()
        if limit:
            _, period = limit
            counters["cpu_throttled"] = _throttled_periods() * period
        return counters

    def _gpu(self) -> dict[str, float]:
        if self._device.type != "cuda":
            return {}
        return {
            **_gpu_use(self._device),
            "gpu_memory": torch.cuda.max_memory_allocated(self._device),
            "gpu_memory_reserved": torch.cuda.memory_reserved(self._device),
            "gpu_memory_total": torch.cuda.mem_get_info(self._device)[1],
            "gpu_memory_retries": torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0),
        }


def _gpu_use(device: torch.device) -> dict[str, float]:
    """The GPU's use; empty without NVML's bindings, or on a share of a GPU (MIG), for which NVML has no figure.

    NVML's errors have no base class but Exception, and none of them may end a training.
    """
    try:
        return {"gpu_use": torch.cuda.utilization(device) / 100}
    except Exception:
        return {}


def cpu_quota() -> dict[str, float]:
    """The cores that this container may use; empty if it has no limit."""
    limit = _cpu_limit()
    return {"cpu_quota": limit[0] / limit[1]} if limit else {}


def _cpu_limit() -> tuple[float, float] | None:
    """The container's limit (`cpu.max`): seconds of processor time in each period, and seconds of a period; or None."""
    path = GROUP / "cpu.max"
    if not path.exists():
        return None
    quota, period = path.read_text().split()
    if quota == "max":
        return None
    return int(quota) / 1e6, int(period) / 1e6


def _throttled_periods() -> int:
    """The number of scheduler periods in which the container had used its time up and stood still."""
    known = dict(line.split() for line in (GROUP / "cpu.stat").read_text().splitlines())
    return int(known.get("nr_throttled", 0))


def host_memory() -> dict[str, float]:
    """Bytes of the process, and the free bytes of the host or of the container's limit, whichever are fewer."""
    resident = int((PROCESS / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    known = dict(line.split(":") for line in MEMORY.read_text().splitlines())
    total = int(known["MemTotal"].split()[0]) * 1024
    free = int(known["MemAvailable"].split()[0]) * 1024
    limit = _group("memory.max")
    if limit is not None:
        in_use = (_group("memory.current") or 0) - _reclaimable()
        total = min(total, limit)
        free = min(free, limit - in_use)
    return {"host_memory": resident, "host_memory_free": free, "host_memory_free_share": free / total}


def _group(name: str) -> int | None:
    """A number of this container; None if it has no such limit."""
    path = GROUP / name
    if not path.exists():
        return None
    text = path.read_text().strip()
    return None if text == "max" else int(text)


def _reclaimable() -> int:
    """Bytes of cached files, which the kernel drops first; Kubernetes does not count them as used either."""
    known = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
    return int(known["inactive_file"])
