"""Chaos: faults on purpose, to see that the platform finds and answers each."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, output
from slipway.cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from slipway.operations.chaos.cluster import ClusterTarget
    from slipway.operations.chaos.report import ChaosReport
    from slipway.operations.chaos.target import JobTarget

app = group("Faults on purpose.")
SETTLE_SECONDS = 60.0
"""How long the platform has for the incident of the last fault."""
POLL_SECONDS = 1.0


@verb(app, "slipway chaos --minutes 15 --every 60 --seed 7 --apply", section="Operations", changes=True)
def chaos(
    minutes: Annotated[float, typer.Option(help="For how long.")] = 15.0,
    every: Annotated[float, typer.Option(help="Seconds between two faults, on average.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same faults at the same times.")] = 0,
    fault: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this fault; may be given several times.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do it, and do not only say what would be done.")] = False,
    namespace: Annotated[
        str,
        typer.Option(metavar="NAME", help="On a cluster: its namespace, said again so that none is hit by mistake."),
    ] = "",
    json: AsJson = False,
) -> None:
    """Do harm on purpose, and see what the platform makes of it.

    Processes of running trainings are killed, stopped and slowed down, connections cut, checkpoints damaged. What the
    ranks do to themselves needs `recovery.drills: true` in the recipe. On a cluster, a staging one, pods are deleted,
    nodes cordoned, and ranks asked; the rest is for an embedded instance. At the end, each fault stands beside the
    incident that was recorded for it. Exit code 1 says that a cause is wrong or missing.
    """
    from slipway.operations.chaos import course, schedule
    from slipway.operations.chaos.faults import FAULTS, possible, usual

    context = command_context.current()
    names = fault or usual(context.home is None)
    can = possible(context.home is None)
    if unknown := [name for name in names if name not in can]:
        there = "a cluster" if context.home is None else "an embedded instance"
        where = f"which cannot be done on {there}" if unknown[0] in FAULTS else "which is unknown"
        raise ValueError(f"--fault: found {unknown[0]!r}, {where}; expected one of {', '.join(can)}")
    planned = schedule.drawn(names, seed, 60 * minutes, every)
    if not apply:
        rows = [
            (f"{planned_fault.at:.0f} s", planned_fault.fault, FAULTS[planned_fault.fault].what)
            for planned_fault in planned
        ]
        return output.print_json(planned) if json else output.print_table(("after", "fault", "what happens"), rows)
    if context.home is None:
        _must_be_meant(context, namespace)
    if not _targets():
        raise ValueError("found no training that makes steps now, expected one to do harm to; slipway ls lists them")
    record = context.durable / "chaos" / f"{time.strftime('%Y%m%dT%H%M%S')}-{seed}.jsonl"
    injections = []
    for done in course.bring_about(planned, _targets, record):
        output.note(f"{done.training}: {done.what}")
        injections.append(done)
    if skipped := schedule.left_out(planned, [injection.fault for injection in injections]):
        output.note(f"left out, as there was nothing to do them to: {', '.join(skipped)}")
    report = _settled(record)
    _print(report, json)
    raise typer.Exit(0 if report.share_right == 1 else 1)


def _must_be_meant(context: command_context.CommandContext, namespace: str) -> None:
    """Raises ValueError unless the namespace of the cluster's jobs was said."""
    own = context.cluster("its namespace").compute.cluster.namespace
    if namespace != own:
        raise ValueError(f"--namespace: found {namespace!r}, expected {own!r}, the namespace whose trainings are hit")


def _targets() -> "list[JobTarget | ClusterTarget]":
    """The trainings that make steps now."""
    from slipway.operations.chaos.cluster import ClusterTarget
    from slipway.operations.chaos.target import JobTarget
    from slipway.resources.compute import cordon
    from slipway.resources.kubernetes.client import Client
    from slipway.resources.launchers.protocol import JobState

    context = command_context.current()
    targets = list[JobTarget | ClusterTarget]()
    for store in context.stores().values():
        facts = store.read()
        if not facts.running or not facts.begun or context.control.status(facts).state is not JobState.RUNNING:
            continue
        if context.home:
            targets.append(JobTarget(facts, context.home))
        else:
            settings = context.cluster("its pods")
            compute = settings.compute
            client = Client(compute.kubeconfig, compute.context, compute.cluster.namespace)
            targets.append(ClusterTarget(facts, context.durable, client, cordon.of_platform(settings)))
    return targets


def _settled(record: Path) -> "ChaosReport":
    """The report, once each fault has its incident, or the time for it is over."""
    from slipway.operations.chaos import course, report
    from slipway.trainer.record import incidents, ledger

    injections = course.read(record) if record.exists() else []
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        stores = {
            injection.training: command_context.current().training(injection.training).folder
            for injection in injections
        }
        recorded = {
            training: [incidents.read(folder, id) for id in incidents.names(folder)]
            for training, folder in stores.items()
        }
        steps = {training: ledger.step_times(ledger.read(folder)) for training, folder in stores.items()}
        chaos_report = report.judged(injections, recorded, steps)
        if chaos_report.complete or time.monotonic() > deadline:
            return chaos_report
        time.sleep(POLL_SECONDS)


def _print(report: "ChaosReport", json: bool) -> None:
    if json:
        return output.print_json(report)
    rows = [
        (
            result.injection.training,
            result.injection.fault,
            result.incident.kind if result.incident else "none",
            "yes" if result.right else "NO",
            "" if result.seconds is None else f"{result.seconds:.1f} s",
        )
        for result in report.results
    ]
    output.print_table(("training", "fault", "cause that was found", "right", "after"), rows)
    for incident in report.unexplained:
        print(f"An incident without a fault: {incident.id}: {incident.reason}")
