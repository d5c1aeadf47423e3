"""Training: the asset that submits or adopts a training job, and waits for it.

The run that waits is disposable. Whoever materialises the partition wants the training to run; if this run
dies, the job goes on, the next run adopts it, and the job watch materialises the result should no run be left.
"""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets import keys, plots, pods
from recipes.schema import Script, Training, TrainingRecipe
from resources import scripts
from resources.compute import Compute, trainings
from resources.launcher.protocol import Unavailable
from resources.tiers import Tiers
from resources.training_control import TrainingControl
from resources.training_decision import Action
from resources.training_store import Specification, Terms, TrainingStore
from trainer import contents, figures, ledger, snapshots
from trainer.journal import Event

TELL_SECONDS = 60.0
"""Between two tellings of what a training waits for: what is tried anew each second has ever new reasons."""


def specification(recipe: TrainingRecipe, snapshot: str, tiers: Tiers, cause: str = "") -> Specification:
    """What a training recipe (with its parameters applied, and its `init` settled) means on a snapshot.

    The code of a script is kept. Raises ValueError when it cannot be, and for a model that cannot be trained on what
    the snapshot holds.
    """
    described = snapshots.read(tiers.durable_path, snapshot)
    if isinstance(recipe, Training):
        contents.data(described, recipe.model, recipe.batch.length)
    tokenizer = contents.tokenizer_digest(described)
    return Specification(recipe.name, _numbers(recipe, tiers), snapshot, tokenizer, cause)


def _numbers(recipe: TrainingRecipe, tiers: Tiers) -> dict[str, Any]:
    if isinstance(recipe, Script):
        code = scripts.keep(Path(recipe.code), tiers.durable_path)
        return {"script": {"command": list(recipe.command), "code": code}, "parameters": recipe.parameters}
    assert isinstance(recipe, Training)
    return recipe.numbers()


def terms(recipe: TrainingRecipe, origin: Mapping[str, Any] | None = None) -> Terms:
    """Where a training of this recipe may run, and how it recovers."""
    return Terms(
        min_nodes=recipe.placement.nodes.min,
        max_nodes=recipe.placement.nodes.max,
        ranks_per_node=recipe.placement.ranks_per_node,
        staging=recipe.placement.staging,
        no_progress_seconds=recipe.recovery.no_progress_seconds,
        fruitless_incarnations=recipe.recovery.fruitless_incarnations,
        pending_seconds=recipe.recovery.pending_seconds,
        origin=dict(origin or {}),
        init=recipe.init.folder if isinstance(recipe, Training) and recipe.init else "",
        operation=recipe.operation() if isinstance(recipe, Training) else {},
        kubernetes=recipe.placement.kubernetes.model_dump(exclude_defaults=True),
    )


def training_assets(recipe: TrainingRecipe) -> list[dg.AssetsDefinition]:
    """The training asset of one lane, a partition for each training id."""

    @dg.asset(
        key=keys.key(recipe.name, "training"),
        deps=[keys.key(recipe.dataset, "staged_shards")],
        partitions_def=keys.training_partitions(recipe.name),
        group_name=keys.lane(recipe.name),
        kinds={"torch" if isinstance(recipe, Training) else "script"},
        owners=[recipe.owner],
        op_tags=pods.tags("training"),
        description=(
            f"{recipe.description} A partition is one training: the resolved recipe on one snapshot. Materialising "
            "it starts the training, or adopts it where it runs; stopping this run does not harm the training, "
            "cancelling it stops the training."
        ),
    )
    def training(context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute) -> dg.MaterializeResult[None]:
        known = trainings(tiers)
        store = known.store(context.partition_key)
        context.instance.add_run_tags(context.run.run_id, {keys.TRAINING_TAG: store.id})
        # Who executes a run again has its tags copied: that is a person, and wants the training.
        if keys.SHOWS_TAG not in context.run.tags or context.run.parent_run_id is not None:
            known.start(store, f"run {context.run.run_id}", "materialised")
        _wait(context, store, compute.control(tiers), compute.poll_seconds)
        ended = store.exit()
        if ended is None or ended.outcome != "succeeded":
            desired = store.desired()
            raise dg.Failure(f"{store.id} is not wanted any more: {desired.why if desired else 'nobody asked for it'}")
        return dg.MaterializeResult(metadata=result_metadata(store), data_version=result_version(store))

    return [training]


def result_version(store: TrainingStore) -> dg.DataVersion:
    """A training's data version: the manifest of its last checkpoint, when one is left that is not damaged."""
    commits = store.commits()
    return dg.DataVersion(commits[-1].manifest if commits else "no good checkpoint")


def result_metadata(store: TrainingStore) -> dict[str, Any]:
    """What the UI shows of a finished training."""
    events = store.events()
    steps = [event for event in events if event["event"] == "step"]
    last, script = steps[-1], store.specification().script
    ended = store.exit()
    assert ended is not None
    return {
        "loss": last["loss"],
        "steps": ended.step,
        **(last["figures"] if script else _figures(steps)),
        "bound": next((event["advice"] for event in reversed(events) if event["event"] == "bound"), ""),
        "incarnations": ended.incarnation,
        "checkpoints": len(store.commits()),
        "wall_seconds": events[-1]["t"] - events[0]["t"],
        "snapshot": store.specification().snapshot,
        "origin": dg.MetadataValue.json(dict(store.terms().origin)),
        "loss_curve": plots.curve(
            {"training loss": ledger.loss_curve(events)}, "step", "loss" if script else "nats per prediction"
        ),
        "dagster/uri": str(store.folder),
    }


def _figures(steps: list[Event]) -> dict[str, Any]:
    """Tokens in all, and the throughput of the median step."""
    median = sorted(steps, key=lambda event: event["seconds"])[len(steps) // 2]
    return {"tokens": steps[-1]["tokens"], "throughput": figures.throughput(median)}


def _wait(
    context: dg.AssetExecutionContext, store: TrainingStore, control: TrainingControl, poll_seconds: float
) -> None:
    """Advance the training until nothing is left to do; show its ledger while it runs, and else what it waits for."""
    tail, told, told_at = ledger.Tail(store.folder), "", -math.inf
    while True:
        try:
            action = control.advance(store, f"run {context.run.run_id}", run=context.run.run_id)
            waiting = control.waiting(store, poll_seconds) if action is Action.WAIT else None
        except Unavailable as error:
            context.log.warning(f"the launcher cannot be asked ({error}); nothing follows from that")
            action, waiting = Action.WAIT, None
        if waiting and waiting.reason != told and time.monotonic() - told_at >= TELL_SECONDS:
            context.log.info(f"it waits: {waiting.reason}")
            told, told_at = waiting.reason, time.monotonic()
        for event in tail.new():
            _show(context, event)
        if action is Action.DONE:
            return
        if action is Action.WAIT:
            time.sleep(poll_seconds)


def _show(context: dg.AssetExecutionContext, event: Event) -> None:
    """A line of the ledger in the run's log; of the steps, every tenth."""
    match event["event"]:
        case "step" if event["step"] % 10 == 0:
            told = "".join(f", {name} {value:,.6g}" for name, value in event.get("figures", {}).items())
            told = told or f", {figures.throughput(event)}"
            context.log.info(f"step {event['step']}: loss {event['loss']:.4f}{told}")
        case "step" | "segment" | "validated":
            pass
        case name:
            fields = {k: v for k, v in event.items() if k not in ("event", "t")}
            context.log.info(f"{name}: {fields}")
