"""Node usage: what a node as a whole does, every ten seconds: processors, memory, disk, network and GPUs.

One rank of each node reads it, on a thread beside the steps, into a segment of the ledger of its own. The names are
those of MLflow's system metrics, so that MLflow's page for these shows them, a line for each node.
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
"""As often as MLflow's own monitor reads them."""
EVENT, WRITER = "node_usage", "node"
PROCESSORS, MEMORY, NETWORK = Path("/proc/stat"), Path("/proc/meminfo"), Path("/proc/net/dev")
MEGABYTE = 1e6


class NodeUsage:
    """The usage of this node; a figure that the machine does not provide is left out."""

    def __init__(self, disk: Path) -> None:
        """`disk` lies on the file system that is looked at."""
        self._disk, self._gpus, self._taken = disk, _gpus(), _counters()

    def read(self) -> dict[str, float]:
        """The figures since the last reading: percentages, megabytes (10^6 bytes), and watts of the GPUs.

        Network is what came and went since then, as MLflow counts it from the beginning of a run. Takes well below a
        millisecond without GPUs.
        """
        now, before = _counters(), self._taken
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
        total, free = filesystem.f_blocks * filesystem.f_frsize, filesystem.f_bavail * filesystem.f_frsize
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
    """Records this node's usage while it is entered, on the node's first rank; on the others nothing happens."""

    def __init__(self, recorder: RankRecorder, world: World, node: str, disk: Path) -> None:
        """`node` is this node's name; `disk` lies on the file system that is looked at."""
        self._recorder, self._node, self._over = recorder, node, threading.Event()
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
    """What only grows: the processors' time and how much of it was work (in ticks), bytes of the network."""
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
    total, free = (int(known[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
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
