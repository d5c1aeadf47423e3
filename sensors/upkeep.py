"""Upkeep: what is done by the clock alone: drills of restore, backups of the metadata, a look at the storage."""

from typing import TYPE_CHECKING

import dagster as dg

from assets import keys, metadata_backup, restore_drill, storage
from recipes.schema import Training
from trainer.checkpoint.interval import TIERS

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

DRILL, BACKUP, STORAGE = "restore_drill", "metadata_backup", "storage_outlook"
WHEN = {DRILL: "30 4 * * *", BACKUP: "0 4 * * *", STORAGE: "5 * * * *"}
"""By job: each night, and each hour."""


def jobs(trainings: dict[str, Training], own_databases: bool) -> list["UnresolvedAssetJobDefinition"]:
    """A job for each kind of upkeep; of databases that are not our own files, somebody else makes the backups."""
    checks = [
        dg.AssetCheckKey(keys.key(recipe, "checkpoint"), restore_drill.check_name(tier))
        for recipe in trainings
        for tier in TIERS
    ]
    selections = {
        DRILL: (
            dg.AssetSelection.checks(*checks),
            "Restores a recent checkpoint from each tier and compares its loss.",
        ),
        BACKUP: (dg.AssetSelection.assets(metadata_backup.KEY), "Backs the metadata up, and restores the backup."),
        STORAGE: (dg.AssetSelection.assets(storage.KEY), "Looks ahead at how each tier fills."),
    }
    return [
        dg.define_asset_job(name, chosen, description=said)
        for name, (chosen, said) in selections.items()
        if own_databases or name != BACKUP
    ]


def schedules(own_databases: bool) -> list[dg.ScheduleDefinition]:
    """The schedules of all jobs here."""
    return [
        dg.ScheduleDefinition(
            name=f"{name}_schedule", cron_schedule=cron, job_name=name, default_status=dg.DefaultScheduleStatus.RUNNING
        )
        for name, cron in WHEN.items()
        if own_databases or name != BACKUP
    ]
