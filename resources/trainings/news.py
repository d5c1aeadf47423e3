"""News: what happens to a training, as lines for a person, from its ledger while it runs."""

import time
from collections.abc import Iterator

from resources.trainings.control import TrainingControl
from resources.trainings.decision import Action
from resources.trainings.store import TrainingStore
from trainer.base.journal import JournalEvent
from trainer.record import ledger

POLL_SECONDS = 0.5
EVERY_STEPS = 10
"""Every so many steps, one is shown."""
SILENT = ("segment", "bound", "node_usage")


def until_ended(store: TrainingStore, control: TrainingControl | None, by: str) -> Iterator[str]:
    """Lines from the training's beginning until it is over.

    With `control`, the steps that are due are taken between the lines, in the name of `by`; without it, none is taken.
    """
    tail = ledger.Tail(store.folder)
    while True:
        over = control.advance(store, by) is Action.DONE if control else store.read().over
        yield from (line for event in tail.new() if (line := of_event(event)))
        if over:
            return
        time.sleep(POLL_SECONDS)


def of_event(event: JournalEvent) -> str:
    """An event of the ledger as a line for a person; empty for an event that is not shown."""
    name, at = event["event"], time.strftime("%H:%M:%S", time.localtime(event["t"]))
    if name in SILENT or (name == "step" and event["step"] % EVERY_STEPS):
        return ""
    if name == "step":
        return f"{at} step {event['step']}: loss {event['loss']:.4f}, {event['seconds']:.3f} s"
    fields = ", ".join(f"{field} {value}" for field, value in event.items() if field in SHOWN)
    return f"{at} {name.replace('_', ' ')}" + (f": {fields}" if fields else "")


SHOWN = ("step", "outcome", "cause", "reason", "nodes", "world", "device", "loss", "tier", "commit")
"""The fields that say most about an event."""
