"""Incidents: what interrupted the steps of trainings, what it cost, and whether a person is needed."""

from typing import Annotated

import typer

from cli import output, place
from cli.verbs import AsJson, Sections, verb

app = typer.Typer(cls=Sections, invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def incidents(
    context: typer.Context,
    since: Annotated[float | None, typer.Option(metavar="DAYS", min=0, help="Those of the last days alone.")] = None,
    training: Annotated[str, typer.Option(help="Those of this training alone; the beginning of its id will do.")] = "",
    json: AsJson = False,
) -> None:
    """What interrupted trainings, with cause and cost: (all), show.

    Without a verb all incidents are listed. Example: slipway incidents --since 1 --training tiny-dec
    """
    if context.invoked_subcommand is not None:
        return
    import time

    from resources.trainings import incident_reports, post_mortem

    here = place.here()
    with output.progress("reading the incidents"):
        stores = [here.training(training)] if training else list(here.stores().values())
        found = incident_reports.of_all(stores, 0.0 if since is None else time.time() - since * 86_400)
    if json:
        return output.print_json(found)
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
                f"{i.kind or 'unknown'}: {post_mortem.first_line(i.cause)}",
                i.action,
                i.state,
            )
            for i in found
        ],
    )
    for each in found:
        if each.todo:
            print(f"{each.name} waits for a person: {each.todo}")
    if not found:
        output.note("there is no incident")


@verb(app, "slipway incidents show tiny-decoder-1a2b3c4d5e6f.000001.0000")
def show(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help="Its name, or the beginning of it.")],
    json: AsJson = False,
) -> None:
    """Print the post-mortem of an incident."""
    from cli import names
    from resources.trainings import incident_reports, post_mortem

    here = place.here()
    with output.progress("reading the incidents"):
        stores = here.stores()
        known = {each.name: each for each in incident_reports.of_all(stores.values())}
    report = known[names.resolved(incident, known, "incident")]
    if json:
        return output.print_json(report)
    print(post_mortem.text(stores[report.training], report), end="")
