"""Sweeps: which there are, and what became of their trials."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli import names, output, place
from cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from assets.sweeps.store import SweepStore

app = group("Sweeps over the parameters of a training: list, show.")


@verb(app, "slipway sweeps list", name="list")
def list_(json: AsJson = False) -> None:
    """List the sweeps, with the best trial of each."""
    found = {id: store.state() for id, store in _stores(place.here()).items()}
    rows = [
        {
            "sweep": id,
            "state": state.closed.outcome if state.closed else "open",
            "trials": len(state.trials),
            "of": state.plan.trials,
            "best_trial": state.best.number if state.best else None,
            "best_value": state.best.value if state.best else None,
        }
        for id, state in found.items()
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
                _shown(row["best_trial"]),
                _shown(row["best_value"]),
            )
            for row in rows
        ],
    )
    if not rows:
        output.note("no sweep has been opened yet")


@verb(app, "slipway sweeps show tiny-dec")
def show(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, or the beginning of it.")],
    json: AsJson = False,
) -> None:
    """Show the best parameters of a sweep, and every trial."""
    from assets.sweeps import report

    stores = _stores(place.here())
    id = names.resolved(sweep, stores, "sweep")
    state = stores[id].state()
    if state is None:
        raise ValueError(f"sweep {id}: it has not been opened yet")
    with output.progress(f"reading {id}"):
        made = report.report(state)
    if json:
        return output.print_json(made)
    print(report.markdown(made), end="")


def _stores(here: place.Workplace) -> "dict[str, SweepStore]":
    from assets.sweeps.store import sweeps

    return {store.sweep: store for store in sweeps(here.durable / "sweeps")}


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
