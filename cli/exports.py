"""Exports: writing a registered version elsewhere, and the removal of exported models that nothing loads any more."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import checkpoints, command_context, models, output
from slipway.cli.verbs import AsJson, verb

if TYPE_CHECKING:
    from slipway.resources.mlflow.registry import Version
    from slipway.resources.trainings.store import TrainingStore
    from slipway.trainer.record.fence import Commit

SECTION = "Serving"


@verb(models.app, "slipway models export slipway-tiny --to ./tiny-llama", changes=True)
def export(
    model: models.Model,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The new folder to make.")],
    version: Annotated[int | None, typer.Argument(metavar="[VERSION]", help="By default the champion.")] = None,
    precision: Annotated[str, typer.Option(help="The type of the weights: bf16 or fp32.")] = "bf16",
    file_gb: Annotated[float, typer.Option(help="The largest size of a weight file, in GB.")] = 5.0,
    json: AsJson = False,
) -> None:
    """Write a registered version in the Hugging Face layout.

    As `slipway checkpoints export` does with the checkpoint of a training.
    """
    with output.progress("asking the registry"):
        context = command_context.current()
        chosen = models.chosen(model, version)
    store, commit = _committed(context, chosen)
    manifest = checkpoints.exported(context, store, commit, to, None, precision, int(file_gb * 1e9))
    checkpoints.show_export(to, manifest, json)


def _committed(context: command_context.CommandContext, chosen: "Version") -> "tuple[TrainingStore, Commit]":
    """The checkpoint of a version, as its training committed it. Raises ValueError where it is gone."""
    store = context.stores(trials=True).get(chosen.training)
    commits = store.commits() if store else []
    match = next((commit for commit in commits if commit.manifest == chosen.manifest), None)
    if store is None or match is None:
        training = chosen.training or "none"
        gone = f"model {chosen.model}: version {chosen.number}: found no checkpoint {chosen.manifest[:12]}"
        raise ValueError(f"{gone} of its training ({training}), expected one that retention has kept")
    return store, match


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
    from slipway.operations.export_retention import ExportLimits, retain
    from slipway.recipes.load import load, recipes_folder

    context = command_context.current()
    limits = ExportLimits(versions=versions, hours=hours, days=days)
    with output.progress("looking for what nothing loads") as progress_line:
        retained = retain(context.tiers, load(recipes_folder()), limits, not apply, progress_line.update)
    if json:
        output.print_json({**dataclasses.asdict(retained), "applied": apply})
    else:
        verb_of = "removed" if apply else "would go"
        rows = [(name, f"{size / 1e9:.3f} GB", verb_of) for name, size in retained.going.items()]
        rows += [(name, "", f"stays: {'; '.join(why)}") for name, why in retained.staying.items()]
        if rows:
            output.print_table(("export", "size", "what becomes of it"), rows)
        print(retained.sentence(not apply))
    if retained.failed:
        raise ValueError("; ".join(retained.failed))
