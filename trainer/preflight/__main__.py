"""``torchrun -m slipway.trainer.preflight`` (or ``python -m slipway.trainer.preflight``): measure this hardware and
judge it.

Exit codes: 0 nothing is faulty; 1 something is faulty, or the ranks did not finish in time; 2 bad arguments.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slipway.trainer.base import console
from slipway.trainer.base.processes import die_with_parent
from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.elastic.process_groups import join
from slipway.trainer.node.world import World
from slipway.trainer.preflight import arithmetic, collective, disk, file_systems, findings, node
from slipway.trainer.preflight.arguments import expectation, size
from slipway.trainer.preflight.findings import Finding

GRACE_SECONDS = 120.0
"""Seconds beside the measurements: for imports, for connecting the ranks, and for the last fsync of a slow disk."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
    with _time_limit(options.seconds + options.grace), join() as world:
        results = findings.judged_by_expectation(_measured(world, options), dict(options.expect))
    if world.is_rank_zero:
        console.say(json.dumps(findings.as_json(results)) if options.json else "\n".join(findings.lines(results)))
    return int(findings.worst(results) == "faulty")


def _measured(world: World, options: argparse.Namespace) -> list[Finding]:
    """The findings of all ranks, on every rank; a third of the time is for arithmetic, disks and all-reduce each."""
    hosts = world.all_gather(socket.gethostname())
    ranks_by_node = [hosts.count(host) for host in dict.fromkeys(hosts)]
    part = options.seconds / 3
    own_results = [arithmetic.free_memory(world.device)] if world.device.type == "cuda" else []
    own_results += arithmetic.throughput(world.device, part)
    if hosts.index(hosts[world.rank]) == world.rank:  # the first rank of each node measures the node
        own_results += node.set_up(len(ranks_by_node))
        folders = [(options.folder, disk.DISK), *((tier, disk.TIER) for tier in options.tier)]
        for folder, what in folders:
            own_results += disk.throughput(folder, options.disk_size, part / len(folders), what)
        own_results += [
            finding for folder in (options.folder, *options.tier) for finding in file_systems.judged(folder)
        ]
    own_results = [replace(finding, node=hosts[world.rank], rank=world.rank) for finding in own_results]
    results = [finding for rank in world.all_gather(own_results) for finding in rank]
    if world.size > 1:
        largest = options.largest or (4 * GIB if world.device.type == "cuda" else 64 * MIB)
        results += [collective.clock(world), *collective.all_reduce(world, largest, part, ranks_by_node)]
    return results


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """End the process after this time: a rank may be missing, or the network may hang."""

    def give_up() -> None:
        console.warn(f"preflight: faulty: the ranks did not finish in {seconds:g} s")
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.trainer.preflight", description="Measure this hardware and judge it."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of a table")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="a folder on the disk to measure; default: %(default)s",
    )
    parser.add_argument(
        "--tier",
        type=Path,
        action="append",
        default=[],
        help="a tier's folder, which is measured and tried as well; may be given several times",
    )
    parser.add_argument(
        "--disk-size", type=size, default=512 * MIB, help="bytes of the file that is written there; default: 512M"
    )
    parser.add_argument("--largest", type=size, help="the largest all-reduce; default: 4G on GPUs, 64M on CPUs")
    parser.add_argument("--seconds", type=float, default=9.0, help="seconds to measure for; default: %(default)g")
    parser.add_argument(
        "--grace", type=float, default=GRACE_SECONDS, help="seconds beyond them before giving up; default: %(default)g"
    )
    parser.add_argument(
        "--expect",
        type=expectation,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the value that a line should reach, in its unit: 'disk read=7'",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
