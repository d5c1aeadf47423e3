"""Incidents: what interrupted the steps of trainings, what it cost, and whether a person is needed."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, names, output
from slipway.cli.verbs import AsJson, Sections, verb

if TYPE_CHECKING:
    from slipway.resources.trainings.store import TrainingStore

app = typer.Typer(cls=Sections, invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def incidents(
    typer_context: typer.Context,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="All that happened since, such as 12h, 90m or 7d; not incidents alone.")
    ] = "",
    training: Annotated[str, typer.Option(help="Of this training alone; the beginning of its id will do.")] = "",
    page: Annotated[Path | None, typer.Option(help="With --since: also write an HTML page to this file.")] = None,
    json: AsJson = False,
) -> None:
    """What interrupted trainings, with cause and cost: (all), show.

    Without a verb and a time all incidents are listed. With --since, all that happened since is listed: incidents,
    damaged checkpoints, faults of tiers, rejections; what waits for a person comes first, however old it is.
    Example: slipway incidents --since 12h --page morning.html
    """
    if typer_context.invoked_subcommand is not None:
        return
    context = command_context.current()
    store = context.training(training) if training else None
    if since:
        return _daily_report(context, names.seconds(since, "--since"), store, page, json)
    if page is not None:
        raise ValueError("--page: found no --since, expected the time that the page is about, such as --since 12h")
    _list(context, store, json)


def _daily_report(
    context: command_context.CommandContext,
    seconds: float,
    store: "TrainingStore | None",
    page: Path | None,
    json: bool,
) -> None:
    """Everything since so many seconds ago."""
    from slipway.resources.daily_report import page as pages
    from slipway.resources.daily_report import reading, text
    from slipway.resources.daily_report.report import report

    now = time.time()
    with output.progress("reading the records"):
        summary = report(reading.read_facts(context.durable, now - seconds, now, store))
    if page is not None:
        pages.write(summary, page)
        output.note(f"the page is {page}")
    if json:
        return output.print_json({**vars(summary), "sentence": summary.sentence})
    print(text.digest(summary))


def _list(context: command_context.CommandContext, store: "TrainingStore | None", json: bool) -> None:
    """All incidents, a line each."""
    from slipway.resources.trainings import incident_reports

    with output.progress("reading the incidents"):
        reports = incident_reports.of_all([store] if store else context.stores().values())
    if json:
        return output.print_json(reports)
    head = ("when", "incident", "nodes", "ranks", "seconds", "steps", "cause", "action", "state")
    output.print_table(
        head,
        [
            (
                output.when(i.at),
                i.name,
                ", ".join(i.nodes) or "-",
                ", ".join(map(str, i.ranks)) or "-",
                "-" if i.seconds_lost is None else f"{i.seconds_lost:.1f}",
                "-" if i.steps_lost is None else i.steps_lost,
                f"{i.kind or 'unknown'}: {incident_reports.first_line(i.cause)}",
                i.action,
                i.state,
            )
            for i in reports
        ],
    )
    for report in reports:
        if report.todo:
            print(f"{report.name} waits for a person: {report.todo}")
    if not reports:
        output.note("there is no incident")


@verb(app, "slipway incidents show tiny-decoder-1a2b3c4d5e6f.000001.0000")
def show(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help="Its name, or the beginning of it.")],
    json: AsJson = False,
) -> None:
    """Print the post-mortem of an incident."""
    from slipway.cli import names
    from slipway.resources.trainings import incident_reports

    context = command_context.current()
    with output.progress("reading the incidents"):
        stores = context.stores()
        known = {entry.name: entry for entry in incident_reports.of_all(stores.values())}
    report = known[names.resolved(incident, known, "incident")]
    if json:
        return output.print_json(report)
    print(incident_reports.post_mortem(stores[report.training], report), end="")
