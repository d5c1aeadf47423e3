"""Spent: what trainings' time was spent on, as the command shows it."""

import time
from typing import TYPE_CHECKING

from slipway.cli import command_context, output
from slipway.cli.recipes import usable
from slipway.trainer.base.quantities import counted

if TYPE_CHECKING:
    from slipway.resources.trainings.store import TrainingStore


def answer(context: command_context.CommandContext, query: str, trials: bool, max_rows: int, json: bool) -> None:
    """Print what a query over all trainings' accounts gives, its first `max_rows` rows."""
    from slipway.resources.trainings import account_tables

    with output.progress("reading the ledgers"):
        used = context.quotas.standings(time.time())
        stores = context.stores(trials=trials).values()
        names, rows, row_count = account_tables.ask(stores, query, context.prices, _owners(), used, max_rows)
    if row_count > max_rows:
        output.note(f"only the first {counted(max_rows, 'row')} of the answer; for more: --rows")
    if json:
        return output.print_json([dict(zip(names, map(_plain, row), strict=True)) for row in rows])
    output.print_table(names, [[_cell(value) for value in row] for row in rows])
    if not rows:
        output.note("the query found no row")
    if context.prices is None and "money" in query.lower():
        output.note(f"money is not known: {context.cost_settings} has no prices (docs/platform.md)")


def quotas(context: command_context.CommandContext, json: bool) -> None:
    """Print how much each team has used of its quota."""
    with output.progress("reading the ledgers"):
        used = context.quotas.standings(time.time())
    if json:
        return output.print_json(
            [
                {"team": usage.owner, "per": usage.quota.per, "begins": str(usage.begins), "ends": str(usage.ends)}
                | {"rank_hours": usage.quota.rank_hours, "used": usage.used, "remaining": usage.remaining}
                for usage in used
            ]
        )
    rows = [
        (usage.owner, usage.quota.rank_hours, usage.quota.per, usage.used, usage.remaining, usage.ends)
        for usage in used
    ]
    head = ("team", "rank-hours", "per", "used", "left", "until, UTC")
    output.print_table(head, [[f"{cell:,.1f}" if isinstance(cell, float) else cell for cell in row] for row in rows])
    if not used:
        output.note(f"no team has a quota: {context.cost_settings} names none under teams (docs/platform.md)")


def _owners() -> dict[str, str]:
    """The owner of each recipe by its name; none while the recipes cannot be read."""
    from slipway.recipes.problems import InvalidRecipes

    try:
        known = usable()
    except InvalidRecipes as error:
        output.note(f"no team is known, as the recipes cannot be read: {error}")
        return {}
    return {name: recipe.owner for name, recipe in {**known.all_trainings, **known.sweeps}.items()}


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | None) else str(value)


def _cell(value: object) -> object:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else value


def account(store: "TrainingStore") -> dict[str, object] | None:
    """What the training's time was spent on, for a script; None before it was wanted."""
    from slipway.resources.trainings import accounts

    if (record := accounts.of_if_any(store.folder)) is None:
        return None
    spent, figures = record
    return {
        "wall_seconds": spent.wall,
        "seconds": spent.seconds,
        "interruptions": spent.interruptions,
        "notes": list(spent.downtime_evidence),
        **vars(figures),
    }


def ettr(store: "TrainingStore") -> float | None:
    """The training's ETTR by Meta's definition; None before it was wanted."""
    from slipway.resources.trainings import accounts

    record = accounts.of_if_any(store.folder)
    return None if record is None else record[1].ettr_meta


def fields(store: "TrainingStore") -> dict[str, object]:
    """Fields on what the training's time was spent on; none before it was wanted."""
    from slipway.resources.trainings import accounts
    from slipway.trainer.record.accounting import buckets

    record = accounts.of_if_any(store.folder)
    if record is None or record[0].wall <= 0:
        return {}
    spent, figures = record
    seconds = spent.seconds
    ordered = sorted(seconds, key=lambda name: -seconds[name])
    parts = ", ".join(f"{buckets.TITLES[name]} {seconds[name] / spent.wall:.1%}" for name in ordered if seconds[name])
    shares = {"ETTR (Meta)": figures.ettr_meta, "ETTR (ByteDance)": figures.ettr_bytedance}
    shares |= {"goodput": figures.goodput, "MFU": figures.mfu}
    lost = sum(interruption.seconds for interruption in spent.interruptions)
    return {
        "time": f"{spent.wall:,.1f} s: {parts}",
        **{name: f"{share:.1%}" for name, share in shares.items() if share is not None},
        **(
            {"lost": f"{lost:,.1f} s to {counted(len(spent.interruptions), 'interruption')}"}
            if spent.interruptions
            else {}
        ),
        **({"away": "; ".join(spent.downtime_evidence)} if spent.downtime_evidence else {}),
    }
