"""Backup of what the control plane keeps, and its restore: Dagster's and MLflow's databases, and the recipes."""

from typing import Annotated

import typer

from cli import output, place
from cli.verbs import AsJson, group, verb

app = group("Upkeep.")


@verb(app, "slipway backup", section="Instance")
def backup(json: AsJson = False) -> None:
    """Back up the databases and the recipes.

    Dagster's and MLflow's databases go to the backup tier (SLIPWAY_BACKUP), or to the durable one without it.
    """
    from operations.metadata_backup import back_up
    from recipes.load import recipes_folder

    here = place.here()
    home = here.embedded("a cluster's databases are backed up by their own server's means")
    if not home.dagster.is_dir():
        raise ValueError(f"SLIPWAY_HOME {home.root}: found no instance, expected one that has been started once")
    with output.progress("backing up"), here.dagster() as instance:
        made = back_up(instance, here.tiers, here.tracking, recipes_folder())
    if json:
        return output.print_json(made)
    print(f"{made.folder}: {made.bytes:,} bytes, manifest {made.manifest}")


@verb(app, "slipway restore", section="Instance")
def restore(
    backup: Annotated[
        str,
        typer.Argument(metavar="[BACKUP]", help="Its folder, as `slipway backup` prints it; by default the newest."),
    ] = "",
    json: AsJson = False,
) -> None:
    """Put the databases back from a backup.

    The instance must be down. What is there now is set aside; what was made since the backup is shown again by the
    sensors when the instance is up. Recipes stay as they are.
    """
    from deploy.embedded import instance
    from operations import metadata_restore

    here = place.here()
    home = here.embedded("a cluster's databases are restored by their own server's means")
    if (there := instance.holder(home)) or instance.decides_elsewhere(home):
        who = f"process {there['pid']}" if there else instance.decides_elsewhere(home)
        raise ValueError(f"SLIPWAY_HOME {home.root}: found a running instance ({who}), expected none: slipway down")
    with output.progress("restoring"):
        done = metadata_restore.restore(home, here.tiers, backup)
    if json:
        return output.print_json(done)
    print(f"restored {done.folder}; {done.trainings} trainings and trials are looked at again: slipway up")
    for path in done.aside:
        print(f"what was there before: {path}")
