"""Training: the asset that submits or adopts a training job, and waits for it.

The run that waits is disposable. Materialising the partition means wanting the training to run. If this run dies, the
job goes on and the next run adopts it; if no run is left, the job watch materialises the result.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import holdout_filter, keys, results
from slipway.assets.execution import pods
from slipway.recipes import assignments
from slipway.recipes.script import ScriptRecipe
from slipway.recipes.strict import validate
from slipway.recipes.training import ModelRecipe, TrainingRecipe, layout_faults
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.errors import Unavailable
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import budgets, naming
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import keep_code
from slipway.resources.trainings.records import RunPolicy, Specification, changes_sentence
from slipway.resources.trainings.store import TrainingStore, all_trainings
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.config.resolved import NUMBERS, OPERATION
from slipway.trainer.data import contents, snapshots
from slipway.trainer.metrics import measures
from slipway.trainer.record import ledger

POLICY_SECTIONS = ("placement", *OPERATION)
"""The sections of a recipe that are terms; the others decide what a training is."""
ALL_NODES = dg.AllPartitionMapping()
"""A training may run on any node. Without a mapping Dagster looks for the training's id among the nodes, and refuses to
launch several trainings at once."""
LOG_SECONDS = 60.0
"""Between two log lines about what a training waits for: a launcher that tries again each second has many reasons."""


def specification(recipe: TrainingRecipe, snapshot: str, tiers: Tiers, cause: str = "") -> Specification:
    """The specification of a training recipe (its parameters applied, its initial weights located) on a snapshot.

    Keeps the code of a script. With initial weights that were trained on some of the validation documents, the snapshot
    is the one without these. Raises ValueError when the code cannot be kept, for a model that cannot be trained on the
    snapshot, and as `holdout_filter.snapshot_for` does.
    """
    if isinstance(recipe, ModelRecipe):
        snapshot = holdout_filter.snapshot_for(recipe.init, snapshot, tiers)
    described = snapshots.read(tiers.durable_path, snapshot)
    if isinstance(recipe, ModelRecipe):
        contents.data(described, recipe.model, recipe.batch.length)
        if recipe.mix is not None:
            _check_mix(recipe, described)
    tokenizer = contents.tokenizer_digest(described)
    return Specification(recipe.name, _numbers(recipe, tiers), snapshot, tokenizer, cause)


def _check_mix(recipe: ModelRecipe, snapshot: snapshots.Snapshot) -> None:
    """Raises ValueError for a mix that the datasets cannot give, by name: too little text, or too many passes."""
    from slipway.trainer.loading.needs import SnapshotReading  # imports what no other recipe needs here

    len(SnapshotReading(snapshot, recipe.batch, recipe.run, recipe.validation, mix=recipe.mix).order)


def _numbers(recipe: TrainingRecipe, tiers: Tiers) -> dict[str, Any]:
    if isinstance(recipe, ScriptRecipe):
        code = keep_code(Path(recipe.code), tiers.durable_path)
        return {"script": {"command": list(recipe.command), "code": code}, "parameters": recipe.parameters}
    assert isinstance(recipe, ModelRecipe)
    return recipe.numbers()


def run_policy(
    recipe: TrainingRecipe, origin: Mapping[str, Any] | None = None, fields: Sequence[str] = (), owner: str = ""
) -> RunPolicy:
    """Where a training of this recipe may run, and how it recovers; a trial's are made here too.

    `fields` are those of the recipe that a person has set otherwise for this training alone, as FIELD=VALUE. `owner`
    is the sweep's, for a trial; empty for the recipe's.
    """
    return RunPolicy(
        min_nodes=recipe.placement.nodes.min,
        max_nodes=recipe.placement.nodes.max,
        ranks_per_node=recipe.placement.ranks_per_node,
        staging=recipe.placement.staging,
        nvme_gigabytes=recipe.placement.nvme_gigabytes,
        no_progress_seconds=recipe.recovery.no_progress_seconds,
        failures_without_checkpoint=recipe.recovery.failures_without_checkpoint,
        pending_seconds=recipe.recovery.pending_seconds,
        grow=recipe.recovery.grow,
        phase_seconds=dict[str, float](recipe.recovery.phase_seconds.items()),
        policies=dict(recipe.recovery.policies),
        hang_seconds=recipe.recovery.hang_seconds,
        owner=owner or recipe.owner,
        origin={**(origin or {}), **({naming.CHANGED_BY_HAND: list(fields)} if fields else {})},
        init=recipe.init.folder if isinstance(recipe, ModelRecipe) and recipe.init else "",
        operation=recipe.operation() if isinstance(recipe, ModelRecipe) else {},
        kubernetes=recipe.placement.kubernetes.model_dump(mode="json", exclude_defaults=True),
        fields=[field for field in fields if field.split(".")[0] in POLICY_SECTIONS],
    )


def common_policy(recipe: TrainingRecipe) -> RunPolicy:
    """The terms that all trainings of a recipe have, but for their origin, their weights and a person's fields."""
    return run_policy(recipe.model_copy(update={"init": None}) if isinstance(recipe, ModelRecipe) else recipe)


def follows(policy: RunPolicy, common: RunPolicy) -> bool:
    """Whether terms are `common`, which all trainings of the recipe have: the cheap answer for most of them."""
    own = {"origin": policy.origin, "init": policy.init, "fields": policy.fields, "edition": policy.edition}
    return not policy.fields and dataclasses.replace(common, **own) == policy  # type: ignore[arg-type]


def current_policy(recipe: TrainingRecipe, policy: RunPolicy, numbers: Mapping[str, Any]) -> RunPolicy:
    """The terms of a training under its recipe as it is now, given the terms and the numbers that it has.

    Its origin, the place of its weights, and what a person set for it alone stay its own. Raises ValueError when the
    recipe's layout does not fit the training's numbers, which may be those of an earlier recipe.
    """
    own: TrainingRecipe = assignments.applied(recipe, policy.fields)
    if isinstance(own, ModelRecipe):
        sections = {name: numbers[name] for name in NUMBERS if name in numbers}
        own = validate(ModelRecipe, {**own.model_dump(mode="json"), **sections, "init": None})
        for fault in layout_faults(own):
            raise ValueError(f"its recipe has changed, but does not fit its own numbers: {fault}; it keeps its terms")
    now = run_policy(own, policy.origin, policy.fields)
    return dataclasses.replace(now, origin=policy.origin, init=policy.init, edition=policy.edition)


def training_assets(recipe: TrainingRecipe) -> list[dg.AssetsDefinition]:
    """The training asset of one lane, a partition for each training id."""

    @dg.asset(
        key=keys.key(recipe.name, "training"),
        deps=[
            dg.AssetDep(keys.key(dataset, "staged_shards"), partition_mapping=ALL_NODES) for dataset in recipe.datasets
        ],
        partitions_def=keys.training_partitions(recipe.name),
        group_name=keys.lane(recipe.name),
        kinds={"torch" if isinstance(recipe, ModelRecipe) else "script"},
        owners=[recipe.owner],
        op_tags=pods.tags("training"),
        output_required=False,  # a training that was stopped has no result, and a result is shown once
        description=(
            f"{recipe.description} A partition is one training: the resolved recipe on one snapshot. Materialising "
            "it starts the training, or adopts it where it runs; stopping this run does not harm the training, "
            "cancelling it stops the training."
        ),
    )
    def training(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None]]:
        root = all_trainings(tiers)
        store = root.store(context.partition_key)
        named = {keys.TRAINING_TAG: store.id, keys.NAME_TAG: naming.of(store.read())}
        context.instance.add_run_tags(context.run.run_id, named)
        # A run that a person executes again has the tags of the first run: that person wants the training.
        if keys.SHOWS_TAG not in context.run.tags or context.run.parent_run_id is not None:
            _follow_recipe(context, store, recipe)
            root.start(store, identity.of_run(context.run), "materialised")
        _wait(context, store, compute.control(tiers), compute.poll_seconds)
        facts = store.read()
        if not facts.succeeded:
            _tell_end(context, facts)
            return
        with results.showing(context.instance, facts) as due:
            if due:
                yield dg.MaterializeResult(
                    metadata=results.result_metadata(facts), data_version=results.result_version(facts)
                )
            else:
                context.log.info(f"{facts.id}: its result has been shown")

    return [training]


def _tell_end(context: dg.AssetExecutionContext, facts: TrainingFacts) -> None:
    """Say why a training has no result. Raises Failure where it was given up; being stopped or paused is no failure."""
    why = facts.desired.why if facts.desired else "it was never wanted"
    reason = f"{facts.id} is not wanted any more: {why}"
    if facts.ended is not None and facts.ended.outcome == "failed" and budgets.exhausted_by(facts):
        raise dg.Failure(reason)
    context.log.info(f"{reason}; materialise this partition to go on")


def _follow_recipe(context: dg.AssetExecutionContext, store: TrainingStore, recipe: TrainingRecipe) -> None:
    """Give a training that is wanted now the terms of its recipe as it is now; it may have been offered long ago."""
    try:
        now = current_policy(recipe, store.run_policy(), store.specification().identity_config)
    except ValueError as error:
        context.log.warning(str(error))
        return
    if changed := store.change_run_policy(now, identity.of_run(context.run), f"recipe {recipe.name}"):
        context.log.info(f"its terms follow the recipe: {changes_sentence(changed)}")


def _wait(
    context: dg.AssetExecutionContext, store: TrainingStore, control: TrainingControl, poll_seconds: float
) -> None:
    """Advance the training until nothing is left to do; log its ledger while it runs, and what it waits for before."""
    tail, logged, logged_at, generation = ledger.Tail(store.folder), "", -math.inf, 0
    while True:
        if store.desired_generation() != generation:
            generation = store.desired_generation()
            context.instance.add_run_tags(context.run.run_id, {keys.LIFE_TAG: str(generation)})
        try:
            action = control.advance(store, f"run {context.run.run_id}", run=context.run.run_id)
            waiting = control.waiting(store.read(), poll_seconds) if action is Action.WAIT else None
        except Unavailable as error:
            context.log.warning(f"the launcher cannot be asked, the run asks again: {error}")
            action, waiting = Action.WAIT, None
        if waiting and waiting.reason != logged and time.monotonic() - logged_at >= LOG_SECONDS:
            context.log.info(f"it waits: {waiting.reason}")
            logged, logged_at = waiting.reason, time.monotonic()
        for event in tail.new():
            _show(context, event)
        if action is Action.DONE:
            return
        if action is Action.WAIT:
            time.sleep(poll_seconds)


def _show(context: dg.AssetExecutionContext, event: JournalEvent) -> None:
    """Log an event of the ledger in the run; only every tenth step is logged."""
    match event["event"]:
        case "step" if event["step"] % 10 == 0:
            figures = "".join(f", {name} {value:,.6g}" for name, value in event.get("figures", {}).items())
            figures = figures or f", {measures.throughput(event)}"
            context.log.info(f"step {event['step']}: loss {event['loss']:.4f}{figures}")
        case "step" | "segment" | "validated":
            pass
        case "staged":
            context.log.info(f"{event['node']} is staging: {event['progress']}")
        case name:
            fields = {k: v for k, v in event.items() if k not in ("event", "t")}
            context.log.info(f"{name}: {fields}")
