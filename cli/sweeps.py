"""Sweeps: which there are, and what became of their trials."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipway.cli import command_context, completion_names, names, output
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base import field_changes
from slipway.trainer.base.quantities import counted

if TYPE_CHECKING:
    from slipway.assets.sweeps.state import SweepState
    from slipway.assets.sweeps.store import SweepStore

app = group("Sweeps of a training: start, list, show, pause, resume, stop, add, set.")

Id = Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, or the beginning of it.")]
Why = Annotated[str, typer.Option(help="The reason, kept on record.")]
RUNS = "the sensors of `slipway up` run it, once they have loaded its recipe (in the UI: Deployment, Reload)"
BEGINS = "its run does so at its next look; without a run, the sensors of `slipway up` begin one"


@verb(app, "slipway sweeps start tiny-decoder", changes=True)
def start(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A sweep recipe, or the beginning of its name.",
            autocompletion=completion_names.sweep_recipes,
        ),
    ],
    json: AsJson = False,
) -> None:
    """Start the sweep of a recipe, or find the one that has begun.

    It searches on the present snapshot of its training's dataset. The sensors of
    `slipway up` run it; its best parameters are then trained at full length.
    """
    from slipway.assets.sweeps.assets import begun_sweep
    from slipway.recipes.load import recipes_folder
    from slipway.recipes.usable import usable_with

    chosen = names.resolved(recipe, completion_names.sweep_recipes(""), "sweep recipe")
    context = command_context.current()
    known = usable_with(recipes_folder(), "sweeps", chosen)
    searched = known.sweeps[chosen]
    _, store = begun_sweep(
        searched, known.trainings[searched.training], context.tiers, context.control.fleet, context.tracking
    )
    state = store.state()
    assert state is not None
    if json:
        return output.print_json({"sweep": store.sweep, "state": _state_name(state), "trials": len(state.trials)})
    message = f"has begun: {RUNS}" if not state.trials else f"is {_state_name(state)}"
    print(f"{store.sweep} {message}")


@verb(app, "slipway sweeps list", name="list")
def list_(json: AsJson = False) -> None:
    """List the sweeps, with the best trial of each."""
    states = {id: store.state() for id, store in _stores(command_context.current()).items()}
    rows = [
        {
            "sweep": id,
            "state": _state_name(state),
            "trials": len(state.trials),
            "of": state.planned,
            "best_trial": state.best.number if state.best else None,
            "best_value": state.best.value if state.best else None,
        }
        for id, state in states.items()
        if state is not None
    ]
    if json:
        return output.print_json(rows)
    head = ("sweep", "state", "trials", "best trial", "its value")
    output.print_table(
        head,
        [
            (
                row["sweep"],
                row["state"],
                f"{row['trials']}/{row['of']}",
                _cell(row["best_trial"]),
                _cell(row["best_value"]),
            )
            for row in rows
        ],
    )
    if not rows:
        output.note("no sweep has been opened yet")


@verb(app, "slipway sweeps show tiny-dec --html report.html")
def show(
    sweep: Id,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page to this file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what a sweep found and cost.

    The best parameters, every trial, each rung, and which parameters decide.
    The page needs nothing beside it, and has the pictures too. While the sweep runs, and once it has ended, the same
    page lies in the sweep's folder.
    """
    from slipway.assets.sweeps.report import report_file, text

    store, state = _opened(sweep)
    with output.progress(f"reading {store.sweep}"):
        report = report_file.report_of(store, state)
    if html is not None:
        from slipway.assets.sweeps.report import page
        from slipway.trainer.base import atomic

        with output.progress(f"drawing {store.sweep}"):
            atomic.replace(html, page.html(report).encode())
        output.note(f"the report of {store.sweep} is in {html}")
        return
    if json:
        return output.print_json(report)
    print(text.markdown(report), end="")


@verb(app, "slipway sweeps export tiny-dec tiny-decoder.journal")
def export(
    sweep: Id,
    file: Annotated[Path, typer.Argument(help="A new file: .journal or .log, or .db for an SQLite database.")],
) -> None:
    """Write a sweep as an Optuna study.

    optuna-dashboard shows it, and optuna.load_study reads it.
    """
    from slipway.assets.sweeps import optuna_export

    store, state = _opened(sweep)
    with output.progress(f"writing {counted(len(state.trials), 'trial')} to {file}"):
        optuna_export.export(state, store.read(), file)
    output.note(f"{file} has the study {store.sweep}")


@verb(app, "slipway sweeps pause tiny-dec --why 'the cluster is needed'", changes=True)
def pause(sweep: Id, why: Why = "paused by hand") -> None:
    """Pause a sweep: its trials save and leave their nodes.

    Nothing new is started until it is resumed.
    """
    from slipway.assets.sweeps import steering

    store = _store(sweep)
    steering.pause(store, command_context.actor(), why)
    print(f"{store.sweep} is to pause: {BEGINS}")


@verb(app, "slipway sweeps resume tiny-dec", changes=True)
def resume(sweep: Id, why: Why = "resumed by hand") -> None:
    """Let a paused sweep go on.

    Each trial goes on from its checkpoint, to where it was going.
    """
    from slipway.assets.sweeps import steering

    store = _store(sweep)
    steering.resume(store, command_context.actor(), why)
    print(f"{store.sweep} is to go on: {BEGINS}")


@verb(app, "slipway sweeps stop tiny-dec", changes=True)
def stop(sweep: Id, why: Why = "stopped by hand") -> None:
    """End a sweep for good.

    Its trials are stopped, what it has found so far stays, and no training follows from it.
    """
    from slipway.assets.sweeps import steering

    store = _store(sweep)
    steering.stop(store, command_context.actor(), why)
    print(f"{store.sweep} is to stop: {BEGINS}")


@verb(app, "slipway sweeps add tiny-dec 16", changes=True)
def add(
    sweep: Id,
    trials: Annotated[int, typer.Argument(help="How many trials more.")],
    why: Why = "added by hand",
    json: AsJson = False,
) -> None:
    """Add trials to a sweep.

    While it runs, or after it has completed: it is the same sweep, and goes on.
    """
    from slipway.assets.sweeps import steering

    store = _store(sweep)
    _say_changes(store, steering.add(store, trials, command_context.actor(), why), json)


@verb(app, "slipway sweeps set tiny-dec parallel=8 limits.retries=2", name="set", changes=True)
def set_(
    sweep: Id,
    fields: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE", help="As the recipe names them.")],
    why: Why = "set by hand",
    json: AsJson = False,
) -> None:
    """Change what a sweep may spend.

    trials, parallel, limits.retries, limits.failed_trials and goal.at_most.
    It is the same sweep, and goes on. What decides what it searches is refused: that is another sweep.
    """
    from slipway.assets.sweeps import steering

    store = _store(sweep)
    _say_changes(store, steering.spend(store, fields, command_context.actor(), why), json)


def _say_changes(store: "SweepStore", changed: "dict[str, tuple[Any, Any]]", json: bool) -> None:
    if json:
        return output.print_json({"sweep": store.sweep, "changed": changed})
    for name, (old, new) in changed.items():
        print(f"{store.sweep} {name}: {field_changes.change(old, new)}; {BEGINS}")


def _store(prefix: str) -> "SweepStore":
    """The sweep that a name means. Raises ValueError."""
    stores = _stores(command_context.current())
    return stores[names.resolved(prefix, stores, "sweep")]


def _opened(prefix: str) -> "tuple[SweepStore, SweepState]":
    """The sweep that a name means, with its state. Raises ValueError, also for one that was not opened yet."""
    store = _store(prefix)
    state = store.state()
    if state is None:
        raise ValueError(f"sweep {store.sweep}: it has not been opened yet")
    return store, state


def _stores(context: command_context.CommandContext) -> "dict[str, SweepStore]":
    from slipway.assets.sweeps.store import sweeps

    return {store.sweep: store for store in sweeps(context.durable / "sweeps")}


def _state_name(state: "SweepState") -> str:
    return state.closed.outcome if state.closed else "paused" if state.pause else "open"


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
