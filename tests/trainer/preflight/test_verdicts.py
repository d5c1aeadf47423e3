"""Preflight: verdicts and arithmetic for themselves, then measurements of this machine with one and two ranks."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.config.hardware import card
from slipway.trainer.preflight import arithmetic, collective, disk, node
from slipway.trainer.preflight.__main__ import main
from slipway.trainer.preflight.findings import (
    Finding,
    Verdict,
    as_json,
    at_least,
    at_most,
    failed,
    judged_by_expectation,
    lines,
    rate,
    worst,
)
from tests.disks import mounted
from tests.trainer.conftest import CODE


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(81, "excellent"), (80, "acceptable"), (61, "acceptable"), (60, "weak"), (50, "weak"), (49, "faulty")],
)
def test_a_rate_is_judged_by_its_share_of_the_reference(value: float, verdict: Verdict):
    assert rate("disk read", value, "GB/s", 100.0).verdict == verdict


def test_without_a_reference_there_is_no_verdict():
    assert {
        finding.verdict for finding in (rate("a", 1, ""), at_least("b", 0, "", None), at_most("c", 9, "", None))
    } == {"no reference"}


def test_a_requirement_is_met_or_it_is_not():
    assert [at_least("GPUs", count, "GPUs", 8).verdict for count in (7, 8)] == ["faulty", "excellent"]
    assert [at_most("clock skew", skew, "ms", 50).verdict for skew in (51, 50)] == ["faulty", "excellent"]


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        (["excellent", "faulty", "weak"], "faulty"),
        (["acceptable", "weak"], "weak"),
        (["no reference", "excellent"], "excellent"),
        (["no reference"], "no reference"),
        ([], "no reference"),
    ],
)
def test_the_worst_verdict_counts(verdicts: list[Verdict], together: Verdict):
    assert worst(Finding(name="x", value=1, verdict=verdict) for verdict in verdicts) == together


def test_what_the_caller_expects_replaces_the_reference():
    measured = [Finding(name="disk read", value=5.0, unit="GB/s", node="a"), Finding(name="GPUs", value=7, unit="GPUs")]
    judged = judged_by_expectation(measured, {"disk read": 7.0, "GPUs": 8.0})
    assert [finding.verdict for finding in judged] == [
        "acceptable",
        "faulty",
    ]  # seven of eight GPUs are not 88 %, but one too few
    assert judged[0].node == "a"


def test_what_is_expected_and_was_not_measured_is_faulty():
    (missing,) = judged_by_expectation([], {"all-reduce 1024 MiB": 400.0})
    assert (missing.name, missing.verdict) == ("all-reduce 1024 MiB", "faulty")


def test_the_table_has_each_nodes_verdict_and_its_slowest_rank():
    values = [("a", 0, 90.0), ("a", 1, 40.0), ("b", 2, 95.0)]
    findings = [rate("memory copy", value, "GB/s", 100.0, "sheet") for _, _, value in values]
    findings = [
        Finding(**{**vars(finding), "node": at, "rank": rank})
        for finding, (at, rank, _) in zip(findings, values, strict=True)
    ]
    table = list(lines(findings))
    assert table[0] == "a: faulty"
    assert " ".join(table[1].split()) == "faulty memory copy 40 GB/s of 100 (sheet); lowest of 2 ranks, rank 1"
    assert table[2] == "b: excellent"
    assert as_json(findings)["nodes"] == {"a": "faulty", "b": "excellent"}


@pytest.mark.parametrize(
    ("device", "bf16"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
    ],
)
def test_a_device_is_known_by_the_name_pytorch_gives_it(device: str, bf16: float):
    sheet = card(device)
    assert sheet is not None and sheet.flops["bf16"] == bf16


def test_a_device_without_a_data_sheet_is_unknown():
    assert card("NVIDIA GeForce GTX 1080") is None


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth_is_the_definition_of_nccl_tests(ranks: int, factor: float):
    """algbw * 2 (n - 1) / n: a ring sends each byte so often over its slowest link."""
    assert collective.bus_bandwidth(1000, 2.0, ranks) == 500 * factor


def test_all_reduce_has_a_reference_on_full_nodes_of_known_gpus_alone():
    assert collective.reference(GIB, "NVIDIA H200", [8]) == 400
    assert collective.reference(GIB, "NVIDIA H200", [8, 8]) == 150
    assert collective.reference(GIB, "NVIDIA H200", [4, 4]) is None
    assert collective.reference(2 * GIB, "NVIDIA H200", [8]) is None
    assert collective.reference(GIB, "NVIDIA H200 NVL", [8]) is None
    assert collective.reference(GIB, "cpu", [8]) is None


def test_the_skew_of_clocks_is_found_whatever_the_delays_of_the_exchanges():
    """Clock 1 is 3 s ahead of clock 0; messages take 0.1 to 0.4 s one way and 0.2 to 0.9 s the other."""
    exchanges = [([0.0, 3.0], [back, 3.0 + there]) for there, back in [(0.4, 0.9), (0.1, 0.5), (0.3, 0.2)]]
    seconds, uncertainty = collective.skew(exchanges)
    assert uncertainty == pytest.approx((0.1 + 0.2) / 2)
    assert abs(seconds - 3.0) <= uncertainty


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build", "550.54.15"),
        ("something else", ""),
    ],
)
def test_the_drivers_version_is_read_from_what_the_kernel_says(text: str, version: str):
    assert node.driver_version(text) == version


@pytest.mark.parametrize(
    ("version", "verdict"), [("11.7", "faulty"), ("11.8", "excellent"), ("12.1", "excellent"), ("", "no reference")]
)
def test_a_version_is_compared_number_by_number(version: str, verdict: Verdict):
    assert node.version("CUDA", version, "11.8").verdict == verdict


def test_a_disk_is_written_and_read_within_its_size_and_leaves_nothing(tmp_path: Path):
    written, read = disk.throughput(tmp_path, 3 * disk.BLOCK, 5.0)
    assert (written.name, read.name) == ("disk write", "disk read")
    assert isinstance(written.value, float) and written.value > 0
    assert isinstance(read.value, float) and read.value > 0
    assert written.note.startswith("24 MiB") and read.note.startswith("24 MiB")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_slow_for_its_size_is_measured_on_a_part_of_it(tmp_path: Path):
    written, _ = disk.throughput(tmp_path, 20 * GIB, 0.2)
    assert int(written.note.split()[0]) < 20 * 1024


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    with mounted(tmp_path / "disk", "size=12m") as disk:
        yield disk


def test_a_full_disk_is_faulty(full_disk: Path):
    assert list(disk.throughput(full_disk, 64 * MIB, 1.0)) == [failed("disk", f"{full_disk}: No space left on device")]


def test_a_tier_is_measured_by_its_own_name_and_that_it_is_full_is_no_fault_of_the_node(
    tmp_path: Path, full_disk: Path
):
    written, read = disk.throughput(tmp_path, 3 * disk.BLOCK, 5.0, disk.TIER)
    assert (written.name, read.name) == ("tier write", "tier read")
    assert written.note.startswith(f"{tmp_path}: 24 MiB") and isinstance(read.value, float)
    (full,) = disk.throughput(full_disk, 64 * MIB, 1.0, disk.TIER)
    assert (full.name, full.value, full.verdict) == ("tier", None, "no reference")
    assert full.note == f"{full_disk}: No space left on device"


def test_a_folder_that_is_not_there_is_faulty(tmp_path: Path):
    (finding,) = disk.throughput(tmp_path / "none", 64 * MIB, 1.0)
    assert finding.verdict == "faulty" and "No such file or directory" in finding.note


def test_matrix_products_are_measured_in_all_precisions_of_the_device_and_unknown_devices_not_judged():
    findings = list(arithmetic.throughput(torch.device("cpu"), 0.6))
    assert [finding.name for finding in findings] == ["matrix product fp32", "matrix product bf16", "memory copy"]
    assert all(isinstance(finding.value, float) and finding.value > 0 for finding in findings)
    assert {finding.verdict for finding in findings} == {"no reference"}


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "fp8"])
def test_every_precision_gives_the_product_of_two_matrices(precision: str):
    torch.manual_seed(0)
    out = arithmetic.product(precision, 32, torch.device("cpu"))()
    torch.manual_seed(0)
    first, right = torch.randn(32, 32), torch.randn(32, 32)
    assert isinstance(out, torch.Tensor)
    expected = first @ (right.t() if precision == "fp8" else right)
    assert torch.allclose(out.float(), expected, atol=1.5 if precision == "fp8" else 0.1)


def quick(folder: Path, *arguments: str) -> list[str]:
    """Arguments of a preflight of a few seconds."""
    return ["--seconds", "1.5", "--disk-size", "8M", "--largest", "8M", "--folder", str(folder), *arguments]


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two ranks find on this machine."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", "slipway.trainer.preflight", "--json", *quick(tmp_path_factory.mktemp("disk"))]
    done = subprocess.run(command, cwd=CODE, env=environment(), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def environment(**changed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1", **changed}


def named(report: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [finding for finding in report["findings"] if finding["name"] == name]


@pytest.mark.slow
def test_two_ranks_measure_all_reduces_of_doubling_sizes(by_two: dict[str, Any]):
    sizes = [finding["name"] for finding in by_two["findings"] if finding["name"].startswith("all-reduce")]
    assert sizes[0] == "all-reduce 1 MiB"
    assert sizes == [f"all-reduce {2**power} MiB" for power in range(len(sizes))]
    for size in sizes:
        (finding,) = named(by_two, size)
        assert finding["value"] > 0 and finding["node"] == "all nodes" and "gloo" in finding["note"]


@pytest.mark.slow
def test_the_clocks_of_two_ranks_on_one_machine_agree(by_two: dict[str, Any]):
    (finding,) = named(by_two, "clock skew")
    assert finding["verdict"] == "excellent" and finding["value"] < 50


@pytest.mark.slow
def test_each_rank_measures_its_device_and_one_of_them_their_node(by_two: dict[str, Any]):
    assert [finding["rank"] for finding in named(by_two, "matrix product fp32")] == [0, 1]
    for name in ("disk write", "host memory", "/dev/shm", "locked memory (ulimit -l)", "RDMA libraries", "PyTorch"):
        assert [finding["rank"] for finding in named(by_two, name)] == [0]
    assert set(by_two["nodes"]) == {socket.gethostname(), "all nodes"}


def test_hardware_that_falls_short_of_what_is_expected_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(quick(tmp_path, "--tier", str(tmp_path))) == 0
    printed = capsys.readouterr().out
    assert "tier write" in printed and "tier read" in printed
    assert main(quick(tmp_path, "--expect", "disk read=1000000")) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "1,000,000" in line]
    assert line.split()[:3] == ["faulty", "disk", "read"]


@pytest.mark.slow
def test_the_preflight_does_not_wait_for_a_missing_rank(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    rendezvous_variables = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, "-m", "slipway.trainer.preflight", *quick(tmp_path, "--grace", "1")]
    done = subprocess.run(
        command, cwd=CODE, env=environment(**rendezvous_variables), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "preflight: faulty: the ranks did not finish in 2.5 s" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--largest", "1M"], "found '1M', expected 8M or more"),
        (["--disk-size", "much"], "found 'much', expected 8M or more"),
        (["--expect", "disk read"], "found 'disk read', expected NAME=VALUE"),
    ],
)
def test_bad_arguments_are_refused_with_a_message(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(("required", "verdict"), [(True, "faulty"), (False, "no reference")])
def test_a_library_of_rdma_that_is_missing_is_named_and_faulty_where_there_are_adapters(required: bool, verdict: str):
    finding = node.rdma_libraries(("libc.so.6", "libno-verbs.so.1"), required)
    assert (finding.value, finding.verdict, finding.note) == (None, verdict, "missing: libno-verbs.so.1")
    assert node.rdma_libraries(("libc.so.6",), required).value == "present"
