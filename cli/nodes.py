"""Nodes: what the fleet says of them, what their hardware gives, and taking one out of service."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, names, output
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base.units import MIB
from slipway.trainer.preflight.arguments import expectation, size

if TYPE_CHECKING:
    from slipway.resources.fleet.health.standing import NodeRecord
    from slipway.resources.fleet.kubernetes.cordon import Act, Cordon

app = group("The nodes of the fleet: list, quarantine, preflight, kill.")

Node = Annotated[
    str, typer.Argument(metavar="NODE", help="Its name, or the beginning of it.", autocompletion=completion_names.nodes)
]
Why = Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the next operator.")]

Apply = Annotated[bool, typer.Option("--apply", help="Do it, and do not only say what would be done.")]


def _size(text: str) -> str:
    """A size as a preflight takes it, or none. Raises BadParameter."""
    return _read(size, text) if text else text


def _expectations(texts: list[str] | None) -> list[str]:
    """Expectations as a preflight takes them. Raises BadParameter."""
    return [_read(expectation, text) for text in texts or ()]


def _read(read: Callable[[str], object], text: str) -> str:
    try:
        read(text)
    except argparse.ArgumentTypeError as error:
        raise typer.BadParameter(str(error)) from None
    return text


@verb(app, "slipway nodes list", name="list")
def list_(json: AsJson = False) -> None:
    """List the nodes, and whether each can take work."""
    from slipway.resources.fleet.health.guarded import GuardedFleet

    context = command_context.current()
    door = context.node_health
    with output.progress("asking the fleet"):
        nodes = GuardedFleet(context.fleet, door.register, door.rules).nodes()
        standings = door.register.newest()
    standing = {
        node.name: str(standings[node.name].standing) if node.name in standings else "healthy" for node in nodes
    }
    if json:
        return output.print_json([{**vars(node), "standing": standing[node.name]} for node in nodes])
    output.print_table(
        ("node", "state", "standing", "since", "reason"),
        [
            (
                node.name,
                "ready" if node.ready else "closed" if node.cordoned else "lost",
                standing[node.name],
                output.when(node.since),
                node.reason,
            )
            for node in nodes
        ],
    )


@verb(app, "slipway nodes show node-1")
def show(node: Node, json: AsJson = False) -> None:
    """Show a node's history: transitions, and preflight verdicts."""
    door = command_context.current().node_health
    name = _full(node)
    history = door.register.history(name)
    exemption = door.register.exemption(name)
    preflights = door.preflights.of(name)
    if json:
        document = {"node": name, "transitions": history, "exemption": exemption, "preflights": preflights}
        return output.print_json(document)
    if exemption:
        print(f"no process takes {name} out of service: {exemption.why} ({exemption.who})")
    if not history:
        print(f"node {name} is healthy: nothing was ever found against it")
    else:
        _print_transitions(history)
    if preflights:
        rows = [(output.when(result.at), result.verdict, result.faults, result.run[:8]) for result in preflights]
        output.print_table(("measured", "verdict", "faults", "run"), rows)


def _print_transitions(history: "list[NodeRecord]") -> None:
    output.print_table(
        ("when", "standing", "by", "why"),
        [
            (
                output.when(record.at),
                f"{record.standing}{'' if record.applied else ' (dry run)'}",
                record.who,
                record.why,
            )
            for record in history
        ],
    )


@verb(app, "slipway nodes quarantine node-1 --why 'a new cable'", changes=True)
def quarantine(node: Node, why: Why, json: AsJson = False) -> None:
    """Take a node out of service: no training is placed on it.

    What runs there runs on. No process takes it back: slipway nodes release does.
    """
    _set(node, "quarantined", why, json)


@verb(app, "slipway nodes release node-1 --why 'it was the switch'", changes=True)
def release(node: Node, why: Why, json: AsJson = False) -> None:
    """Take a node back into service, whatever was found against it.

    It is on probation: the next fault takes it out of service again.
    """
    _set(node, "released", why, json)


@verb(app, "slipway nodes bisect node-0 node-1 node-2 node-3", changes=True)
def bisect(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE", help="The nodes, one of which spoils the network.")],
    good: Annotated[list[str] | None, typer.Option(metavar="NODE", help="A node that is known to be good.")] = None,
    largest: Annotated[int, typer.Option(metavar="MEGABYTES", help="The largest all-reduce.")] = 64,
    seconds: Annotated[float, typer.Option(help="How long each group measures.")] = 9.0,
    expect: Annotated[float | None, typer.Option(metavar="GB/S", help="What a good group reaches.")] = None,
    json: AsJson = False,
) -> None:
    """Find the nodes that spoil the network.

    By all-reduces among ever smaller groups of the nodes, which must be free: two at least, or one and a good one. A
    node that is found is reported as suspect, and goes into quarantine as the rules say.
    """
    import uuid

    from slipway.resources.node_tasks.network import NetworkCheck
    from slipway.trainer.node_task import CollectiveTask

    context = command_context.current()
    suspects = [_full(node) for node in nodes]
    peers = [_full(node) for node in good or ()]
    compute = None if context.home else context.compute
    ranks, poll = (max(1, compute.gpus), compute.poll_seconds) if compute else (1, 0.5)
    check = NetworkCheck(context.launcher, context.node_health, context.durable, ranks, poll)
    task = CollectiveTask(largest * MIB, seconds)
    say = (lambda line: None) if json else print
    state = check.bisect(uuid.uuid4().hex, suspects, peers, task, command_context.actor(), say, expect)
    if json:
        output.print_json({"bad": state.bad, "unresolved": state.unresolved, "good": state.good})
    elif state.bad:
        print(f"spoils the network: {', '.join(state.bad)}")
    elif not state.unresolved:
        print(f"none of them spoils the network: {', '.join(suspects)}")
    if state.unresolved:
        unknown = ", ".join(state.unresolved)
        raise ValueError(f"nothing is known of {unknown}: no good node was left to measure with, name one with --good")


@verb(app, "slipway nodes exempt node-1 --why 'it is used for tests'", changes=True)
def exempt(
    node: Node,
    why: Why,
    end: Annotated[bool, typer.Option("--end", help="Take the exemption back.")] = False,
    json: AsJson = False,
) -> None:
    """Keep every process from taking a node out of service."""
    door = command_context.current().node_health
    name = _full(node)
    if end:
        door.end_exemption(name)
    else:
        door.exempt(name, command_context.actor(), why)
    if json:
        return output.print_json({"node": name, "exempt": not end})
    print(f"node {name}: {'it may be taken out of service again' if end else 'no process takes it out of service'}")


@verb(app, "slipway nodes preflight --folder /nvme --expect 'disk read=7'")
def preflight(
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder on the disk to measure; by default the temporary one."),
    ] = None,
    disk_size: Annotated[
        str, typer.Option(callback=_size, help="Bytes of the file there, such as 512M or 4G.")
    ] = "512M",
    largest: Annotated[
        str, typer.Option(callback=_size, help="The largest all-reduce; by default 4G on GPUs, 64M on CPUs.")
    ] = "",
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure.")] = 9.0,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", callback=_expectations, help="What a line should give, in its unit."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure this machine's hardware, and judge it.

    Exit code 1 says that something is faulty. On several nodes at once: torchrun ... -m slipway.trainer.preflight,
    which takes the same options.
    """
    from slipway.trainer.preflight.__main__ import main

    place_to_measure = _there(folder or Path(tempfile.gettempdir()), "--folder")
    options = ["--folder", str(place_to_measure), "--disk-size", disk_size, "--seconds", str(seconds)]
    options += ["--largest", largest] if largest else []
    options += [word for pair in expect or () for word in ("--expect", pair)]
    with output.progress("measuring"):
        code = main([*options, *(["--json"] if json else [])])
    raise typer.Exit(code)


@verb(app, "slipway nodes cordon node-7 --why 'Xid 79' --apply", changes=True)
def cordon(node: Node, why: Why, apply: Apply = False, json: AsJson = False) -> None:
    """Keep new work away from a node of a cluster.

    What runs there runs on. Without --apply, only say what would be done.
    """
    _print_act(_cordon().cordon(_full(node), command_context.actor(changes=apply), why, apply), json)


@verb(app, "slipway nodes uncordon node-7 --why 'new GPU' --apply", changes=True)
def uncordon(node: Node, why: Why, apply: Apply = False, json: AsJson = False) -> None:
    """Take back a node that was cordoned by Slipway.

    Without --apply, only say what would be done.
    """
    _print_act(_cordon().uncordon(_full(node), command_context.actor(changes=apply), why, apply), json)


@verb(app, "slipway nodes kill node-1", changes=True)
def kill(node: Node, json: AsJson = False) -> None:
    """Kill a node of the embedded instance, with all on it.

    As a power cut would; it comes back after a minute.
    """
    from slipway.resources.fleet import embedded

    home = command_context.current().embedded("a node of a cluster is taken out of service with slipway nodes cordon")
    name = _full(node)
    killed = embedded.kill(home.nodes, name)
    if json:
        return output.print_json({"node": name, "killed": killed})
    print(f"node {name} is lost; killed: {', '.join(map(str, killed)) or 'nothing was running on it'}")


@verb(app, "slipway nodes clean --nvme /nvme/slipway --gigabytes 800 --days 7 --dry-run")
def clean(
    nvme: Annotated[Path, typer.Option(help="The folder on this node's NVMe.")],
    gigabytes: Annotated[float, typer.Option(min=0, help="The most that may lie there.")],
    days: Annotated[float, typer.Option(min=0, help="A snapshot that was not used for longer goes.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and say what would go.")] = False,
    json: AsJson = False,
) -> None:
    """Remove snapshots from this node's NVMe, down to limits.

    What was used least recently goes first; what is in use stays.
    """
    from slipway.trainer.staging.retention import retain

    with output.progress("cleaning"):
        retained = retain(_there(nvme, "--nvme"), gigabytes, days, dry_run)
    if json:
        return output.print_json(retained)
    output.print_fields(vars(retained))


def _there(folder: Path, option: str) -> Path:
    """The folder. Raises ValueError where there is none."""
    if not folder.is_dir():
        raise ValueError(f"{option}: found {'a file' if folder.exists() else 'nothing'} at {folder}, expected a folder")
    return folder


def _full(prefix: str) -> str:
    return names.resolved(prefix, [node.name for node in command_context.current().fleet.nodes()], "node")


def _set(node: str, standing: str, why: str, json: bool) -> None:
    """Put a node where a person wants it, and say so."""
    from slipway.resources.fleet.health.standing import Standing

    door = command_context.current().node_health
    name = _full(node)
    record = door.set_by_hand(name, Standing(standing), command_context.actor(), why)
    if json:
        return output.print_json(record)
    dry = "" if record.applied else "; only on record, as compute.quarantine.apply is false in the platform's settings"
    print(f"node {name} is {record.standing}: {why}{dry}")


def _cordon() -> "Cordon":
    from slipway.resources.compute.cordon import of_platform

    return of_platform(command_context.current().cluster("an embedded node is taken away with slipway nodes kill"))


def _print_act(act: "Act", json: bool) -> None:
    output.print_json(act) if json else print(act)
