"""Between the ranks: all-reduce bus bandwidth by size, as nccl-tests defines it, and the skew of the clocks."""

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.distributed as dist

from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.node.world import World
from slipway.trainer.preflight.findings import Finding, at_most, rate

SMALLEST = MIB
IN_NODE = {MIB: 40.0, GIB: 400.0, 4 * GIB: 430.0}
BETWEEN_NODES = {MIB: 10.0, GIB: 150.0, 4 * GIB: 180.0}
"""GB/s by size on nodes of 8 H100 or H200 SXM, with all GPUs."""
SXM = {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}
SKEW_SECONDS = 0.05
ROUNDS = 20
ITERATIONS = 20
"""The default of nccl-tests."""


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Bytes/s that the slowest link carries: size / seconds * 2 (n - 1) / n (nccl-tests, PERFORMANCE.md).

    It does not depend on the number of ranks, so that it can be compared with the speed of the hardware.
    """
    return size / seconds * 2 * (ranks - 1) / ranks


def reference(size: int, device: str, ranks_by_node: list[int]) -> float | None:
    """GB/s that an all-reduce of `size` bytes should reach; None without a reference."""
    if device not in SXM or set(ranks_by_node) != {8}:
        return None
    return (IN_NODE if len(ranks_by_node) == 1 else BETWEEN_NODES).get(size)


def all_reduce(world: World, largest: int, seconds: float, ranks_by_node: list[int]) -> Iterator[Finding]:
    """Bus bandwidth of 1 MiB, 2 MiB, ... `largest`, the mean over the ranks, for about as many seconds as given."""
    deadline = time.monotonic() + seconds
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"
    size = SMALLEST
    while size <= largest and world.broadcast(time.monotonic() < deadline):
        taken = _seconds_each(world, torch.zeros(size // 4, device=world.device), deadline)
        gigabytes = bus_bandwidth(size, world.all_reduce(taken)[0] / world.size, world.size) / 1e9
        should = reference(size, device, ranks_by_node)
        source = "8 H100 or H200 a node"
        yield rate(f"all-reduce {size // MIB} MiB", gigabytes, "GB/s", should, source, f"bus, {dist.get_backend()}")
        size *= 2


def _seconds_each(world: World, values: torch.Tensor, deadline: float) -> float:
    """Mean seconds of `ITERATIONS` all-reduces, or of fewer if the deadline leaves no time for more."""
    _timed(world, values, 1)  # the first call opens the connections
    once = world.broadcast(_timed(world, values, 1))
    remaining = world.broadcast(deadline - time.monotonic())
    count = max(1, min(ITERATIONS, int(remaining / 2 / once)))
    return _timed(world, values, count) / count


def _timed(world: World, values: torch.Tensor, count: int) -> float:
    dist.barrier()
    _finished(world.device)
    begun = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(values)
    _finished(world.device)
    return time.perf_counter() - begun


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


Exchange = tuple[list[float], list[float]]
"""When each rank entered an exchange and when it left it, by its own clock."""


def skew(exchanges: list[Exchange]) -> tuple[float, float]:
    """The farthest that two clocks are apart, and the uncertainty of that, in seconds.

    No rank leaves an all-gather before every rank has entered it: left_i - entered_j bounds how far clock i is
    ahead of clock j, from above, and so left_j - entered_i from below. The closest bounds of all exchanges count.
    """
    ranks = range(len(exchanges[0][0]))
    apart = [_ahead(exchanges, i, j) for i in ranks for j in ranks if i < j]
    return max(((abs(offset), error) for offset, error in apart), default=(0.0, 0.0))


def _ahead(exchanges: list[Exchange], i: int, j: int) -> tuple[float, float]:
    """How far clock i is ahead of clock j, and the uncertainty: the middle and half the width of the bounds."""
    most = min(exited[i] - entered[j] for entered, exited in exchanges)
    least = -min(exited[j] - entered[i] for entered, exited in exchanges)
    return (most + least) / 2, (most - least) / 2


def clock(world: World) -> Finding:
    """The skew of the ranks' clocks; more than a shared file system tolerates makes the order of events unreliable."""
    own_times = []
    for _ in range(ROUNDS):
        entered = time.time()
        world.all_gather(None)
        own_times.append((entered, time.time()))
    by_rank = world.all_gather(own_times)
    exchanges = [([rank[n][0] for rank in by_rank], [rank[n][1] for rank in by_rank]) for n in range(ROUNDS)]
    seconds, uncertainty = skew(exchanges)
    certain = max(0.0, seconds - uncertainty) * 1000
    note = f"± {uncertainty * 1000:.2g} ms"
    judged = at_most("clock skew", certain, "ms", SKEW_SECONDS * 1000, "Ceph's mon_clock_drift_allowed", note)
    return replace(judged, value=seconds * 1000)
