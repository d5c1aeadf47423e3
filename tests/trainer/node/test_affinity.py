"""Affinity: a rank runs beside its GPU; where there is nothing to choose it is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.trainer.node.affinity import cpu_list, node_of, numa_nodes, parse_cpu_list, processors_of
from tests.trainer.conftest import CODE

pytestmark = pytest.mark.pure

TWO = {0: frozenset(range(0, 64)), 1: frozenset(range(64, 128))}
ALL = frozenset(range(128))


def test_a_rank_runs_on_the_node_of_its_gpu():
    assert processors_of(0, 8, TWO, ALL, near=1) == TWO[1]


def test_without_gpus_ranks_are_assigned_to_nodes_in_order():
    chosen = [processors_of(rank, 8, TWO, ALL, near=None) for rank in range(8)]
    assert chosen == [TWO[0]] * 4 + [TWO[1]] * 4


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 16])
def test_no_node_has_two_ranks_more_than_another(ranks: int):
    chosen = [processors_of(rank, ranks, TWO, ALL, near=None) for rank in range(ranks)]
    counts = [chosen.count(node) for node in TWO.values()]
    assert sum(counts) == ranks and max(counts) - min(counts) <= 1


def test_a_rank_is_bound_only_to_processors_of_its_container():
    allowed = frozenset([3, 4, 70, 71])
    assert processors_of(0, 2, TWO, allowed, near=1) == {70, 71}


def test_with_one_usable_node_no_rank_is_bound():
    assert processors_of(0, 2, {0: frozenset(range(8))}, ALL, near=0) == frozenset()
    assert processors_of(0, 2, TWO, frozenset([1, 2]), near=1) == frozenset()
    assert processors_of(0, 2, {}, ALL, near=None) == frozenset()


def test_a_gpu_on_an_unusable_node_does_not_choose_the_node():
    four = {node: frozenset([2 * node, 2 * node + 1]) for node in range(4)}
    assert processors_of(0, 2, four, frozenset([0, 1, 2, 3]), near=3) == {0, 1}


def lay_out(system: Path) -> None:
    """A machine of two NUMA nodes, processor 0 on the first, 1 on the second, with a GPU on the second."""
    for node, cpus in ((0, "0\n"), (1, "1\n")):
        folder = system / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    for address, its_node in (("0000:1b:00.0", "1\n"), ("0000:9a:00.0", "-1\n")):
        folder = system / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(its_node)


def test_nodes_of_processors_and_devices_are_read_from_the_kernel(tmp_path: Path):
    lay_out(tmp_path)
    assert numa_nodes(tmp_path) == {0: {0}, 1: {1}}
    assert node_of("0000:1b:00.0", tmp_path) == 1
    assert node_of("0000:9a:00.0", tmp_path) is None
    assert node_of("0000:ff:00.0", tmp_path) is None
    assert node_of("", tmp_path) is None


def test_this_machine_s_nodes_have_processors():
    assert all(numa_nodes().values())


@pytest.mark.process
@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs the processors 0 and 1")
def test_a_bound_process_stays_there_with_all_its_threads(tmp_path: Path):
    lay_out(tmp_path)
    program = (
        "import os, sys, threading, time, pathlib\n"
        "from slipway.trainer.node.affinity import bind\n"
        "before, after = (threading.Event() for _ in range(2))\n"
        "threading.Thread(target=before.wait, daemon=True).start()\n"
        "bind(0, 1, '0000:1b:00.0', pathlib.Path(sys.argv[1]))\n"
        "threading.Thread(target=after.wait, daemon=True).start()\n"
        "print({frozenset(os.sched_getaffinity(int(each))) for each in os.listdir('/proc/self/task')})\n"
    )
    run = [sys.executable, "-c", program, str(tmp_path)]
    output = subprocess.run(run, cwd=CODE, capture_output=True, text=True, check=True).stdout
    assert output == "{frozenset({1})}\n"


@pytest.mark.parametrize("text", ["", "0", "0-3", "0-3,8", "0,2,4-5"])
def test_lists_are_read_and_written_in_the_kernel_s_form(text: str):
    assert cpu_list(parse_cpu_list(text + "\n")) == text
