"""Usage: what the kernel says of a rank's processor and memory."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from slipway.trainer.metrics import usage
from slipway.trainer.metrics.usage import Usage
from tests.trainer.conftest import CODE

CPU = torch.device("cpu")


def test_the_first_reading_has_all_figures():
    figures = Usage(CPU).read()
    assert {"cpu_cores", "host_memory", "host_memory_free", "host_memory_free_share"} <= figures.keys()
    assert 0 < figures["host_memory_free_share"] < 1
    assert figures["host_memory"] > 50 * 2**20, "torch alone takes more"


def test_figures_are_renewed_once_a_second_at_most():
    cpu_usage = Usage(CPU)
    first = cpu_usage.read()
    assert cpu_usage.read() is first


def test_the_limit_of_a_container_is_the_limit_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of 64 MiB, 48 are in use, and 32 of these are files that the kernel would give up."""
    (tmp_path / "memory.max").write_text(f"{64 * 2**20}\n")
    (tmp_path / "memory.current").write_text(f"{48 * 2**20}\n")
    (tmp_path / "memory.stat").write_text(f"anon {16 * 2**20}\ninactive_file {32 * 2**20}\n")
    monkeypatch.setattr(usage, "GROUP", tmp_path)
    figures = Usage(CPU).read()
    assert figures["host_memory_free"] == 48 * 2**20
    assert figures["host_memory_free_share"] == 0.75


def test_a_container_without_a_limit_has_the_host_s_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "memory.max").write_text("max\n")
    monkeypatch.setattr(usage, "GROUP", tmp_path)
    assert Usage(CPU).read()["host_memory_free"] > 64 * 2**20


def test_a_container_with_a_limit_tells_its_cores_and_how_long_it_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """150 ms of each 100 ms are one and a half cores; 40 periods without any of them left are 4 s."""
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    stood_still = tmp_path / "cpu.stat"
    stood_still.write_text("usage_usec 5\nnr_periods 90\nnr_throttled 40\nthrottled_usec 7\n")
    monkeypatch.setattr(usage, "GROUP", tmp_path)
    cpu_usage = Usage(CPU)
    assert cpu_usage._now()["cpu_throttled"] == pytest.approx(4.0)
    assert cpu_usage.read()["cpu_quota"] == pytest.approx(1.5)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usage.cpu_quota() == {}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count waits")
def test_a_rank_on_a_busy_core_has_waited_for_it():
    """Two processes that never rest, on one core: each waits for half of the time."""
    busy = "import os, time\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    program = (
        f"{busy}import torch\nfrom slipway.trainer.metrics.usage import Usage\n"
        "watched = Usage(torch.device('cpu'))\nwatched.read()\n"
        "begun = time.monotonic()\nwhile time.monotonic() < begun + 1.5: pass\n"
        "print(watched.read()['cpu_wait'])\n"
    )
    other = subprocess.Popen([sys.executable, "-c", f"{busy}while True: pass"])
    try:
        run = subprocess.run([sys.executable, "-c", program], cwd=CODE, capture_output=True, text=True, check=True)
    finally:
        other.kill()
        other.wait()
    assert 0.2 < float(run.stdout) <= 1.0


def test_a_figure_that_the_driver_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch):
    """As on a share of a GPU (MIG); NVML's errors have no base but Exception."""
    pynvml = importlib.import_module("pynvml")

    def refuse(device: torch.device) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(torch.cuda, "utilization", refuse)
    assert usage._gpu_use(torch.device("cuda", 0)) == {}
