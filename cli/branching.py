"""Going on otherwise: a branch from a checkpoint, doing steps again, and changing a training that runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, names, output, trainings
from slipway.cli.recipes import usable
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base import field_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slipway.recipes.training import TrainingRecipe
    from slipway.resources.trainings.store import TrainingStore

app = group("Branches, replays and changes of trainings.")
SECTION = "Trainings"

Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="TRAINING@STEP", help="The checkpoint to begin from.", autocompletion=completion_names.checkpoints
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIELD=VALUE", help="Fields that are to be set otherwise, as a recipe names them."),
]


@verb(app, "slipway branch tiny-dec@80 optimizer.learning_rate=0.001 --watch", section=SECTION, changes=True)
def branch(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="TRAINING[@STEP]",
            help="The checkpoint to continue; without a step the newest one.",
            autocompletion=completion_names.checkpoints,
        ),
    ],
    fields: Fields = None,
    name: Annotated[str, typer.Option(help="Words that distinguish it from another branch of the same.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it ends.")] = False,
    json: AsJson = False,
) -> None:
    """Continue a checkpoint otherwise, as a training of its own.

    It has its full state: the weights, the optimiser's state, the random state and the place in the data. The parent
    goes on untouched.
    """
    from slipway.assets import training_commands
    from slipway.resources.trainings.foreground import begin

    training, step = names.with_step(checkpoint)
    context = command_context.current()
    parent = context.training(training, _has_checkpoints, "training with checkpoints")
    with output.progress(f"branching from {parent.id}"):
        revision = context.compute.revision
        arguments = (fields or (), _recipes(), command_context.actor(), name, revision)
        store = training_commands.branch(context.trainings, parent, step, *arguments)
        waiting = begin(context.control, store, command_context.actor())
    origin = store.run_policy().origin
    if json:
        output.print_json({"training": store.id, "waiting": waiting, **origin})
    else:
        state = f"waits: {waiting}" if waiting else "is started"
        print(f"{store.id} {state}; it continues {origin['branch']}{_listed(origin['changed'])}")
    if watch:
        trainings.follow(context, store, bring=True)


@verb(app, "slipway replay tiny-dec@80 --steps 5", section=SECTION)
def replay(
    checkpoint: Checkpoint,
    fields: Fields = None,
    steps: Annotated[int, typer.Option(min=1, help="How many steps to do again.")] = 10,
    ranks: Annotated[int | None, typer.Option(min=1, help="With so many ranks; by default as many as trained.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Relative difference that is still accepted.")] = None,
    json: AsJson = False,
) -> None:
    """Do steps of a training again, and compare.

    On this machine, from the same data and seeds; nothing of the training is changed. A training that ended as it
    diverged is replayed up to the step in which it did.

    Exit code 0 says that they are bitwise equal, 3 within the tolerance, 1 different, 2 that they cannot be replayed.
    """
    from slipway.recipes import assignments
    from slipway.resources.trainings.branching import replay as replayed

    training, step = names.with_step(checkpoint)
    if step is None:
        raise ValueError(f"{checkpoint}: found no step, expected TRAINING@STEP; slipway checkpoints list {training}")
    context = command_context.current()
    changes = assignments.parsed(fields or ())
    code = replayed(context.training(training), context.control.paths, step, steps, ranks, tolerance, changes, json)
    raise typer.Exit(code)


@verb(app, "slipway set tiny-dec optimizer.learning_rate=0.001", name="set", section=SECTION, changes=True)
def set_(
    training: trainings.Id,
    fields: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE", help="As a recipe names them.")],
    why: Annotated[str, typer.Option(help="The reason, kept on record.")] = "set by hand",
    restart: Annotated[
        bool, typer.Option("--restart", help="Save a checkpoint and start anew, for what a start alone takes over.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Change a training that exists, in place where it runs.

    The learning rate and its schedule, intervals and deadlines hold between two steps, by all ranks after the same one.
    Other ways of running hold from the next start on. What would make it another training is refused.
    """
    from slipway.assets.training_commands import update
    from slipway.resources.trainings import updates

    context = command_context.current()
    store = context.training(training, lambda candidate: not candidate.read().succeeded, "unfinished training")
    changes = update(store, fields, _recipes(), command_context.actor(), why)
    if json:
        output.print_json(changes)
    else:
        for change in changes:
            meaning = f"; {change.means}" if change.means else ""
            difference = field_changes.change(change.old, change.new)
            print(f"{store.id} {change.field}: {difference}, {change.takes_effect}{meaning}")
    later = any(entry.takes_effect == updates.NEXT_START for entry in changes)
    if restart and later and store.read().unfinished:
        _restart(context, store)


def _restart(context: command_context.CommandContext, store: "TrainingStore") -> None:
    """Stop a training with a checkpoint, and start it again from there."""
    from slipway.resources.trainings import foreground

    why = "started anew with what was set"
    with output.progress(f"starting {store.id} anew: its job saves a checkpoint"):
        step = foreground.stop(context.control, store, command_context.actor(), why)
        foreground.resume(context.trainings, store, command_context.actor(), why)
        foreground.begin(context.control, store, command_context.actor())
    output.note(f"{store.id} goes on from step {step}")


def _listed(changed: "Mapping[str, list[object]]") -> str:
    return f", with {field_changes.changes(changed)}" if changed else ""


def _recipes() -> "Mapping[str, TrainingRecipe]":
    return usable().all_trainings


def _has_checkpoints(store: "TrainingStore") -> bool:
    return bool(store.commits())
