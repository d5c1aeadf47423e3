"""The assets of a sweep: one asset that searches, and one external asset whose partitions are the trials."""

from typing import Any

import dagster as dg

from assets import keys, plots
from assets.datasets.snapshots import pointer
from assets.execution import pods
from assets.initial import with_initial_weights
from assets.sweeps.controller import Controller, SearchSubject, trial_id, trials_of
from assets.sweeps.report import SweepReport, markdown, report
from assets.sweeps.state import SweepState, Trial
from assets.sweeps.store import SweepStore, sweep_id
from recipes.sweep import SweepRecipe
from recipes.training import ModelRecipe
from resources.compute.protocol import Compute
from resources.event_log import materialised
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings import course
from trainer.base import atomic, digest
from trainer.data import contents
from trainer.data.snapshots import read
from trainer.record import ledger


def sweep_assets(recipe: SweepRecipe, training: ModelRecipe) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """The assets of one sweep recipe: the sweep and its trials."""
    trial = dg.AssetSpec(
        keys.key(recipe.name, "trial"),
        deps=[keys.key(recipe.name, "sweep")],
        partitions_def=keys.trial_partitions(recipe.name),
        group_name=keys.lane(recipe.name),
        kinds={"torch"},
        owners=[recipe.owner],
        description="One trial of the sweep: its parameters, its steps, and its validation loss.",
    )

    @dg.asset(
        key=keys.key(recipe.name, "sweep"),
        deps=[keys.key(training.dataset, "snapshot")],
        group_name=keys.lane(recipe.name),
        kinds={"optuna"},
        op_tags=pods.tags("sweep"),
        owners=[recipe.owner],
        description=(
            f"{recipe.description}. Each trial is a job; when this run is lost, the next run adopts the jobs. "
            "When the sweep is complete, a training with its best parameters starts at full length."
        ),
    )
    def sweep(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.MaterializeResult[None]:
        subject = current_subject(recipe, training, tiers, tracking)
        store = open_sweep(subject, tiers)
        context.instance.add_run_tags(context.run.run_id, {keys.SWEEP_TAG: store.sweep})
        display = _Display(context, recipe, store)
        ended = Controller(store, subject, compute.control(tiers), compute.poll_seconds).run(display.update)
        assert ended.closed is not None
        found = report(ended)
        if ended.closed.outcome != "complete":
            raise dg.Failure(f"sweep {store.sweep} {ended.closed.outcome}: {ended.closed.reason}")
        return dg.MaterializeResult(metadata=_metadata(found, store), data_version=dg.DataVersion(store.sweep))

    return [sweep, trial]


def current_subject(recipe: SweepRecipe, training: ModelRecipe, tiers: Tiers, tracking: Tracking) -> SearchSubject:
    """What the recipe searches now. Raises ValueError without a snapshot, and as `with_initial_weights` does."""
    snapshot = pointer.current(tiers.durable_path, training.dataset)
    if snapshot is None:
        raise ValueError(
            f"sweep {recipe.name}: dataset {training.dataset} has no snapshot yet; "
            f"to make it: slipway data build {training.dataset}"
        )
    tokenizer = contents.tokenizer_digest(read(tiers.durable_path, snapshot))
    return SearchSubject(recipe, with_initial_weights(training, snapshot, tiers, tracking), snapshot, tokenizer)


def find_sweep(subject: SearchSubject, tiers: Tiers) -> SweepStore:
    """The store of the subject's sweep, whether or not the sweep is open."""
    return SweepStore(tiers.durable_path / "sweeps" / sweep_id(subject.recipe.name, subject.specification()))


def open_sweep(subject: SearchSubject, tiers: Tiers) -> SweepStore:
    """The store of the subject's sweep, which is opened if it is not open yet."""
    store = find_sweep(subject, tiers)
    store.create(subject.specification())
    store.open(subject.opened(store.sweep, digest.sha256(atomic.canonical_json(subject.specification()))))
    return store


class _Display:
    """Shows each ended trial in the UI, and the sweep's progress in the log of the run."""

    def __init__(self, context: dg.AssetExecutionContext, recipe: SweepRecipe, store: SweepStore) -> None:
        self._context, self._recipe, self._store = context, recipe, store
        self._lines: dict[int, str] = {}

    def update(self, sweep: SweepState) -> None:
        for trial in sweep.trials.values():
            line = f"trial {trial.number}: {trial.state}, step {trial.last_step}, {trial.parameters}"
            if self._lines.get(trial.number) != line:
                self._lines[trial.number] = line
                self._context.log.info(line)
                if (trial.ended and trial.state != "failed") or trial in sweep.failed_for_good:
                    self._show(trial)

    def _show(self, trial: Trial) -> None:
        key, partition = keys.key(self._recipe.name, "trial"), trial_id(self._store, trial.number)
        if materialised(self._context.instance, key, partition):
            return
        keys.add_partition(self._context.instance, keys.trial_partitions(self._recipe.name), partition)
        curve = ledger.loss_curve(course.read(trials_of(self._store).store(partition).folder).steps)
        metadata: dict[str, Any] = {
            "state": trial.state,
            "steps": trial.last_step,
            "attempts": trial.attempt + 1,
            "loss_curve": plots.curve({"training loss": curve}, "step", "nats per token"),
            **({"validation_loss": trial.value} if trial.value is not None else {}),
            **trial.parameters,
        }
        self._context.instance.report_runless_asset_event(
            dg.AssetMaterialization(key, partition=partition, metadata=metadata)
        )


def _metadata(found: SweepReport, store: SweepStore) -> dict[str, Any]:
    assert found.best_value is not None
    return {
        "sweep": found.sweep,
        "trials": len(found.rows),
        "best_trial": found.best_trial,
        "best_validation_loss": found.best_value,
        "best_parameters": dg.MetadataValue.json(dict(found.best_parameters)),
        "compute_saved": found.compute_saved,
        "report": dg.MetadataValue.md(markdown(found)),
        "dagster/uri": str(store.folder),
    }
