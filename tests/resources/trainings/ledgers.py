"""A training that has used a number of rank-hours, without any time passing: it had many ranks for a moment."""

import dataclasses

from slipway.resources.trainings import accounts
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import journal
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token

RANKS = 3_600_000
"""Ranks on each node, so that a node uses a rank-hour in each millisecond."""


def spent(store: TrainingStore, hours: float, outcome: str = "succeeded") -> float:
    """Have a training, whose terms give a node `RANKS` ranks, use so many rank-hours, and end.

    Returns when that was, in seconds since the epoch.
    """
    assert store.claim(1, ("node-0",), "first start", "test")
    store.mark_submitted(1)
    end = (begun := accounts.of(store.folder).end) + hours / 1000
    with journal.Journal(store.folder / "ledger" / f"{Token(1)}.rank-0.jsonl", durable=False) as log:
        log.append(
            {"event": "phase", "t": begun, "phase": "training", "since": begun},
            {"event": "step", "t": end, "step": 1, "loss": 1.0},
        )
    exit = store.exit_of(1, outcome, "the test says so", "test", ("node-0",), disrupted=False)
    assert fence.record_exit(store.folder, dataclasses.replace(exit, at=end))
    return end
