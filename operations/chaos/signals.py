"""Faults by signals: processes that are killed, crash, or stand still, and side services that do."""

import contextlib
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slipway.operations.chaos import processes
from slipway.operations.chaos.target import Act, Done, JobTarget, chosen, named, send
from slipway.resources.fleet import embedded
from slipway.resources.launchers.local.local_process import CONTROL_PLANE_VARIABLE
from slipway.trainer.base.processes import carrying

ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"
"""Where an object store answers that is not Amazon's (docs.aws.amazon.com/sdkref, "Service-specific endpoints")."""
RECOVERY_SECONDS = 60.0
"""How long a second fault waits for the recovery that it is to hit."""


def signalled(number: signal.Signals, *modules: str, seconds: float = 0.0) -> Act:
    """A signal to a process that runs one of these modules; with `seconds`, it goes on after so long."""

    def act(target: JobTarget, draw: float) -> Done | None:
        process = chosen(target.running(*modules), draw)
        if process is None or not send([process.pid], number):
            return None
        return Done(
            f"{number.name} to {named(process)}", process.node, continued([process.pid], seconds) if seconds else None
        )

    return act


def continued(pids: list[int], seconds: float) -> Callable[[threading.Event], None]:
    """Wait, and let stopped processes go on."""

    def go_on(over: threading.Event) -> None:
        over.wait(seconds)
        send(pids, signal.SIGCONT)

    return go_on


def node_killed(first: bool) -> Act:
    """A power cut on a node: on the one with rank 0, or on any."""

    def act(target: JobTarget, draw: float) -> Done | None:
        nodes = sorted({process.node for process in target.running(processes.NODE)})
        node = chosen(nodes[:1] if first else nodes, draw)
        if node is None:
            return None
        embedded.kill(target.home.nodes, node)
        return Done(f"node {node} lost its power", node)

    return act


def node_stopped(target: JobTarget, draw: float) -> Done | None:
    """All processes of a node stand still, as in a machine that hangs."""
    node = chosen(sorted({process.node for process in target.running(processes.NODE)}), draw)
    pids = [process.pid for process in target.processes if process.node == node]
    if node is None or not send(pids, signal.SIGSTOP):
        return None
    return Done(f"node {node} stands still", node)


def two_killed(target: JobTarget, draw: float) -> Done | None:
    """Two ranks at once."""
    ranks = target.running(processes.RANK)[:2]
    if len(ranks) < 2 or not send([process.pid for process in ranks], signal.SIGKILL):
        return None
    return Done(f"SIGKILL to {named(ranks[0])} and {named(ranks[1])} at once")


def killed_in_recovery(target: JobTarget, draw: float) -> Done | None:
    """A rank is killed, and one of those that are started in its place, before it has done a step."""
    before = {process.pid for process in target.running(processes.RANK)}
    first = signalled(signal.SIGKILL, processes.RANK)(target, draw)
    if first is None:
        return None

    def go_on(over: threading.Event) -> None:
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline and not over.wait(0.02):
            if new := [process.pid for process in target.running(processes.RANK) if process.pid not in before]:
                send(new[:1], signal.SIGKILL)
                return

    return Done(f"{first.what}; the next one dies in the recovery", first.node, go_on)


def control_plane_stopped(seconds: float) -> Act:
    """Dagster's daemon, webserver, code server and runs stand still."""

    def act(target: JobTarget, draw: float) -> Done | None:
        pids = carrying({CONTROL_PLANE_VARIABLE: str(target.home.root)})
        if not send(pids, signal.SIGSTOP):
            return None
        return Done(f"the control plane stands still for {seconds:.0f} s", "", continued(pids, seconds))

    return act


def object_store_away(seconds: float) -> Act:
    """The object store that the job's processes use stands still, where it runs on this machine."""

    def act(target: JobTarget, draw: float) -> Done | None:
        endpoints = {processes.environment(process.pid).get(ENDPOINT_VARIABLE, "") for process in target.processes}
        pids = sorted({pid for url in endpoints for pid in processes.listeners_at(url)})
        if not send(pids, signal.SIGSTOP):
            return None
        return Done(f"the object store stands still for {seconds:.0f} s", "", continued(pids, seconds))

    return act


def tracking_away(seconds: float) -> Act:
    """Nobody can read or write MLflow's database."""

    def act(target: JobTarget, draw: float) -> Done | None:
        database = Path(target.home.tracking_uri.removeprefix("sqlite:///"))
        if not database.exists():
            return None

        def go_on(over: threading.Event) -> None:
            with contextlib.closing(sqlite3.connect(database, timeout=10.0)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                over.wait(seconds)
                connection.rollback()

        return Done(f"MLflow's database is locked for {seconds:.0f} s", "", go_on)

    return act
