"""One node as it is set up: locked memory, shared memory, GPUs, network, versions, each beside what is required."""

import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from trainer.preflight.findings import Finding, at_least, rate

GIB = 2**30
LEAST_CUDA, LEAST_DRIVER = 11.8, 520.0
LEAST_NETWORK = 10.0
"""Gb/s between nodes."""
LEAST_LOCKED = 1.0
"""GiB: below it RDMA registers no buffers and NCCL takes to TCP without a word."""
LEAST_SHARED = 1.0
"""GiB of /dev/shm, through which NCCL and loader workers pass data (NCCL user guide, troubleshooting)."""
REQUIRED = "Slipway's requirements"


def set_up(nodes: int) -> Iterator[Finding]:
    """What one process of the node can see of it; `nodes`: how many take part."""
    gpus = torch.cuda.device_count()
    yield at_least("GPUs", gpus, "GPUs", None)
    yield rate("host memory", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, "GiB")
    yield rate("CPU cores", len(os.sched_getaffinity(0)), "cores")
    yield _locked_memory()
    shared = shutil.disk_usage("/dev/shm").total / GIB
    yield at_least("/dev/shm", shared, "GiB", LEAST_SHARED if gpus else None, "NCCL's user guide")
    fastest = max(_links(Path("/sys/class/net")), default=0.0)
    yield at_least("network link", fastest, "Gb/s", LEAST_NETWORK if nodes > 1 else None, REQUIRED)
    yield from _versions(gpus)


def _locked_memory() -> Finding:
    """`ulimit -l`; it matters where there are RDMA devices."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    gibibytes = float("inf") if limit == resource.RLIM_INFINITY else limit / GIB
    verbs = Path("/sys/class/infiniband")
    least = LEAST_LOCKED if verbs.is_dir() and any(verbs.iterdir()) else None
    return at_least("locked memory (ulimit -l)", gibibytes, "GiB", least, "RDMA registers its buffers")


def _links(interfaces: Path) -> Iterator[float]:
    """Gb/s of the links that are up and know their speed, the loopback not among them."""
    for interface in interfaces.glob("*/speed"):
        try:
            megabits = int(interface.read_text())
        except (OSError, ValueError):  # a link that is down, or a virtual one
            continue
        if megabits > 0:
            yield megabits / 1000


def _versions(gpus: int) -> Iterator[Finding]:
    yield Finding(name="Python", value=platform.python_version())
    yield Finding(name="PyTorch", value=str(torch.__version__))
    if not gpus:
        return
    yield at_least("CUDA", leading_number(torch.version.cuda or ""), "", LEAST_CUDA, REQUIRED)
    driver = Path("/proc/driver/nvidia/version").read_text()
    yield at_least("driver", driver_version(driver), "", LEAST_DRIVER, REQUIRED)
    yield Finding(name="NCCL", value=".".join(map(str, torch.cuda.nccl.version())))


def driver_version(text: str) -> float:
    """Major and minor of the kernel module, from /proc/driver/nvidia/version; 0 when it is not in there."""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+)", text)
    return float(match[1]) if match else 0.0


def leading_number(version: str) -> float:
    """Major and minor of a version, as a number; 0 when there is none."""
    match = re.match(r"\d+(\.\d+)?", version)
    return float(match[0]) if match else 0.0
