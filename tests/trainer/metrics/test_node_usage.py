"""Node usage: what a node as a whole does, under the names of MLflow's system metrics."""

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch

from slipway.trainer.metrics import node_usage
from slipway.trainer.metrics.node_usage import NodeUsage, NodeWatch
from slipway.trainer.node.world import World
from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.recorder import RankRecorder
from tests.conftest import until


def test_the_figures_have_the_names_of_mlflows_own(tmp_path: Path):
    usage = NodeUsage(tmp_path)
    spun = time.process_time() + 0.05
    while time.process_time() < spun:
        pass
    figures = usage.read()
    assert 0 < figures["cpu_utilization_percentage"] <= 100
    assert 0 < figures["system_memory_usage_percentage"] < 100
    assert 0 <= figures["disk_usage_percentage"] <= 100 and figures["disk_available_megabytes"] > 0
    assert figures["network_receive_megabytes"] >= 0 and figures["network_transmit_megabytes"] >= 0


def test_a_disk_that_is_away_leaves_its_figures_out(tmp_path: Path):
    figures = NodeUsage(tmp_path / "gone").read()
    assert "disk_usage_percentage" not in figures and "cpu_utilization_percentage" in figures


class DriverError(Exception):
    """As NVML raises it."""


class Driver:
    """NVML's bindings on a node of two GPUs, of which the second one answers no more."""

    NVMLError = DriverError

    def nvmlInit(self) -> None: ...  # noqa: N802 - NVML's names

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:  # noqa: N802
        if gpu == 1:
            raise DriverError("GPU is lost")
        return SimpleNamespace(used=20_000_000_000, total=80_000_000_000)

    def nvmlDeviceGetUtilizationRates(self, _: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetPowerUsage(self, _: int) -> int:  # noqa: N802
        return 650_000  # milliwatts


def test_each_gpu_of_a_node_is_shown_and_one_that_is_lost_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", cast(ModuleType, Driver()))
    figures = {name: value for name, value in NodeUsage(tmp_path).read().items() if name.startswith("gpu_")}
    assert figures == {
        "gpu_0_utilization_percentage": 97.0,
        "gpu_0_memory_usage_megabytes": 20_000.0,
        "gpu_0_memory_usage_percentage": 25.0,
        "gpu_0_power_usage_watts": 650.0,
    }


def test_one_rank_of_each_node_records_its_usage_beside_the_steps(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(node_usage, "EVERY_SECONDS", 0.01)
    token = Token(1)
    for rank in (0, 1):
        world = World(rank, 1, rank, torch.device("cpu"))
        with RankRecorder(tmp_path, token, rank) as recorder, NodeWatch(recorder, world, "local", tmp_path):
            if rank == 0:
                until(lambda: recorded(tmp_path), "the node's usage to be recorded")
    assert {event["rank"] for event in recorded(tmp_path)} == {0}
    assert {event["node"] for event in recorded(tmp_path)} == {"local"}


def recorded(store: Path) -> list[dict[str, Any]]:
    return [dict(event) for event in ledger.read(store) if event["event"] == "node_usage"]
