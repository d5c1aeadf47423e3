"""Health of a node at the moment of a diagnosis: GPUs, kernel log, disks, network, memory, load.

Each part is read alone, and a missing part has its reason; the reading does not change the node.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from slipway.trainer.base import regular_file
from slipway.trainer.diagnosis import commands
from slipway.trainer.diagnosis.commands import NoEvidence

LINES = 200
"""Of the kernel log, the last ones."""
GPU_FIELDS = (
    "index,name,pci.bus_id,temperature.gpu,utilization.gpu,memory.used,memory.total,power.draw,clocks.sm,"
    "ecc.errors.uncorrected.volatile.total,clocks_throttle_reasons.active"
)
"""Of `nvidia-smi --query-gpu`."""

Part = Callable[[float], bytes]
"""Returns a part of the report within the given seconds. Raises NoEvidence, and OSError."""


def parts(disks: Iterable[Path]) -> Mapping[str, Part]:
    """The parts by name; `disks` are folders on the disks that matter."""
    folders = tuple(disks)
    return {
        "gpus": _gpus,
        "gpu health": _dcgm,
        "kernel log": _kernel_log,
        "disks": lambda _: _disks(folders),
        "network": lambda _: _proc("net/dev"),
        "network errors": lambda _: _proc("net/snmp"),
        "infiniband": lambda _: _infiniband(),
        "memory": lambda _: _proc("meminfo"),
        "load": lambda _: _proc("loadavg"),
        "pressure": lambda _: b"".join(_pressure(resource) for resource in ("cpu", "memory", "io")),
    }


def _gpus(seconds: float) -> bytes:
    query = [commands.executable("nvidia-smi"), f"--query-gpu={GPU_FIELDS}", "--format=csv"]
    return commands.output(query, seconds)


def _dcgm(seconds: float) -> bytes:
    return commands.output([commands.executable("dcgmi"), "health", "--check", "--group", "0"], seconds)


def _kernel_log(seconds: float) -> bytes:
    printed = commands.output([commands.executable("dmesg"), "--time-format", "iso"], seconds)
    return b"\n".join(printed.splitlines()[-LINES:]) + b"\n"


def _disks(folders: Iterable[Path]) -> bytes:
    lines = []
    for folder in folders:
        try:
            usage = shutil.disk_usage(folder)
            inodes = os.statvfs(folder)
            free = f"{usage.free / 1e9:.2f} of {usage.total / 1e9:.2f} GB free"
            lines.append(f"{folder}: {free}, {inodes.f_favail:,} of {inodes.f_files:,} files free")
        except OSError as error:
            lines.append(f"{folder}: {error.strerror}")
    return "\n".join(lines).encode() + b"\n"


def _infiniband() -> bytes:
    """The state and the error counters of each port of each adapter (sysfs-class-infiniband)."""
    lines = []
    root = Path("/sys/class/infiniband")
    for port in sorted(root.glob("*/ports/*")) if root.is_dir() else ():
        counters = (*sorted((port / "counters").glob("*error*")), port / "counters" / "link_downed")
        values = [f"{counter.name} {_read(counter)}" for counter in (port / "state", *counters) if counter.exists()]
        lines.append(f"{port.relative_to(root)}: {', '.join(values)}")
    if not lines:
        raise NoEvidence("there is no InfiniBand adapter")
    return "\n".join(lines).encode() + b"\n"


def _pressure(what: str) -> bytes:
    return b"".join(f"{what} {line}\n".encode() for line in _proc(f"pressure/{what}").decode().splitlines())


def _proc(name: str) -> bytes:
    return regular_file.read(Path("/proc", name))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        return str(error.strerror)
