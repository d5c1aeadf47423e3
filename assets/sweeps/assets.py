"""Sweeps in the graph: one asset that searches, one external asset whose partitions are the trials."""

from typing import Any

import dagster as dg

from assets import keys, plots, pods
from assets.datasets import snapshot as snapshots
from assets.initial import settled
from assets.sweeps.controller import Controller, Subject, trial_id, trials_of
from assets.sweeps.report import Report, markdown, report
from assets.sweeps.state import Sweep, Trial
from assets.sweeps.store import SweepStore, sweep_id
from recipes.schema import Sweep as SweepRecipe
from recipes.schema import Training
from resources.compute import Compute
from resources.event_log import materialised
from resources.tiers import Tiers
from resources.tracking import Tracking
from trainer import atomic, contents, digest, ledger
from trainer.snapshots import read


def sweep_assets(recipe: SweepRecipe, training: Training) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """The sweep of one lane and its trials."""
    trial = dg.AssetSpec(
        keys.key(recipe.name, "trial"),
        deps=[keys.key(recipe.name, "sweep")],
        partitions_def=keys.trial_partitions(recipe.name),
        group_name=keys.lane(recipe.name),
        kinds={"torch"},
        owners=[recipe.owner],
        description="One trial of the sweep: its parameters, how far it came, and its validation loss.",
    )

    @dg.asset(
        key=keys.key(recipe.name, "sweep"),
        deps=[keys.key(training.dataset, "snapshot")],
        group_name=keys.lane(recipe.name),
        kinds={"optuna"},
        op_tags=pods.tags("sweep"),
        owners=[recipe.owner],
        description=(
            f"{recipe.description}. Trials are jobs of their own; losing this run loses nothing, the next one "
            "re-attaches to them. When the sweep is complete, its best parameters are trained at full length."
        ),
    )
    def sweep(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.MaterializeResult[None]:
        subject = current_subject(recipe, training, tiers, tracking)
        store = open_sweep(subject, tiers)
        context.instance.add_run_tags(context.run.run_id, {keys.SWEEP_TAG: store.sweep})
        shown = _Shown(context, recipe, store)
        ended = Controller(store, subject, compute.control(tiers), compute.poll_seconds).run(shown.update)
        assert ended.closed is not None
        found = report(ended)
        if ended.closed.outcome != "complete":
            raise dg.Failure(f"sweep {store.sweep} {ended.closed.outcome}: {ended.closed.reason}")
        return dg.MaterializeResult(metadata=_metadata(found, store), data_version=dg.DataVersion(store.sweep))

    return [sweep, trial]


def current_subject(recipe: SweepRecipe, training: Training, tiers: Tiers, tracking: Tracking) -> Subject:
    """What the recipe means now. Raises ValueError when its dataset has no snapshot yet, or as `settled` does."""
    snapshot = snapshots.current(tiers.durable_path, training.dataset)
    if snapshot is None:
        raise ValueError(f"sweep {recipe.name}: dataset {training.dataset} has no snapshot yet: materialise it first")
    tokenizer = contents.tokenizer_digest(read(tiers.durable_path, snapshot))
    return Subject(recipe, settled(training, snapshot, tiers, tracking), snapshot, tokenizer)


def find_sweep(subject: Subject, tiers: Tiers) -> SweepStore:
    """The store of the sweep that the subject means, whether or not it has been opened."""
    return SweepStore(tiers.durable_path / "sweeps" / sweep_id(subject.recipe.name, subject.specification()))


def open_sweep(subject: Subject, tiers: Tiers) -> SweepStore:
    """The sweep, opened if nobody has."""
    store = find_sweep(subject, tiers)
    store.create(subject.specification())
    if store.state() is None:
        recipe_hash = digest.sha256(atomic.canonical_json(subject.specification()))
        store.append(subject.opened(store.sweep, recipe_hash))
    return store


class _Shown:
    """Shows each trial in the UI when it has ended, and the sweep's progress in the run's log."""

    def __init__(self, context: dg.AssetExecutionContext, recipe: SweepRecipe, store: SweepStore) -> None:
        self._context, self._recipe, self._store = context, recipe, store
        self._lines: dict[int, str] = {}

    def update(self, sweep: Sweep) -> None:
        for trial in sweep.trials.values():
            line = f"trial {trial.number}: {trial.state}, step {trial.last_step}, {trial.parameters}"
            if self._lines.get(trial.number) != line:
                self._lines[trial.number] = line
                self._context.log.info(line)
                if (trial.ended and trial.state != "failed") or trial in sweep.failed_lineages:
                    self._show(trial)

    def _show(self, trial: Trial) -> None:
        key, partition = keys.key(self._recipe.name, "trial"), trial_id(self._store, trial.number)
        if materialised(self._context.instance, key, partition):
            return
        keys.add_partition(self._context.instance, keys.trial_partitions(self._recipe.name), partition)
        curve = ledger.loss_curve(trials_of(self._store).store(partition).events())
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


def _metadata(found: Report, store: SweepStore) -> dict[str, Any]:
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
