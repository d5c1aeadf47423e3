"""Backup of what the control plane keeps, its restore, and the upgrade from an earlier release."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, output
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base.quantities import counted

if TYPE_CHECKING:
    from slipway.cli.command_context import CommandContext
    from slipway.operations.metadata_restore import Restored
    from slipway.operations.upgrade.upgrading import UpgradePlan

app = group("Upkeep.")


@verb(app, "slipway backup", section="Instance", changes=True)
def backup(json: AsJson = False) -> None:
    """Back up the databases, the settings and the recipes.

    Dagster's and MLflow's databases go to the backup tier (SLIPWAY_BACKUP; on a cluster, tiers.backup), or to the
    durable one without it.
    """
    from slipway.operations.metadata_backup import back_up
    from slipway.recipes.load import recipes_folder

    context = command_context.current()
    if (home := context.home) is not None and not home.dagster.is_dir():
        raise ValueError(f"SLIPWAY_HOME {home.root}: found no instance, expected one that has been started once")
    with output.progress("backing up"), context.dagster() as instance:
        result = back_up(instance, context.tiers, context.tracking, recipes_folder())
    if json:
        return output.print_json(result)
    print(f"{result.folder}: {result.bytes:,} bytes, manifest {result.manifest}")


@verb(app, "slipway restore", section="Instance", changes=True)
def restore(
    backup: Annotated[
        str,
        typer.Argument(metavar="[BACKUP]", help="Its folder, as `slipway backup` prints it; by default the newest."),
    ] = "",
    json: AsJson = False,
) -> None:
    """Put the databases back from a backup.

    The instance must be down; on a cluster, nothing may be connected to the databases. What is there in a home is set
    aside. What was made since the backup is shown again by the sensors when the instance is up. Recipes stay as they
    are, and so do settings that are there.
    """
    context = command_context.current()
    with _kept_down(context, "slipway restore"), output.progress("restoring"):
        done = _restored(context, backup)
    if json:
        return output.print_json(done)
    print(f"restored {done.folder}; {done.trainings} trainings and trials are looked at again: start the instance")
    if done.takedowns:
        print(f"{done.takedowns} takedowns of documents were missing: slipway data build, for each of these datasets")
    if done.settings:
        print(f"settings that were missing: {', '.join(done.settings)}")
    for path in done.aside:
        print(f"what was there before: {path}")


@verb(app, "slipway upgrade --dry-run", section="Instance", changes=True)
def upgrade(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be changed.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last upgrade back.")] = False,
    json: AsJson = False,
) -> None:
    """Bring what an earlier release wrote to the formats of today.

    The instance must be down. The databases are backed up first, and a copy of each file that changes is kept, so that
    it can be taken back. An upgrade that was interrupted is finished by the next one, or when the instance starts.
    """
    from slipway.operations.upgrade import upgrading

    if dry_run and undo:
        raise ValueError("--dry-run and --undo: found both, expected one of them")
    context = command_context.current()
    if dry_run:
        return _print_plan(
            upgrading.plan(context.durable, command_context.actor(changes=False)), "would be migrated", json
        )
    with _kept_down(context, "slipway upgrade"):
        if undo:
            return _print_plan(upgrading.undo(context.durable, command_context.actor()), "taken back", json)
        with output.progress("upgrading"):
            plan = upgrading.upgrade(context.durable, command_context.actor(), lambda: _backed_up(context))
    _print_plan(plan, "migrated", json)


def _print_plan(plan: "UpgradePlan", what: str, json: bool) -> None:
    if json:
        return output.print_json(plan)
    if plan.was == plan.to:
        print(f"nothing to do: this is state {plan.to}")
        return
    print(f"from state {plan.was} to {plan.to}: {counted(len(plan.changes), 'file')} {what}")
    output.print_table(("file", "formats"), [(change.path, change.formats) for change in plan.changes])
    for path, problem in plan.problems.items():
        print(f"{path} stays as it is: {problem}")
    if plan.backup:
        print(f"the databases as they were before: slipway restore {plan.backup}")


@contextlib.contextmanager
def _kept_down(context: "CommandContext", command: str) -> Iterator[None]:
    """Meanwhile no instance decides here, and in a home none can start. Raises ValueError and CannotStart
    while one does."""
    if (home := context.home) is None:
        from slipway.resources import postgresql

        for service in postgresql.services():
            postgresql.require_alone(service)
        yield
        return
    from slipway.deploy.embedded import home_lock, instance

    with home_lock.kept_down(home, command):
        if running := instance.decides_elsewhere(home):
            raise ValueError(
                f"SLIPWAY_HOME {home.root}: found a running instance ({running}), expected none: slipway down"
            )
        yield


def _restored(context: "CommandContext", backup: str) -> "Restored":
    from slipway.operations import metadata_restore

    if context.home is not None:
        return metadata_restore.restore(context.home, context.tiers, command_context.actor(), backup)
    return metadata_restore.restore_servers(context.tiers, command_context.actor(), backup, Path(tempfile.gettempdir()))


def _backed_up(context: "CommandContext") -> str:
    """A backup of the databases before an upgrade; empty where there are none yet."""
    if context.home is not None and not context.home.dagster.is_dir():
        return ""
    from slipway.operations.metadata_backup import back_up
    from slipway.recipes.load import recipes_folder

    with context.storage() as instance:
        return back_up(instance, context.tiers, context.tracking, recipes_folder()).folder
