"""Results: what Dagster shows of a finished training, once for its exit record, whoever shows it.

The run that waits for a training shows its result, and the job watch does when no run is left to do so. A run that was
taken for dead may wake up, and two runs may wait for one training: so all write the result here, one after the other,
and the second finds that the event log has it. The lock only keeps them apart for the moment of writing; what was
shown, the event log says.
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
from slipway.resources.event_log import materialised
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
    """Whether the result of a training that has succeeded is to be shown now, by nobody else meanwhile.

    Raises Unavailable when another process has been showing it for too long.
    """
    descriptor = os.open(facts.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(descriptor, facts.id)
        yield not is_shown(instance, facts)
    finally:
        os.close(descriptor)


def is_shown(instance: dg.DagsterInstance, facts: TrainingFacts) -> bool:
    """Whether the event log has the result of a training."""
    return materialised(instance, keys.key(facts.specification.recipe, "training"), facts.id)


def materialisation(facts: TrainingFacts) -> dg.AssetMaterialization:
    """The event that shows the result."""
    return dg.AssetMaterialization(
        keys.key(facts.specification.recipe, "training"),
        partition=facts.id,
        metadata=result_metadata(facts),
        tags={"dagster/data_version": result_version(facts).value},
    )


def result_version(facts: TrainingFacts) -> dg.DataVersion:
    """A training's data version: the manifest of its last checkpoint, when one is left that is not damaged."""
    return dg.DataVersion(facts.commits[-1].manifest if facts.commits else "no good checkpoint")


def result_metadata(facts: TrainingFacts) -> dict[str, Any]:
    """What the UI shows of a finished training; figures of steps only where its ledger has steps."""
    read, script, ended = read_sample(facts.folder), facts.specification.script, facts.ended
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
    """A change of a running training in one line for a person."""
    return f"change {change.number}: {field_changes.changes(change.pairs)}; {change.state}"


def change_metadata(change: KnownChange) -> dict[str, Any]:
    """What an observation of it has: who and why, from which step it holds, and the values as a diff."""
    return {
        "change": change.number,
        "state": change.state,
        "step": change.applied.step if change.applied else None,
        "by": change.by,
        "why": change.why,
        "diff": dg.MetadataValue.md(change_diff(change)),
    }


def changes_of_training(folder: Path) -> dict[str, Any]:
    """All changes of a training that it took over, for its result; empty where there are none."""
    applied = [update for update in updates.known(folder) if update.applied]
    return (
        {"changes": dg.MetadataValue.md("\n".join(f"- {change_description(update)}" for update in applied))}
        if applied
        else {}
    )


def change_diff(change: KnownChange) -> str:
    """The values before and since, as a block of Markdown."""
    lines = [f"- {name}: {old!r}\n+ {name}: {new!r}" for name, (old, new) in change.pairs.items()]
    return "\n".join(["```diff", *lines, "```"])


def _figures(steps: list[JournalEvent], script: bool) -> dict[str, Any]:
    """The loss; of a script its own figures, of our models tokens in all and the throughput of the median step."""
    last, median = steps[-1], sorted(steps, key=lambda event: event["seconds"])[len(steps) // 2]
    figures = last["figures"] if script else {"tokens": last["tokens"], "throughput": measures.throughput(median)}
    curve = {"training loss": ledger.loss_curve(steps)}
    unit = "loss" if script else "nats per prediction"
    return {"loss": last["loss"], **figures, "loss_curve": plots.curve(curve, "step", unit)}


def _datasets(read: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """What a training on several datasets read of each."""
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
                raise Unavailable(f"{training}: another process has been showing its result for long") from None
            time.sleep(POLL_SECONDS)
