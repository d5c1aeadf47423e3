"""Exports: which exported models nothing loads any more, and their removal from the durable tier."""

import dataclasses
from typing import Annotated

import typer

from cli import models, output, place
from cli.verbs import AsJson, verb

SECTION = "Serving"


@verb(models.app, "slipway models gc --apply", section=SECTION, changes=True)
def gc(
    versions: Annotated[
        int, typer.Option(min=1, help="Of each model, so many versions that answered before the one that answers stay.")
    ] = 1,
    hours: Annotated[float, typer.Option(min=0, help="What was wanted so recently stays.")] = 24.0,
    days: Annotated[float, typer.Option(min=0, help="What a person asked for so recently, or is damaged, stays.")] = 30,
    apply: Annotated[bool, typer.Option("--apply", help="Remove it, and do not only say what would go.")] = False,
    json: AsJson = False,
) -> None:
    """Remove exported models that nothing loads any more.

    No version that answers or answered before, no canary, no job, no training that starts from it. The job
    export_retention does so each night. Without --apply, only say what would go.
    """
    from operations.export_retention import ExportLimits, retain
    from recipes.load import load, recipes_folder

    here, limits = place.here(), ExportLimits(versions=versions, hours=hours, days=days)
    with output.progress("looking for what nothing loads") as shown:
        told = retain(here.tiers, load(recipes_folder()), limits, not apply, shown.update)
    if json:
        output.print_json({**dataclasses.asdict(told), "applied": apply})
    else:
        verb_of = "removed" if apply else "would go"
        rows = [(name, f"{size / 1e9:.3f} GB", verb_of) for name, size in told.going.items()]
        rows += [(name, "", f"stays: {'; '.join(why)}") for name, why in told.staying.items()]
        if rows:
            output.print_table(("export", "size", "what becomes of it"), rows)
        print(told.sentence(not apply))
    if told.failed:
        raise ValueError("; ".join(told.failed))
