"""Affinity: binds each rank of a node to the processors of one NUMA node, that of its GPU if it has one."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

SYSTEM = Path("/sys")

Processors = frozenset[int]


def processors_of(
    local_rank: int, local_size: int, nodes: Mapping[int, Processors], allowed: Processors, near: int | None
) -> Processors:
    """The processors for one of a machine's `local_size` ranks; empty for no binding.

    nodes: the processors of each NUMA node. allowed: the processors that this process may use (in a container). near:
    the node of its GPU, None without one. Without a GPU, ranks are assigned to the nodes in order and as evenly as
    possible. Ranks of one node use all of its processors together: with a fixed part for each, threads of one rank
    would wait beside idle cores.
    """
    usable = {node: processors for node in sorted(nodes) if (processors := nodes[node] & allowed)}
    if len(usable) < 2:
        return frozenset()
    in_order = list(usable)[local_rank * len(usable) // local_size]
    return usable[near if near in usable else in_order]


def bind(local_rank: int, local_size: int, pci_address: str, system: Path = SYSTEM) -> None:
    """Bind this process with its present and future threads. `pci_address`: that of its GPU, or empty."""
    allowed = frozenset(os.sched_getaffinity(0))
    chosen = processors_of(local_rank, local_size, numa_nodes(system), allowed, node_of(pci_address, system))
    if chosen:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), chosen)


def numa_nodes(system: Path = SYSTEM) -> dict[int, Processors]:
    """The processors of each NUMA node, from the kernel; empty if the kernel does not list them."""
    lists = system.glob("devices/system/node/node[0-9]*/cpulist")
    return {int(path.parent.name.removeprefix("node")): parse_cpu_list(path.read_text()) for path in lists}


def node_of(pci_address: str, system: Path) -> int | None:
    """The NUMA node of a PCI device; None if the kernel does not know it (its file then has -1)."""
    path = system / "bus/pci/devices" / pci_address / "numa_node"
    if not pci_address or not path.exists():
        return None
    node = int(path.read_text())
    return node if node >= 0 else None


def parse_cpu_list(text: str) -> Processors:
    """The numbers of a kernel's list: "0-3,8" is 0, 1, 2, 3 and 8."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return frozenset(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))


def cpu_list(processors: Collection[int]) -> str:
    """Numbers as the kernel writes them; the inverse of `parse_cpu_list`."""
    starts = sorted(number for number in processors if number - 1 not in processors)
    ends = sorted(number for number in processors if number + 1 not in processors)
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in zip(starts, ends, strict=True))
