"""Account tables: how all trainings spent their time, for SQL queries with duckdb in this process.

trainings(training, begun, wall_seconds, ettr_meta, ettr_bytedance, goodput, mfu, interruptions)
spent(training, bucket, seconds)                    the seconds of a training; each second is in one bucket
lost(training, incident, cause, node, bucket, seconds, team, rank_hours, money)
                                                    the cost of interruptions, divided among their nodes
cost(training, recipe, sweep, trial, team, cause, day, bucket, spot, rank_hours, money)
                                                    the rank-hours of a training; money if prices are set

quotas(team, per, begins, ends, rank_hours, used, remaining)
                                                    the quotas of the settings in the current period

`team` is the current owner of the recipe, or else the training's last owner. In `lost`, `cause` is the cause of the
interruption. In `cost`, it is why the training was started, as a word of `naming.kind_of_cause`, or empty if a person
started it.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slipway.resources import user_queries
from slipway.resources.trainings import accounts
from slipway.resources.trainings.accounts import FREE, NOBODY, CostSubject, Prices, cost_if_any, cost_subject
from slipway.resources.trainings.quotas import QuotaStatus
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base.units import HOUR

COLUMNS = {
    "trainings": {
        "training": "VARCHAR",
        "begun": "TIMESTAMP",
        "wall_seconds": "DOUBLE",
        "ettr_meta": "DOUBLE",
        "ettr_bytedance": "DOUBLE",
        "goodput": "DOUBLE",
        "mfu": "DOUBLE",
        "interruptions": "INTEGER",
    },
    "spent": {"training": "VARCHAR", "bucket": "VARCHAR", "seconds": "DOUBLE"},
    "lost": {
        "training": "VARCHAR",
        "incident": "VARCHAR",
        "cause": "VARCHAR",
        "node": "VARCHAR",
        "bucket": "VARCHAR",
        "seconds": "DOUBLE",
        "team": "VARCHAR",
        "rank_hours": "DOUBLE",
        "money": "DOUBLE",
    },
}
COLUMNS["cost"] = {
    **dict.fromkeys(("training", "recipe", "sweep"), "VARCHAR"),
    "trial": "INTEGER",
    **dict.fromkeys(("team", "cause"), "VARCHAR"),
    "day": "DATE",
    "bucket": "VARCHAR",
    "spot": "BOOLEAN",
    "rank_hours": "DOUBLE",
    "money": "DOUBLE",
}
COLUMNS["quotas"] = {
    **dict.fromkeys(("team", "per"), "VARCHAR"),
    **dict.fromkeys(("begins", "ends"), "DATE"),
    **dict.fromkeys(("rank_hours", "used", "remaining"), "DOUBLE"),
}
ROWS = 10_000
"""The default number of rows in an answer."""
Rows = dict[str, list[tuple[Any, ...]]]


def rows(
    stores: Iterable[TrainingStore],
    prices: Prices | None = None,
    owners: Mapping[str, str] = NOBODY,
    quotas: Iterable[QuotaStatus] = (),
) -> Rows:
    """The rows of each table. A training that never started, or whose records cannot be read, has none."""
    tables: Rows = {name: [] for name in COLUMNS}
    for store in stores:
        _add(tables, store.id, store.folder, prices, cost_subject(store, owners))
    tables["quotas"] = [
        (
            status.owner,
            status.quota.per,
            status.begins,
            status.ends,
            status.quota.rank_hours,
            status.used,
            status.remaining,
        )
        for status in quotas
    ]
    return tables


def ask(
    stores: Iterable[TrainingStore],
    query: str,
    prices: Prices | None = None,
    owners: Mapping[str, str] = NOBODY,
    quotas: Iterable[QuotaStatus] = (),
    most: int = ROWS,
) -> user_queries.QueryAnswer:
    """The answer of a query, with its first `most` rows. Raises ValueError if the query is not valid SQL."""
    return user_queries.over_rows(query, COLUMNS, rows(stores, prices, owners, quotas), most)


def _add(tables: Rows, training: str, folder: Path, prices: Prices | None, subject: CostSubject) -> None:
    known = accounts.of_if_any(folder)
    if known is None:
        return
    account, figures = known
    shares = (figures.ettr_meta, figures.ettr_bytedance, figures.goodput, figures.mfu)
    tables["trainings"].append((training, account.begin, account.wall, *shares, len(account.interruptions)))
    tables["spent"] += [(training, bucket, seconds) for bucket, seconds in _positive(account.seconds)]
    cost = cost_if_any(folder)
    team = subject.team or (cost.owner if cost else "")
    price = prices.of(team) if prices else None
    if cost is not None:
        whose = (training, subject.recipe, subject.sweep, subject.trial, team, subject.cause)
        tables["cost"] += [
            (*whose, share.day, share.bucket, cost.spot, share.rank_hours, cost.money(share.rank_hours, price))
            for share in cost.shares
        ]
    for interruption in account.interruptions:
        nodes = interruption.nodes or ("",)
        ranks = cost.ranks.get(int(interruption.token.split(".")[0]), 0) if cost else 0
        for node, (bucket, seconds) in itertools.product(nodes, _positive(interruption.lost)):
            hours = 0.0 if bucket in FREE else seconds * ranks / HOUR / len(nodes)
            money = cost.money(hours, price) if cost else None
            own = (training, interruption.token, interruption.kind, node, bucket, seconds / len(nodes))
            tables["lost"].append((*own, team, hours, money))


def _positive(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(bucket, spent) for bucket, spent in seconds.items() if spent > 0]
