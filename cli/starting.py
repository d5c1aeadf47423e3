"""Before and at the start of a training: what it takes, starting it, and doing its steps again."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, names, output, trainings
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base.quantities import counted
from slipway.trainer.config.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slipway.recipes.load import Recipes
    from slipway.recipes.training import ModelRecipe
    from slipway.trainer.config.operation import Storage
    from slipway.trainer.data.snapshots import Snapshot
    from slipway.trainer.plan.measure import StageMeasure
    from slipway.trainer.plan.question import Question
    from slipway.trainer.plan.room import Room
    from slipway.trainer.plan.shards import ShardsVerdict
    from slipway.trainer.plan.verdict import PlanVerdict

app = group("Starting trainings.")
SECTION = "Trainings"

Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A training recipe, or the beginning of its name.",
        autocompletion=completion_names.training_recipes,
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIELD=VALUE", help="Fields of the recipe that are to be set otherwise this time."),
]


@verb(app, "slipway plan tiny-decoder batch.micro=8", section=SECTION)
def plan(
    recipe: Recipe,
    fields: Fields = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="PROFILE", help=f"The hardware: {', '.join(PROFILES)}; else this machine."),
    ] = None,
    gigabytes: Annotated[
        float | None,
        typer.Option("--dataset-gigabytes", min=0.001, help="The dataset's size, instead of its present snapshot's."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say whether a training fits, before anything runs.

    Its own code does one step for each stage of its layout, at its own number of ranks, without memory.

    Exit code 1 says that it does not fit.
    """
    from slipway.recipes import assignments, folder
    from slipway.recipes.plan import grace_warning, planned
    from slipway.trainer.plan.report import report
    from slipway.trainer.plan.shards import report_shards, room_of

    chosen = _named(recipe)
    recipes = assignments.load_with(folder.selected(), "trainings", chosen, fields or ())
    training = recipes.trainings.get(chosen)
    snapshot = _snapshot(training) if training else None
    job_plan = planned(recipes, chosen, on, snapshot)
    with output.progress(f"planning {chosen} on {counted(job_plan.question.ranks, 'rank')}"):
        verdict = _verdict(job_plan.question, job_plan.room, recipes.trainings[chosen].storage)
    nodes = job_plan.question.nodes
    room = room_of(
        job_plan.room.nvme_bytes, verdict.host.nvme_spare, recipes.trainings[chosen].placement.nvme_gigabytes
    )
    shards = _shards(recipes, chosen, snapshot, gigabytes, room, nodes)
    fits = verdict.fits and not shards.problem
    warning = grace_warning(recipes.trainings[chosen], on, verdict.checkpoint.seconds["durable"])
    if json:
        output.print_json({**verdict.document(), "fits": fits, "staging": shards.document(), "warning": warning})
    else:
        print("\n".join([*report(verdict, job_plan.room), *report_shards(shards, nodes)]))
        if warning:
            output.note(warning)
        if snapshot is None and job_plan.question.data.classes:
            output.note(f"{job_plan.question.data.classes:,} classes are counted, as the dataset has no snapshot yet")
    raise typer.Exit(0 if fits else 1)


def _shards(
    recipes: "Recipes", recipe: str, snapshot: "Snapshot | None", gigabytes: float | None, room: int | None, nodes: int
) -> "ShardsVerdict":
    """How the nodes would hold the dataset's present snapshot, or one of this size."""
    from slipway.recipes.plan import planned_shards
    from slipway.trainer.plan.shards import judge_shards

    training = recipes.trainings[recipe]
    shards = planned_shards(recipes, recipe, snapshot, gigabytes)
    return judge_shards(training.placement.staging, shards.need, shards.known, room, nodes)


def _snapshot(training: "ModelRecipe") -> "Snapshot | None":
    """The present snapshot of the training's datasets; None before there is one, and where it cannot be read."""
    durable = command_context.current().durable
    if not (durable / "datasets").is_dir():
        return None
    from slipway.assets import training_data

    return training_data.read(training, durable)


def _verdict(question: "Question", room: "Room", storage: "Storage") -> "PlanVerdict":
    """The verdict, and where it is bad, what to change."""
    from slipway.trainer.plan.plan_client import ask
    from slipway.trainer.plan.verdict import judge, suggestions_for

    def measured(candidate: "Question") -> "Sequence[StageMeasure]":
        return ask(candidate, _cache())

    verdict = judge(question, measured(question), room, storage)
    if verdict.fits:
        return verdict
    return dataclasses.replace(verdict, remedies=suggestions_for(question, measured, room, storage))


def _cache() -> Path:
    """Where measures are kept for the next time."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "slipway" / "plans"


@verb(app, "slipway run tiny-decoder run.steps=50 --watch", section=SECTION, changes=True)
def run(
    recipe: Recipe,
    fields: Fields = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it ends.")] = False,
    again: Annotated[
        str, typer.Option(metavar="WORDS", help="Train once more what has been trained already, and why.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Start a training of a recipe, or adopt the one that runs.

    It trains on the present snapshot of the recipe's dataset, and goes on when this command has ended.
    """
    from slipway.recipes import assignments, folder

    context = command_context.current()
    chosen = _named(recipe)
    known = assignments.load_with(folder.selected(), "trainings", chosen, fields or ()).all_trainings
    with output.progress(f"starting {chosen}"):
        from slipway.assets.training_commands import start
        from slipway.resources.trainings.foreground import begin

        store = start(known[chosen], context.tiers, context.tracking, command_context.actor(), again, fields or ())
        waiting = begin(context.control, store, command_context.actor())
    claim = store.newest_claim()
    ended = store.exit()
    if json:
        output.print_json({"training": store.id, "waiting": waiting, "nodes": claim.nodes if claim else ()})
    elif ended is not None and ended.outcome == "succeeded":
        print(f"{store.id} has been trained already; to train it once more: slipway run {chosen} --again WORDS")
    else:
        on = f" on {', '.join(claim.nodes)}" if claim else ""
        print(f"{store.id} is started{on}" if not waiting else f"{store.id} waits: {waiting}")
    if watch:
        trainings.follow(context, store, bring=True)


def _named(prefix: str) -> str:
    """The training recipe that a name means, by the files in its folder. Raises ValueError."""
    if prefix not in completion_names.training_recipes("") and prefix in completion_names.sweep_recipes(""):
        raise ValueError(f"training recipe {prefix}: found a sweep; to start it: slipway sweeps start {prefix}")
    return names.resolved(prefix, completion_names.training_recipes(""), "training recipe")
