"""Affinity: each rank of a node on the processors of one NUMA node, its GPU's where it has one."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

SYSTEM = Path("/sys")

Processors = frozenset[int]


def processors_of(
    local_rank: int, local_size: int, nodes: Mapping[int, Processors], allowed: Processors, near: int | None
) -> Processors:
    """The processors for one of a machine's `local_size` ranks; empty for no binding.

    nodes: each NUMA node's processors. allowed: those that this process may use at all (a container's). near: its
    GPU's node, None without one. Where no GPU decides, ranks are dealt out to the nodes in order and as evenly as can
    be. Ranks of one node share all of its processors: a fixed part for each would leave the threads of one waiting
    beside idle cores.
    """
    usable = {node: found for node in sorted(nodes) if (found := nodes[node] & allowed)}
    if len(usable) < 2:
        return frozenset()
    in_order = list(usable)[local_rank * len(usable) // local_size]
    return usable[near if near in usable else in_order]


def bind(local_rank: int, local_size: int, pci_address: str, system: Path = SYSTEM) -> None:
    """Bind this process, the threads that it has and those that it will have. `pci_address`: its GPU's, or empty."""
    allowed = frozenset(os.sched_getaffinity(0))
    chosen = processors_of(local_rank, local_size, numa_nodes(system), allowed, node_of(pci_address, system))
    if chosen:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), chosen)


def numa_nodes(system: Path = SYSTEM) -> dict[int, Processors]:
    """The processors of each NUMA node, as the kernel has them; empty where it does not say."""
    lists = system.glob("devices/system/node/node[0-9]*/cpulist")
    return {int(path.parent.name.removeprefix("node")): parsed(path.read_text()) for path in lists}


def node_of(pci_address: str, system: Path = SYSTEM) -> int | None:
    """The NUMA node that a PCI device hangs on; None where the kernel does not know (it then says -1)."""
    path = system / "bus/pci/devices" / pci_address / "numa_node"
    if not pci_address or not path.exists():
        return None
    node = int(path.read_text())
    return node if node >= 0 else None


def parsed(text: str) -> Processors:
    """The numbers of a kernel's list: "0-3,8" is 0, 1, 2, 3 and 8."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return frozenset(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))


def listed(processors: Collection[int]) -> str:
    """Numbers as the kernel writes them: what `parsed` reads."""
    starts = sorted(number for number in processors if number - 1 not in processors)
    ends = sorted(number for number in processors if number + 1 not in processors)
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in zip(starts, ends, strict=True))
