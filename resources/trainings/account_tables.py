"""Account tables: what the time of all trainings was spent on, for SQL by duckdb in this process.

trainings(training, begun, wall_seconds, ettr_meta, ettr_bytedance, goodput, mfu, interruptions)
spent(training, bucket, seconds)                    each second of a training in one bucket
lost(training, incident, cause, node, bucket, seconds)    what interruptions cost; a node's part where there are several
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from resources import warehouse
from resources.trainings import accounts
from resources.trainings.store import TrainingStore

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
    },
}
Rows = dict[str, list[tuple[Any, ...]]]


def rows(stores: Iterable[TrainingStore]) -> Rows:
    """The rows of each table; a training that was never wanted, or cannot be read, has none."""
    found: Rows = {name: [] for name in COLUMNS}
    for store in stores:
        _add(found, store.id, store.folder)
    return found


def ask(stores: Iterable[TrainingStore], query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns and the rows that a query gives. Raises ValueError for a query that is not SQL."""
    return warehouse.query(query, COLUMNS, rows(stores))


def _add(found: Rows, training: str, folder: Path) -> None:
    known = accounts.of_if_any(folder)
    if known is None:
        return
    account, figures = known
    shares = (figures.ettr_meta, figures.ettr_bytedance, figures.goodput, figures.mfu)
    found["trainings"].append((training, account.begin, account.wall, *shares, len(account.interruptions)))
    found["spent"] += [(training, bucket, seconds) for bucket, seconds in _positive(account.seconds)]
    for each in account.interruptions:
        nodes = each.nodes or ("",)
        found["lost"] += [
            (training, each.token, each.kind, node, bucket, seconds / len(nodes))
            for node in nodes
            for bucket, seconds in _positive(each.lost)
        ]


def _positive(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(bucket, spent) for bucket, spent in seconds.items() if spent > 0]
