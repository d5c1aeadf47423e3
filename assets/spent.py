"""The accounting of a training's time for the UI: metrics, a table, and a stacked plot."""

import time
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import plots
from slipway.resources import platform
from slipway.resources.trainings import accounts
from slipway.resources.trainings.accounts import TrainingCost, cost_if_any
from slipway.resources.trainings.quotas import Quotas
from slipway.trainer.base.units import DAY, HOUR, MINUTE
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import Account, lost_by

COLUMNS = 60
"""The number of equal time intervals in the plot."""
UNITS = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (1.0, "seconds"))


def metadata(folder: Path, ledger_seconds: float) -> dict[str, Any]:
    """The metadata of a training's account; only the ledger's duration if the account cannot be read."""
    known = accounts.of_if_any(folder)
    if known is None or known[0].wall <= 0:
        return {"wall_seconds": ledger_seconds}
    account, figures = known
    fields = {name: value for name, value in vars(figures).items() if value is not None}
    cost_of_training = cost_if_any(folder)
    lost = lost_by(account.interruptions, "kind")
    return {
        "wall_seconds": account.wall,
        **fields,
        "interruptions": len(account.interruptions),
        **(cost(cost_of_training) if cost_of_training else {}),
        **quota(folder, cost_of_training.owner if cost_of_training else ""),
        **({"lost_seconds_by_cause": dg.MetadataValue.json(lost)} if lost else {}),
        **({"lost_seconds_by_node": dg.MetadataValue.json(lost_by(account.interruptions, "node"))} if lost else {}),
        **({"control_plane_away": "; ".join(account.downtime_evidence)} if account.downtime_evidence else {}),
        "time_spent": dg.MetadataValue.md(table(account)),
        "time_spent_by_time": picture(account),
    }


def cost(cost_of_training: TrainingCost) -> dict[str, Any]:
    """Rank-hours and, if prices are set, money: the total, by day, and the price on nodes of the other kind."""
    prices = platform.costs_here().rank_prices
    fields: dict[str, Any] = {"rank_hours": round(cost_of_training.rank_hours, 4), "spot": cost_of_training.spot}
    if prices is None:
        return fields
    price = prices.of(cost_of_training.owner)
    days: dict[str, float] = {}
    for share in cost_of_training.shares:
        days[share.day.isoformat()] = days.get(share.day.isoformat(), 0.0) + (
            cost_of_training.money(share.rank_hours, price) or 0.0
        )
    rows = [f"| {day} | {spent:,.2f} |" for day, spent in sorted(days.items())]
    return {
        **fields,
        **money(cost_of_training.rank_hours, cost_of_training.spot, cost_of_training.owner),
        "money_by_day": dg.MetadataValue.md("\n".join([f"| day | {prices.currency} |", "| --- | ---: |", *rows])),
    }


def money(rank_hours: float, spot: bool, owner: str) -> dict[str, Any]:
    """The price of rank-hours, and their price on nodes of the other kind (spot or on demand); empty without prices."""
    prices = platform.costs_here().rank_prices
    if prices is None:
        return {}
    price = prices.of(owner)
    on_spot = round(rank_hours * price.spot, 4)
    on_demand = round(rank_hours * price.on_demand, 4)
    if spot:
        return {"money": on_spot, "money_on_demand": on_demand, "currency": prices.currency}
    return {"money": on_demand, "money_on_spot": on_spot, "currency": prices.currency}


def quota(folder: Path, owner: str) -> dict[str, str]:
    """The used and remaining quota of a training's owner, after the training in a folder has ended."""
    quotas = platform.costs_here().quotas
    if owner not in quotas:
        return {}
    return {"quota": Quotas(folder.parent.parent, quotas).standing(owner, time.time()).sentence}


def table(account: Account) -> str:
    """Seconds and share by bucket, in Markdown."""
    seconds = account.seconds
    rows = [
        f"| {title} | {seconds[bucket]:,.1f} | {seconds[bucket] / account.wall:.1%} |"
        for bucket, title in buckets.TITLES.items()
        if seconds.get(bucket)
    ]
    total = f"| **in all** | {account.wall:,.1f} | 100 % |"
    return "\n".join(["| spent on | seconds | share |", "| --- | ---: | ---: |", *rows, total])


def picture(account: Account) -> dg.MarkdownMetadataValue:
    """A stacked plot of the shares of the time by bucket, from begin to end."""
    width = account.wall / COLUMNS
    unit, name = next((candidate for candidate in UNITS if account.wall > 3 * candidate[0]), UNITS[-1])
    layers: dict[str, list[float]] = {}
    for bucket, title in buckets.TITLES.items():
        if account.seconds.get(bucket):
            layers[title] = [0.0] * COLUMNS
            _spread(account, bucket, width, layers[title])
    edges = [column * width / unit for column in range(COLUMNS + 1)]
    return plots.stacked(edges, layers, f"{name} since the training was requested", "share of the time")


def _spread(account: Account, bucket: str, width: float, heights: list[float]) -> None:
    """Add each column's share of time in a bucket to `heights`."""
    for stretch in account.stretches:
        share = stretch.seconds.get(bucket, 0.0) / (stretch.end - stretch.begin)
        begin = (stretch.begin - account.begin) / width
        end = (stretch.end - account.begin) / width
        for column in range(int(begin), min(COLUMNS, int(end) + 1)) if share else ():
            heights[column] += share * max(0.0, min(end, column + 1) - max(begin, column))
