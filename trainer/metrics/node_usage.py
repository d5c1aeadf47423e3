"""Node usage: the usage of a whole node, every ten seconds: processors, memory, disk, network and GPUs.

One rank of each node reads it, on a thread beside the steps, and records it in its own segment of the ledger. The names
are those of MLflow's system metrics, so MLflow's page for these shows them, with a line for each node.
"""

import contextlib
import importlib
import os
import threading
from pathlib import Path
from typing import Any

from slipway.trainer.node.world import World
from slipway.trainer.record.recorder import RankRecorder

EVERY_SECONDS = 10.0
"""The interval of MLflow's own monitor."""
EVENT = "node_usage"
WRITER = "node"
PROCESSORS = Path("/proc/stat")
MEMORY = Path("/proc/meminfo")
NETWORK = Path("/proc/net/dev")
MEGABYTE = 1e6


class NodeUsage:
    """The usage of this node, without figures that the machine does not provide."""

    def __init__(self, disk: Path) -> None:
        """`disk`: a path on the file system that is measured."""
        self._disk = disk
        self._gpus = _gpus()
        self._taken = _counters()

    def read(self) -> dict[str, float]:
        """The figures since the last reading: percentages, megabytes (10^6 bytes), and watts of the GPUs.

        Network is the traffic since then. Without GPUs, it takes well below a millisecond.
        """
        now = _counters()
        before = self._taken
        self._taken = now
        spent = now["processors"] - before["processors"]
        return {
            "cpu_utilization_percentage": 100 * (now["busy"] - before["busy"]) / spent if spent > 0 else 0.0,
            **_memory(),
            **self._filling(),
            "network_receive_megabytes": (now["received"] - before["received"]) / MEGABYTE,
            "network_transmit_megabytes": (now["sent"] - before["sent"]) / MEGABYTE,
            **self._of_gpus(),
        }

    def _filling(self) -> dict[str, float]:
        try:
            filesystem = os.statvfs(self._disk)
        except OSError:
            return {}
        total = filesystem.f_blocks * filesystem.f_frsize
        free = filesystem.f_bavail * filesystem.f_frsize
        used = total - filesystem.f_bfree * filesystem.f_frsize
        return {
            "disk_usage_megabytes": used / MEGABYTE,
            "disk_available_megabytes": free / MEGABYTE,
            "disk_usage_percentage": 100 * used / max(1, used + free),
        }

    def _of_gpus(self) -> dict[str, float]:
        usage: dict[str, float] = {}
        for number, gpu in enumerate(self._gpus):
            with contextlib.suppress(_nvml_error()):
                nvml = importlib.import_module("pynvml")
                memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
                use = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu
                usage[f"gpu_{number}_utilization_percentage"] = float(use)
                usage[f"gpu_{number}_memory_usage_megabytes"] = memory.used / MEGABYTE
                usage[f"gpu_{number}_memory_usage_percentage"] = 100 * memory.used / memory.total
                usage[f"gpu_{number}_power_usage_watts"] = nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
        return usage


class NodeWatch:
    """A context that records this node's usage, on the node's first rank; on other ranks it does nothing."""

    def __init__(self, recorder: RankRecorder, world: World, node: str, disk: Path) -> None:
        """`node`: this node's name; `disk`: a path on the file system that is measured."""
        self._recorder = recorder
        self._node = node
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if world.local_rank == 0:
            self._thread = threading.Thread(target=self._run, args=(disk,), name="node-usage", daemon=True)

    def __enter__(self) -> "NodeWatch":
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Record once more, and end."""
        self._over.set()
        if self._thread:
            self._thread.join()

    def _run(self, disk: Path) -> None:
        usage = NodeUsage(disk)
        while not self._over.wait(EVERY_SECONDS):
            self._tell(usage)
        self._tell(usage)

    def _tell(self, usage: NodeUsage) -> None:
        self._recorder.record_own(WRITER, EVENT, node=self._node, step=self._recorder.step, usage=usage.read())


def _counters() -> dict[str, float]:
    """Monotonic counters: the processors' time, their busy time (both in ticks), and bytes of the network."""
    times = [int(value) for value in PROCESSORS.read_text().split("\n", 1)[0].split()[1:9]]
    idle = times[3] + times[4]  # idle, and waiting for a disk
    links = [line.split(":") for line in NETWORK.read_text().splitlines()[2:]]
    known = [values.split() for name, values in links if name.strip() != "lo"]
    return {
        "processors": sum(times),
        "busy": sum(times) - idle,
        "received": sum(int(fields[0]) for fields in known),
        "sent": sum(int(fields[8]) for fields in known),
    }


def _memory() -> dict[str, float]:
    known = dict(line.split(":") for line in MEMORY.read_text().splitlines())
    total = int(known["MemTotal"].split()[0]) * 1024
    free = int(known["MemAvailable"].split()[0]) * 1024
    return {
        "system_memory_usage_megabytes": (total - free) / MEGABYTE,
        "system_memory_usage_percentage": 100 * (total - free) / total,
    }


def _gpus() -> list[Any]:
    """NVML's handles of the node's GPUs; none without a driver or the bindings."""
    with contextlib.suppress(ModuleNotFoundError, _nvml_error()):
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    return []


def _nvml_error() -> type[Exception]:
    try:
        error: type[Exception] = importlib.import_module("pynvml").NVMLError
    except ModuleNotFoundError:
        return ModuleNotFoundError
    return error
