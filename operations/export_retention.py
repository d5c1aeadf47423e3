"""Export retention: each night, removes exported models that nothing loads any more from the durable tier.

What stays: the version that answers, a canary, the versions that answered before and that a rollback asks for, what a
job is about to load, what a training or a recipe starts from, and what was wanted a short while ago. An export that a
person asked for stays longer, and for good once its checkpoint is gone. Any other can be made again from its
checkpoint, which a registered model keeps. Where a record cannot be read, nothing that it may refer to is removed.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets.execution import pods
from slipway.operations.references import Reasons, ReferenceReader, References
from slipway.recipes.load import Recipes
from slipway.resources import exports
from slipway.resources.exports import Export
from slipway.resources.serving import wishes
from slipway.resources.short_jobs import attempts
from slipway.resources.short_jobs.running import Say
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import all_trainings
from slipway.serving.records import ServedVersion, ServingRecords
from slipway.trainer.base import lock, removal
from slipway.trainer.base.quantities import counted
from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.checkpoint.tiers.tier import DURABLE

NAME = "export_retention"


class ExportLimits(dg.Config):
    """What stays although nothing loads it."""

    versions: int = Field(
        default=1, ge=1, description="So many versions that answered before the one that answers, of each model"
    )
    hours: float = Field(
        default=24.0, ge=0, description="What was wanted so recently: somebody may be about to load it"
    )
    days: float = Field(default=30.0, ge=0, description="What a person asked for so recently; and what is damaged")


class ExportRetentionConfig(ExportLimits):
    """What stays, and whether anything goes."""

    dry_run: bool = Field(default=False, description="Remove nothing, and list what would go")


@dataclass
class RetainedExports:
    """What became of all exports."""

    going: dict[str, int] = field(default_factory=dict)
    """Those that were removed, or would be, relative to the durable tier, with their bytes."""
    staying: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The others, with why they stay."""
    failed: list[str] = field(default_factory=list)
    """What could not be read or removed, a sentence each."""

    @property
    def bytes(self) -> int:
        """Of those that go."""
        return sum(self.going.values())

    def sentence(self, dry_run: bool) -> str:
        did = "would remove" if dry_run else "removed"
        gone = counted(len(self.going), "export")
        staying = counted(len(self.staying), "stays", "stay")
        return f"{did} {gone} of {self.bytes / 1e9:.3f} GB; {staying}"


def retain(tiers: Tiers, recipes: Recipes, limits: ExportLimits, dry_run: bool, say: Say) -> RetainedExports:
    """Remove the exports that nothing loads, unless this is a dry run.

    Raises OSError and ValueError, before anything is removed, where what refers to exports cannot be read.
    """
    keeper = _Keeper(tiers, recipes, limits)
    retained = RetainedExports()
    known = keeper.read()
    for model in exports.models(tiers.durable_path):
        try:
            _retain_of(model, keeper, known, retained, dry_run, say)
        except (OSError, ValueError) as error:
            retained.failed.append(
                f"{f'model {model}' if model else exports.EXPORTS}: nothing more was removed: {error}"
            )
    return retained


def _retain_of(
    model: str, keeper: "_Keeper", known: References, retained: RetainedExports, dry_run: bool, say: Say
) -> None:  # fmt: skip
    """Bring the exports of one model under its limits. Raises OSError and ValueError."""
    if dry_run:
        retained.going |= {export.name: export.bytes for export in keeper.judged(model, known, retained)}
        return
    try:
        with exports.collecting(keeper.durable, model):
            exports.put_all_back(keeper.durable, model)
            if going := keeper.judged(model, known, retained):
                _remove(going, keeper, retained, say)
    except lock.LockHeld as error:
        why = f"somebody asks for a version at this moment: {error}"
        retained.staying |= {export.name: (why,) for export in exports.of_model(keeper.durable, model)}


def _remove(going: list[Export], keeper: "_Keeper", retained: RetainedExports, say: Say) -> None:
    """Set exports aside, and remove those that nothing loads still. Raises OSError and ValueError."""
    durable = keeper.durable
    aside = [(export, folder) for export in going if (folder := exports.set_aside(durable, export))]
    try:
        known = keeper.read()
        reasons_by_export = {export.name: keeper.reasons(export, known, durable / folder) for export, folder in aside}
    except BaseException:  # what refers to them is not known any more
        for _, folder in aside:
            exports.put_back(durable, folder)
        raise
    for export, folder in aside:
        if reasons := reasons_by_export[export.name]:
            exports.put_back(durable, folder)
            retained.staying[export.name] = tuple(reasons)
        else:
            removal.remove_folder(durable, folder)
            retained.going[export.name] = export.bytes
            say(f"removed {export.name}, {export.bytes / 1e9:.3f} GB")


class _Keeper:
    """Says why exports stay; all that refers to them is read anew as often as asked."""

    def __init__(self, tiers: Tiers, recipes: Recipes, limits: ExportLimits) -> None:
        self.durable = tiers.durable_path
        self._limits = limits
        self._tiers = tiers
        self._recipes = recipes
        self._trainings = ReferenceReader(tiers, None)

    def read(self) -> References:
        """What refers to exports, but for what is served. Raises OSError and ValueError."""
        references = self._trainings.read()
        for folder, why in [*_by_recipes(self._recipes), *_by_jobs(self.durable)]:
            references.folders.setdefault(folder, []).append(why)
        return references

    def judged(self, model: str, known: References, retained: RetainedExports) -> list[Export]:
        """The exports of a model that may go; `retained` gets why others stay. Raises OSError and ValueError."""
        why = {export: self.reasons(export, known) for export in exports.of_model(self.durable, model)}
        retained.staying |= {export.name: tuple(reasons) for export, reasons in why.items() if reasons}
        return [export for export, reasons in why.items() if not reasons]

    def reasons(self, export: Export, known: References, folder: Path | None = None) -> list[str]:
        """Why an export stays, whose files lie in `folder`, or in its own place. Raises OSError and ValueError."""
        export_folder = self.durable / export.name
        reasons = list(known(str(export_folder), ""))
        if export.kind == "served":
            reasons += _served(ServingRecords(self.durable), export.model, self._limits.versions).get(export.name, [])
        patience = self._limits.hours * HOUR if export.kind in ("served", "unfinished") else self._limits.days * DAY
        if time.time() - exports.used(folder or export_folder) < patience:
            reasons.append(_RECENT[export.kind])
        if export.kind == "asked" and not reasons:
            reasons += self._last_copy(export_folder)
        return reasons

    def _last_copy(self, export_folder: Path) -> list[str]:
        """That an export cannot be made again. Raises OSError and ValueError."""
        training, _, step = export_folder.name.rpartition("-")[0].rpartition(".")
        store = all_trainings(self._tiers).store(training)
        if training and step.isdecimal() and store.folder.is_dir():
            facts = store.read()
            if any(commit.step == int(step) for commit in facts.commits_on(DURABLE)):
                return []
        return ["its checkpoint is gone, so that it cannot be made again: remove the folder by hand"]


_RECENT: Mapping[str, str] = {
    "served": "it was wanted a short while ago",
    "unfinished": "it may be being written",
    "asked": "a person asked for it a short while ago",
    "damaged": "it was found damaged a short while ago",
}


def _served(records: ServingRecords, model: str, versions: int) -> Reasons:
    """What answers, is to, or has, by the folder of its export. Raises OSError and UndecodableRecord."""
    reasons: Reasons = {}
    state = records.state(model)
    for version, why in ((state.settled, "answers"), (state.coming, "is about to answer")):
        if version is not None:
            reasons.setdefault(version.folder, []).append(f"version {version.number} of {model} {why}")
    former: list[ServedVersion] = []
    for version in reversed(list(wishes.settled(records, model))):
        known = {former_version.folder for former_version in former}
        if version.folder not in known and (state.settled is None or version.folder != state.settled.folder):
            former.append(version)
    # Where nothing answers, the newest of them is what going back leads to, and the next one is its rollback.
    for version in former[: versions + (state.settled is None)]:
        reasons.setdefault(version.folder, []).append(f"version {version.number} of {model} answered before")
    return reasons


def _by_jobs(durable: Path) -> Iterator[tuple[str, str]]:
    """The exports that jobs under way load or write, and which job it is. Raises OSError and UndecodableRecord."""
    for job in attempts.under_way(durable):
        config: Mapping[str, Any] = job.config
        for folder in (config.get("version", {}).get("folder"), config.get("target")):
            if folder:
                yield str(durable / folder), f"job {job.name} is under way"


def _by_recipes(recipes: Recipes) -> Iterable[tuple[str, str]]:
    """The folders from whose weights recipes start."""
    for recipe in recipes.trainings.values():
        if recipe.init is not None and recipe.init.huggingface is not None:
            yield recipe.init.huggingface, f"the recipe {recipe.name} starts from it"


def job(recipes: Recipes) -> dg.JobDefinition:
    """The job over all exports of the durable tier."""

    @dg.op(description="Removes the exports that nothing loads any more.", tags=pods.tags("garbage"))
    def retain_exports(context: dg.OpExecutionContext, config: ExportRetentionConfig, tiers: Tiers) -> dg.Output[None]:
        """Raises Failure, after all others, with what could not be read or removed; else as `retain`."""
        retained = retain(tiers, recipes, config, config.dry_run, context.log.info)
        context.log.info(retained.sentence(config.dry_run))
        metadata: dict[str, Any] = {
            "exports": len(retained.going),
            "bytes": retained.bytes,
            "going": dg.MetadataValue.json(retained.going),
            "staying": dg.MetadataValue.json(retained.staying),
        }
        if retained.failed:
            raise dg.Failure("; ".join(retained.failed), metadata=metadata)
        return dg.Output(None, metadata=metadata)

    @dg.job(name=NAME, description="Removes exported models that nothing loads any more from the durable tier.")
    def retention() -> None:
        retain_exports()

    return retention


schedule = dg.ScheduleDefinition(
    name="export_retention_nightly",
    cron_schedule="45 3 * * *",
    job_name=NAME,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each night at 03:45.",
)
