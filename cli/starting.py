"""Before and at the start of a training: what it takes, starting it, and doing its steps again."""

from pathlib import Path
from typing import Annotated

import typer

from cli import complete, names, output, place, trainings
from cli.verbs import AsJson, group, verb

app = group("Starting trainings.")
SECTION = "Trainings"

Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A training recipe, or the beginning of its name.",
        autocompletion=complete.training_recipes,
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIELD=VALUE", help="Fields of the recipe that are to be set otherwise this time."),
]


@verb(app, "slipway plan tiny-decoder batch.micro=8", section=SECTION)
def plan(recipe: Recipe, fields: Fields = None, json: AsJson = False) -> None:
    """Estimate the memory that a training takes.

    And on which GPUs it fits, before anything runs. A resolved configuration (config.json) may be given too.
    """
    from recipes import assignments, folder, memory
    from trainer.config import resolved
    from trainer.start import memory_report

    if recipe.endswith(".json"):
        config = resolved.load(Path(recipe))
        found = memory_report.plan_of_config(config)
    else:
        chosen = _named(recipe)
        found = memory.plan(assignments.load_with(folder.selected(), "trainings", chosen, fields or ()), chosen)
    if json:
        return output.print_json(memory_report.as_json(found))
    print("\n".join(memory_report.report(found)))


@verb(app, "slipway run tiny-decoder run.steps=50 --watch", section=SECTION)
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
    from recipes import assignments, folder

    here, chosen = place.here(), _named(recipe)
    known = assignments.load_with(folder.selected(), "trainings", chosen, fields or ()).all_trainings
    with output.progress(f"starting {chosen}"):
        from assets.start import start
        from resources.trainings.by_hand import begin

        store = start(known[chosen], here.tiers, here.tracking, place.who(), again, fields or ())
        waiting = begin(here.control, store, place.who())
    claim, ended = store.newest_claim(), store.exit()
    if json:
        output.print_json({"training": store.id, "waiting": waiting, "nodes": claim.nodes if claim else ()})
    elif ended is not None and ended.outcome == "succeeded":
        print(f"{store.id} has been trained already; to train it once more: slipway run {chosen} --again WORDS")
    else:
        on = f" on {', '.join(claim.nodes)}" if claim else ""
        print(f"{store.id} is started{on}" if not waiting else f"{store.id} waits: {waiting}")
    if watch:
        trainings.follow(here, store, bring=True)


@verb(app, "slipway replay tiny-dec@80 --steps 5", section=SECTION)
def replay(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="TRAINING@STEP", help="The checkpoint to begin from.", autocompletion=complete.checkpoints
        ),
    ],
    steps: Annotated[int, typer.Option(min=1, help="How many steps to do again.")] = 10,
    ranks: Annotated[int | None, typer.Option(min=1, help="With so many ranks; by default as many as trained.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Relative difference that is still accepted.")] = None,
) -> None:
    """Do steps of a training again, and compare.

    On this machine; nothing of the training is changed.

    Exit code 0 says that they are bitwise equal, 3 within the tolerance, 1 different, 2 that they cannot be replayed.
    """
    from resources.trainings.replays import replay as replayed

    given, step = names.with_step(checkpoint)
    if step is None:
        raise ValueError(f"{checkpoint}: found no step, expected TRAINING@STEP; slipway checkpoints list {given}")
    here = place.here()
    code = replayed(here.training(given), here.control.paths, step, steps, ranks, tolerance)
    raise typer.Exit(code)


def _named(given: str) -> str:
    """The training recipe that a name means, by the files in its folder. Raises ValueError."""
    return names.resolved(given, complete.training_recipes(""), "training recipe")
