"""Chaos: faults on purpose, to see that the platform finds and answers each."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import output, place
from cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from operations.chaos.faults import JobTarget
    from operations.chaos.report import ChaosReport
    from resources.home import Home

app = group("Faults on purpose.")
SETTLE_SECONDS = 60.0
"""How long the platform has for the incident of the last fault."""
POLL_SECONDS = 1.0


@verb(app, "slipway chaos --minutes 15 --every 60 --seed 7 --apply", section="Operations")
def chaos(
    minutes: Annotated[float, typer.Option(help="For how long.")] = 15.0,
    every: Annotated[float, typer.Option(help="Seconds between two faults, on average.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same faults at the same times.")] = 0,
    fault: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this fault; may be given several times.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do it, and do not only say what would be done.")] = False,
    json: AsJson = False,
) -> None:
    """Do harm on purpose, and see what the platform makes of it.

    Processes of the embedded instance's running trainings are killed, stopped and slowed down, and checkpoints damaged.
    At the end, each fault stands beside the incident that was recorded for it. Exit code 1 says that a cause is wrong
    or missing.
    """
    from operations.chaos import course, schedule
    from operations.chaos.faults import FAULTS

    home = place.here().embedded("chaos kills processes of this machine")
    names = fault or list(FAULTS)
    if unknown := [name for name in names if name not in FAULTS]:
        raise ValueError(f"--fault: found {unknown[0]!r}, expected one of {', '.join(FAULTS)}")
    planned = schedule.drawn(names, seed, 60 * minutes, every)
    if not apply:
        rows = [(f"{each.at:.0f} s", each.fault, FAULTS[each.fault].what) for each in planned]
        return output.print_json(planned) if json else output.print_table(("after", "fault", "what happens"), rows)
    record = home.durable / "chaos" / f"{time.strftime('%Y%m%dT%H%M%S')}-{seed}.jsonl"
    injections = []
    for done in course.bring_about(planned, lambda: _targets(home), record):
        output.note(f"{done.training}: {done.what}")
        injections.append(done)
    report = _settled(record)
    _print(report, json)
    raise typer.Exit(0 if report.share_right == 1 else 1)


def _targets(home: "Home") -> "list[JobTarget]":
    """The trainings that make steps now."""
    from operations.chaos.faults import JobTarget
    from resources.launchers.protocol import JobState

    here, found = place.here(), list[JobTarget]()
    for store in here.stores().values():
        facts = store.read()
        if facts.running and facts.begun and here.control.status(facts).state is JobState.RUNNING:
            found.append(JobTarget(facts, home.nodes, home.durable))
    return found


def _settled(record: Path) -> "ChaosReport":
    """The report, once each fault has its incident, or the time for it is over."""
    from operations.chaos import course, report
    from trainer.record import incidents

    injections = course.read(record) if record.exists() else []
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        stores = {each.training: place.here().training(each.training).folder for each in injections}
        recorded = {
            training: [incidents.read(folder, id) for id in incidents.names(folder)]
            for training, folder in stores.items()
        }
        found = report.judged(injections, recorded)
        if all(each.incident for each in found.results) or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)


def _print(report: "ChaosReport", json: bool) -> None:
    if json:
        return output.print_json(report)
    rows = [
        (
            each.injection.training,
            each.injection.fault,
            each.incident.kind if each.incident else "none",
            "yes" if each.right else "NO",
            "" if each.seconds is None else f"{each.seconds:.1f} s",
        )
        for each in report.results
    ]
    output.print_table(("training", "fault", "cause that was found", "right", "after"), rows)
    for each in report.unexplained:
        print(f"An incident without a fault: {each.id}: {each.reason}")
