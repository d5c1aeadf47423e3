"""The set-up of one node: locked memory, shared memory, GPUs, network and versions, beside the requirements."""

import contextlib
import ctypes
import math
import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from slipway.trainer.base.units import GIB
from slipway.trainer.preflight.findings import Finding, Verdict, at_least, rate

LEAST_CUDA = "11.8"
LEAST_DRIVER = "520"
LEAST_NETWORK = 10.0
"""Gb/s between nodes."""
LEAST_LOCKED = 1.0
"""GiB: below this RDMA registers no buffers, and NCCL falls back to TCP without a message."""
LEAST_SHARED = 1.0
"""GiB of /dev/shm, through which NCCL and loader workers pass data (NCCL user guide, troubleshooting)."""
RDMA_LIBRARIES = ("libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1")
"""NCCL opens the first, which opens that of the adapter; NCCL's network plugins link the third. No wheel brings them:
Debian's packages are libibverbs1, ibverbs-providers and librdmacm1."""
INFINIBAND = Path("/sys/class/infiniband")
REQUIRED = "Slipway's requirements"


def set_up(nodes: int) -> Iterator[Finding]:
    """The findings that one process of the node can make; `nodes` is the number of nodes in this preflight."""
    gpus = torch.cuda.device_count()
    yield at_least("GPUs", gpus, "GPUs", None)
    yield rate("host memory", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, "GiB")
    yield rate("CPU cores", len(os.sched_getaffinity(0)), "cores")
    yield _locked_memory()
    yield rdma_libraries(RDMA_LIBRARIES, any(INFINIBAND.glob("*")))
    shared = shutil.disk_usage("/dev/shm").total / GIB
    yield at_least("/dev/shm", shared, "GiB", LEAST_SHARED if gpus else None, "NCCL's user guide")
    yield _network(nodes)
    yield from _versions(gpus)


def _locked_memory() -> Finding:
    """`ulimit -l`, which matters only with RDMA devices."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = limit == resource.RLIM_INFINITY
    least = LEAST_LOCKED if any(INFINIBAND.glob("*")) else None
    gibibytes = math.inf if unlimited else limit / GIB
    finding = at_least("locked memory (ulimit -l)", gibibytes, "GiB", least, "RDMA registers its buffers")
    return replace(finding, value="unlimited", unit="") if unlimited else finding


def rdma_libraries(names: tuple[str, ...], required: bool) -> Finding:
    """Whether NCCL can open them; one that is missing is named, and faulty on a node with RDMA devices."""
    name = "RDMA libraries"
    missing = [name for name in names if not _opens(name)]
    if missing:
        verdict: Verdict = "faulty" if required else "no reference"
        return Finding(name=name, value=None, verdict=verdict, note=f"missing: {', '.join(missing)}")
    return Finding(name=name, value="present", verdict="excellent" if required else "no reference")


def _opens(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _network(nodes: int) -> Finding:
    """The fastest link; several nodes need a fast one."""
    speeds = [*_ethernet(), *_infiniband()]
    if not speeds:
        return Finding(name="network link", value=None, note="no link reports its speed")
    return at_least("network link", max(speeds), "Gb/s", LEAST_NETWORK if nodes > 1 else None, REQUIRED)


def _ethernet() -> Iterator[float]:
    """Gb/s of the interfaces that are up and report their speed."""
    for interface in Path("/sys/class/net").glob("*/speed"):
        with contextlib.suppress(OSError):  # a link that is down cannot be read
            megabits = int(interface.read_text())
            if megabits > 0:
                yield megabits / 1000


def _infiniband() -> Iterator[float]:
    """Gb/s of the ports; their file has for example "400 Gb/sec (4X NDR)"."""
    for port in INFINIBAND.glob("*/ports/*/rate"):
        yield float(port.read_text().split()[0])


def _versions(gpus: int) -> Iterator[Finding]:
    yield Finding(name="Python", value=platform.python_version())
    yield Finding(name="PyTorch", value=str(torch.__version__))
    if not gpus:
        return
    yield version("CUDA", torch.version.cuda or "", LEAST_CUDA)
    yield version("driver", _driver(), LEAST_DRIVER)
    yield Finding(name="NCCL", value=".".join(map(str, torch.cuda.nccl.version())))  # type: ignore[no-untyped-call]


def _driver() -> str:
    module = Path("/proc/driver/nvidia/version")
    return driver_version(module.read_text()) if module.exists() else ""


def driver_version(text: str) -> str:
    """The kernel module's version in the text of /proc/driver/nvidia/version; empty if there is none."""
    match = re.search(r"Kernel Module.*?\s(\d+(\.\d+)+)", text)
    return match[1] if match else ""


def version(name: str, actual: str, least: str) -> Finding:
    """A version beside the least that is required; an unknown version is not judged."""
    if not actual:
        return Finding(name=name, value=None, note="the driver does not report it")
    is_met = _numbers(actual) >= _numbers(least)
    verdict: Verdict = "excellent" if is_met else "faulty"
    return Finding(name=name, value=actual, reference=least, source=REQUIRED, verdict=verdict)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
