"""The assets of a sweep: one that runs the search, and an external asset with a partition for each trial."""

from typing import Any

import dagster as dg

from slipway.assets import holdout_filter, keys, plots, spent, training_data
from slipway.assets.execution import pods
from slipway.assets.initial import with_initial_weights
from slipway.assets.sweeps import tracked
from slipway.assets.sweeps.controller import Controller
from slipway.assets.sweeps.report import report_file
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.showing import SweepPictures, metadata
from slipway.assets.sweeps.slots import Slots
from slipway.assets.sweeps.state import SweepState, Trial
from slipway.assets.sweeps.store import SweepStore, sweep_id
from slipway.assets.sweeps.trials import trial_id, trials_of
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.event_log import materialized
from slipway.resources.fleet.protocol import Fleet
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.accounts import cost_if_any
from slipway.resources.trainings.metric_series import read_sample
from slipway.trainer.data import contents
from slipway.trainer.data.snapshots import read
from slipway.trainer.record import ledger


def sweep_assets(recipe: SweepRecipe, training: ModelRecipe) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """The assets of one sweep recipe: the sweep and its trials."""
    trial = dg.AssetSpec(
        keys.key(recipe.name, "trial"),
        deps=[keys.key(recipe.name, "sweep")],
        partitions_def=keys.trial_partitions(recipe.name),
        group_name=keys.lane(recipe.name),
        kinds={"torch"},
        owners=[recipe.owner],
        description="One trial of the sweep, with its parameters, steps and validation loss. The sweep reports it.",
    )

    @dg.asset(
        key=keys.key(recipe.name, "sweep"),
        deps=[keys.key(dataset, "snapshot") for dataset in training.datasets],
        group_name=keys.lane(recipe.name),
        kinds={"optuna"},
        op_tags=pods.tags("sweep"),
        owners=[recipe.owner],
        description=(
            f"{recipe.description}. Materialise it to start or continue the sweep. Each trial is a job; if this run is "
            "lost, the next run adopts the jobs. After the sweep, a training with the best parameters starts."
        ),
    )
    def sweep(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.MaterializeResult[None]:
        """Raises Failure if the sweep does not complete, and ValueError if the fleet is too small for its trials."""
        control = compute.control(tiers)
        subject, store = begun_sweep(recipe, training, tiers, control.fleet, tracking)
        context.instance.add_run_tags(context.run.run_id, {keys.SWEEP_TAG: store.sweep})
        tracked.owe(store)
        display = _Display(context, recipe, store)
        ended = Controller(store, subject, control, compute.poll_seconds).run(display.update)
        assert ended.closed is not None
        report = report_file.report_of(store, ended)
        report_file.write(store, report)
        if ended.closed.outcome != "complete":
            reason = f"sweep {store.sweep} {ended.closed.outcome}: {ended.closed.reason}"
            raise dg.Failure(reason, metadata=metadata(report, store))
        return dg.MaterializeResult(metadata=metadata(report, store), data_version=dg.DataVersion(store.sweep))

    return [sweep, trial]


def current_subject(recipe: SweepRecipe, training: ModelRecipe, tiers: Tiers, tracking: Tracking) -> SearchSubject:
    """The current subject of the recipe. Raises ValueError without a snapshot, and as `with_initial_weights` does."""
    snapshot = training_data.current(training, tiers.durable_path)
    if snapshot is None:
        raise ValueError(f"sweep {recipe.name}: {training_data.missing_snapshots(training, tiers.durable_path)}")
    located = with_initial_weights(training, snapshot, tiers, tracking)
    snapshot = holdout_filter.snapshot_for(located.init, snapshot, tiers)
    return SearchSubject(recipe, located, snapshot, contents.tokenizer_digest(read(tiers.durable_path, snapshot)))


def begun_sweep(
    recipe: SweepRecipe, training: ModelRecipe, tiers: Tiers, fleet: Fleet, tracking: Tracking
) -> tuple[SearchSubject, SweepStore]:
    """The current subject of the recipe, and its sweep, which is opened if necessary.

    Raises ValueError as `current_subject` does, and if the fleet is too small for the trials.
    """
    subject = current_subject(recipe, training, tiers, tracking)
    Slots(fleet, recipe.trial_of(training).placement).check()
    return subject, open_sweep(subject, tiers)


def find_sweep(subject: SearchSubject, tiers: Tiers) -> SweepStore:
    """The store of the subject's sweep, even if the sweep is not open."""
    return SweepStore(tiers.durable_path / "sweeps" / sweep_id(subject.recipe.name, subject.specification()))


def open_sweep(subject: SearchSubject, tiers: Tiers) -> SweepStore:
    """Open the subject's sweep if necessary, with the recipe's budget; returns its store."""
    store = find_sweep(subject, tiers)
    store.create(subject.specification())
    store.open(subject.opened(store.sweep), subject.budget())
    return store


class _Display:
    """Reports each ended trial in the UI, and the sweep's progress in the run's log."""

    def __init__(self, context: dg.AssetExecutionContext, recipe: SweepRecipe, store: SweepStore) -> None:
        self._context = context
        self._recipe = recipe
        self._store = store
        self._observed: dict[int, Trial] = {}
        self._pictures = SweepPictures(context, store, keys.key(recipe.name, "sweep"))

    def update(self, sweep: SweepState) -> None:
        for trial in sweep.trials.values():
            if self._observed.get(trial.number) is trial:
                continue
            self._observed[trial.number] = trial
            known = ""
            if trial.state == "pending":
                known = f", parameters {dict(trial.parameters)}"
            self._context.log.info(f"trial {trial.number}: {trial.state}, step {trial.last_step}{known}")
            if trial.ended and (trial.state != "failed" or trial in sweep.failed_for_good):
                self._show(trial)
        self._pictures.update(sweep)

    def _show(self, trial: Trial) -> None:
        key = keys.key(self._recipe.name, "trial")
        partition = trial_id(self._store, trial.number)
        if materialized(self._context.instance, key, partition):
            return
        keys.add_partition(self._context.instance, keys.trial_partitions(self._recipe.name), partition)
        folder = trials_of(self._store).store(partition).folder
        curve = ledger.loss_curve(read_sample(folder).steps)
        cost = cost_if_any(folder)
        metadata: dict[str, Any] = {
            "state": trial.state,
            "steps": trial.last_step,
            "attempts": trial.attempt + 1,
            "loss_curve": plots.curve({"training loss": curve}, "step", "nats per prediction"),
            **({"validation_loss": trial.value} if trial.value is not None else {}),
            **(spent.cost(cost) if cost else {}),
            **trial.parameters,
        }
        self._context.instance.report_runless_asset_event(
            dg.AssetMaterialization(key, partition=partition, metadata=metadata)
        )
