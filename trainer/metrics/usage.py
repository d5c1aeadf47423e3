"""Usage: how much of its CPU, memory and GPU a rank uses, read at most once a second.

The kernel and the driver give these figures, so the device never has to finish its work for them.
"""

import os
import resource
import time
from pathlib import Path

import torch

INTERVAL_SECONDS = 1.0
"""NVML's figures cover between the last sixth of a second and the last second."""
PROCESS, MEMORY = Path("/proc/self"), Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
"""The limits of the container (cgroup v2)."""


class Usage:
    """The usage of one rank. A figure that the machine does not provide is left out."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._taken = self._now()
        self._figures: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """The newest figures; shares are 0 to 1, of the time since the last figures.

        cpu_cores (busy ones), cpu_wait (share of time that the rank was ready to run and had no core),
        in a container with a limit also cpu_quota (the cores it may use) and cpu_throttled (share of time in the
        scheduler's periods in which it had used them up and stood still),
        host_memory and host_memory_free (bytes that the process uses, and that are left to it), host_memory_free_share;
        on a GPU also gpu_use (share of time with a kernel running), gpu_memory (the largest allocation so far),
        gpu_memory_reserved, gpu_memory_total (bytes), gpu_memory_retries (allocations that first had to flush the
        allocator's cache, in all).
        """
        if time.perf_counter() - self._taken["at"] >= INTERVAL_SECONDS or not self._figures:
            now = self._now()
            elapsed = now.pop("at") - self._taken["at"]
            shares = {name: (spent - self._taken[name]) / elapsed for name, spent in now.items()}
            self._figures = {**shares, **cpu_quota(), **host_memory(), **self._gpu()}
            self._taken = self._now()
        return self._figures

    def _now(self) -> dict[str, float]:
        """Counters of seconds: the clock, and those whose share of it is a figure."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        counters = {"at": time.perf_counter(), "cpu_cores": used.ru_utime + used.ru_stime}
        schedstat = PROCESS / "schedstat"
        if schedstat.exists():
            # On the processor, waiting for one, number of slices: nanoseconds of the main thread.
            counters["cpu_wait"] = int(schedstat.read_text().split()[1]) / 1e9
        if limit := _cpu_limit():
            counters["cpu_throttled"] = _throttled_periods() * limit[1]
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
    """The GPU's use; empty where NVML does not say: without its bindings, or on a share of a GPU (MIG).

    NVML's own errors have no base but Exception, and none of them is a reason to end a training.
    """
    try:
        return {"gpu_use": torch.cuda.utilization(device) / 100}
    except Exception:
        return {}


def cpu_quota() -> dict[str, float]:
    """The cores that this container may use; empty where it has no limit."""
    limit = _cpu_limit()
    return {"cpu_quota": limit[0] / limit[1]} if limit else {}


def _cpu_limit() -> tuple[float, float] | None:
    """Seconds of processor time in each period of so many seconds (`cpu.max`); None without a limit."""
    path = GROUP / "cpu.max"
    quota, period = path.read_text().split() if path.exists() else ("max", "0")
    return None if quota == "max" else (int(quota) / 1e6, int(period) / 1e6)


def _throttled_periods() -> int:
    """In how many of the scheduler's periods the container stood still, having used its time up."""
    known = dict(line.split() for line in (GROUP / "cpu.stat").read_text().splitlines())
    return int(known.get("nr_throttled", 0))


def host_memory() -> dict[str, float]:
    """Bytes of the process, and those left of the host's memory or the container's limit, whichever is less."""
    resident = int((PROCESS / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    known = dict(line.split(":") for line in MEMORY.read_text().splitlines())
    total, free = (int(known[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    limit = _group("memory.max")
    if limit is not None:
        in_use = (_group("memory.current") or 0) - _reclaimable()
        total, free = min(total, limit), min(free, limit - in_use)
    return {"host_memory": resident, "host_memory_free": free, "host_memory_free_share": free / total}


def _group(name: str) -> int | None:
    """A number of this container; None where it has no such limit."""
    path = GROUP / name
    text = path.read_text().strip() if path.exists() else "max"
    return None if text == "max" else int(text)


def _reclaimable() -> int:
    """Bytes of cached files, which the kernel drops first; Kubernetes does not count them as used either."""
    known = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
    return int(known["inactive_file"])
