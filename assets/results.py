"""Results: reports a finished training to Dagster, exactly once.

The run that waits for a training reports its result, or the job watch if no run is left. A run that was considered dead
may wake up, and two runs may wait for one training. So every writer takes a lock here and first checks whether the
event log already has the result. The lock only separates the writers; the event log is the record.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import keys, plots, spent
from slipway.resources.errors import Unavailable
from slipway.resources.event_log import materialized
from slipway.resources.pages.training import address
from slipway.resources.trainings import naming, updates
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.metric_series import read_sample
from slipway.resources.trainings.updates import KnownChange
from slipway.trainer.base import field_changes
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.metrics import measures
from slipway.trainer.record import ledger

LOCK = "result.lock"
LOCK_SECONDS = 10.0
POLL_SECONDS = 0.1


@contextlib.contextmanager
def showing(instance: dg.DagsterInstance, facts: TrainingFacts) -> Iterator[bool]:
    """Hold the lock and yield whether the result of a succeeded training still has to be reported.

    Raises Unavailable if another process has held the lock for too long.
    """
    descriptor = os.open(facts.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(descriptor, facts.id)
        yield not is_shown(instance, facts)
    finally:
        os.close(descriptor)


def is_shown(instance: dg.DagsterInstance, facts: TrainingFacts) -> bool:
    """Whether the event log has the result of a training."""
    return materialized(instance, keys.key(facts.specification.recipe, "training"), facts.id)


def materialization(facts: TrainingFacts) -> dg.AssetMaterialization:
    """The event that reports the result."""
    return dg.AssetMaterialization(
        keys.key(facts.specification.recipe, "training"),
        partition=facts.id,
        metadata=result_metadata(facts),
        tags={"dagster/data_version": result_version(facts).value},
    )


def result_version(facts: TrainingFacts) -> dg.DataVersion:
    """A training's data version: the manifest of its last undamaged checkpoint, if there is one."""
    return dg.DataVersion(facts.commits[-1].manifest if facts.commits else "no good checkpoint")


def result_metadata(facts: TrainingFacts) -> dict[str, Any]:
    """The metadata of a finished training; metrics of steps only if its ledger has steps."""
    read = read_sample(facts.folder)
    script = facts.specification.script
    ended = facts.ended
    assert ended is not None
    return {
        "name": naming.of(facts),
        "report": dg.MetadataValue.url(address(facts.id)),
        **(_figures(read.steps, script is not None) if read.steps else {}),
        "steps": ended.step,
        "bound": read.bound,
        "staging": read.staging,
        **_datasets(read.datasets),
        "incarnations": ended.incarnation,
        "checkpoints": len(facts.commits),
        **spent.metadata(facts.folder, read.seconds),
        "snapshot": facts.specification.snapshot,
        "origin": dg.MetadataValue.json(dict(facts.run_policy.origin)),
        **changes_of_training(facts.folder),
        "dagster/uri": str(facts.folder),
    }


def change_description(change: KnownChange) -> str:
    """A change of a running training, in one line."""
    return f"change {change.number}: {field_changes.changes(change.pairs)}; {change.state}"


def change_metadata(change: KnownChange) -> dict[str, Any]:
    """The metadata of a change's observation: actor, reason, first step, and the values as a diff."""
    return {
        "change": change.number,
        "state": change.state,
        "step": change.applied.step if change.applied else None,
        "by": change.by,
        "why": change.why,
        "diff": dg.MetadataValue.md(change_diff(change)),
    }


def changes_of_training(folder: Path) -> dict[str, Any]:
    """Metadata with all applied changes of a training; empty if there are none."""
    applied = [update for update in updates.known(folder) if update.applied]
    if not applied:
        return {}
    return {"changes": dg.MetadataValue.md("\n".join(f"- {change_description(update)}" for update in applied))}


def change_diff(change: KnownChange) -> str:
    """The values before and after a change, as a Markdown diff."""
    lines = [f"- {name}: {old!r}\n+ {name}: {new!r}" for name, (old, new) in change.pairs.items()]
    return "\n".join(["```diff", *lines, "```"])


def _figures(steps: list[JournalEvent], script: bool) -> dict[str, Any]:
    """The loss, and a script's own metrics, or a model's total tokens and the throughput of its median step."""
    last = steps[-1]
    median = sorted(steps, key=lambda event: event["seconds"])[len(steps) // 2]
    figures = last["figures"] if script else {"tokens": last["tokens"], "throughput": measures.throughput(median)}
    curve = {"training loss": ledger.loss_curve(steps)}
    unit = "loss" if script else "nats per prediction"
    return {"loss": last["loss"], **figures, "loss_curve": plots.curve(curve, "step", unit)}


def _datasets(read: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """A table of the tokens that a training on several datasets read of each."""
    if not read:
        return {}
    total = sum(dataset["tokens"] for dataset in read.values()) or 1
    rows = [f"| {n} | {e['tokens']:,} | {e['tokens'] / total:.1%} | {e['passes']:.2f} |" for n, e in read.items()]
    head = ["| dataset | tokens | share | passes |", "|---|---|---|---|"]
    return {"datasets": dg.MetadataValue.md("\n".join([*head, *rows]))}


def _lock(descriptor: int, training: str) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(f"{training}: another process has been reporting its result for long") from None
            time.sleep(POLL_SECONDS)
