"""``python -m slipway.trainer.supervisor ARGUMENT... CONFIG.json``: the supervisor of one node of a job; a launcher
starts it.

It replaces torchrun for the built-in trainer, and has torchrun's arguments for the number of nodes, the number of ranks
on each, and the rendezvous. The exit code is that of the rank whose end ended the job: 128 + n if signal n ended the
rank (4 if the launcher then starts the node anew). It is 1 if another node ended the job.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import slipway.trainer.__main__ as rank_program
from slipway.trainer import preimport
from slipway.trainer.base import console
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.config import resolved
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import liveness, rendezvous_store
from slipway.trainer.elastic.generations import REPLACED, Arrival
from slipway.trainer.elastic.job_store import CONNECT_SECONDS, JobStore, StoreGone
from slipway.trainer.elastic.rendezvous import JOIN_SECONDS, NodeCount
from slipway.trainer.elastic.supervisor import JobPlace, Supervisor
from slipway.trainer.metrics import exporter
from slipway.trainer.node.agent import ADDRESS_VARIABLE, INDEX_VARIABLE
from slipway.trainer.record import causes, incarnation


def main(arguments: list[str]) -> int:
    options = _parsed(arguments)
    try:
        config = resolved.load(options.config)
        preimport.load(config, _is_alone(options))
        return _supervised(options, config)
    except (StoreGone, OSError, causes.Failure) as error:
        _say(error)
        return ExitCode.FAILED
    except ValueError as error:
        _say(error)
        return ExitCode.UNUSABLE


def _supervised(options: argparse.Namespace, config: Config) -> int:
    address = os.environ.get(ADDRESS_VARIABLE, "127.0.0.1")
    index = int(os.environ.get(INDEX_VARIABLE, "-1"))
    host, port = options.endpoint
    helpers: tuple[int, ...] = ()
    if port == 0 and not _is_alone(options):
        pid, port = rendezvous_store.start_local()
        host = rendezvous_store.LOOPBACK
        helpers = (pid,)
    own = Arrival(os.environ.get("SLIPWAY_NODE", "local"), index, options.ranks, address)
    number = int(os.environ[incarnation.VARIABLE])
    store = Path(config.placement.store)
    helpers += exporter.start(store, number, own.node)
    job_store = JobStore.alone() if _is_alone(options) else _connected(host, port)
    if options.nodes.most > 1:
        helpers += (liveness.start(host, port, own.node),)
    stays = _stays(config, _is_alone(options))
    memory = slots.make(config.storage, options.ranks)
    nodes = replace(options.nodes, replaced_seconds=float(os.environ.get(REPLACED, "0")))
    policies = config.recovery.policies
    job = JobPlace(options.config, config, store, number, nodes, own, (host, port), stays, helpers, memory, policies)
    return Supervisor(job, job_store, rank_program.main).run()


def _connected(host: str, port: int) -> JobStore:
    """The job's store, which may start later than this node. Raises StoreGone."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            return JobStore.connected(host, port, CONNECT_SECONDS)
        except StoreGone:
            if time.monotonic() > deadline:
                raise


def _stays(config: Config, alone: bool) -> bool:
    """Whether healthy ranks stay; after `preimport.load`, the query creates no context on a GPU."""
    import torch

    return not alone and config.recovery.stays(torch.cuda.is_available())


def _is_alone(options: argparse.Namespace) -> bool:
    return bool(options.nodes.most == options.ranks == 1)


def _say(error: Exception) -> None:
    console.warn(f"trainer: {error}")


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.trainer.supervisor", allow_abbrev=False)
    parser.add_argument("--nnodes", dest="nodes", type=_nodes, required=True)
    parser.add_argument("--nproc-per-node", dest="ranks", type=int, required=True)
    parser.add_argument("--rdzv-id", dest="job", required=True)
    parser.add_argument("--rdzv-endpoint", dest="endpoint", type=_endpoint, required=True)
    parser.add_argument("config", type=Path)
    return parser.parse_args(arguments)


def _nodes(text: str) -> NodeCount:
    least, _, most = text.rpartition(":")
    return NodeCount(int(least or most), int(most))


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    console.explain("slipway.trainer.supervisor", "starts the ranks of a node, and starts them anew when one dies")
    sys.exit(main(sys.argv[1:]))
