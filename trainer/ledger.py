"""The ledger: everything that happened to a training, in order; the only clock.

Append-only segments, one for each writer and token, so that no two processes ever write one file. A reader
merges them. Every figure about a training (its loss curve, its lost seconds) is computed from these events.

An event has `event` (its name), `t` (seconds since the epoch) and its own fields:
    segment         format, incarnation, generation      started    world, device, torch, settings, processors
    step            step, samples, tokens, loss, accuracy, perplexity, learning_rate, gradient_norm, seconds,
                    samples_per_second, tokens_per_second, flops_per_second, mfu; of rank 0: data_seconds,
                    forward_seconds and so on (`trainer.timeline`), cpu_cores, gpu_use and so on (`trainer.usage`);
                    of a script: step, loss, seconds, figures (its own, by name)
    bound           step, steps, bound, share, advice, data_share and so on: what bounds these steps
    profiled        rank, first, last, by, path          profile_failed   rank, first, last, reason
    validated       step, loss                           restored   step, commit, seconds
    committed       step, commit, seconds, bytes         commit_failed  step, reason
    set_aside       commit, reason                       ended      outcome, step, reason
    replicated      step, commit, tier, bytes, seconds   replication_failed  step, commit, tier, reason
and from the control plane, each with `by`: claimed (nodes, cause), incident (nodes, cause), ended.
"""

import time
from pathlib import Path
from typing import Any

from trainer import journal
from trainer.fence import Token

FORMAT = "slipway.ledger/1"


class Ledger:
    """The writer's side of one segment."""

    def __init__(self, folder: Path, token: Token, writer: str) -> None:
        """Open the segment of `writer` (rank-0, job-watch, ...) under the training's folder."""
        path = folder / "ledger" / f"{token}.{writer}.jsonl"
        fresh = not path.exists()
        self._journal = journal.Journal(path, durable=False)
        if fresh:
            self.write("segment", format=FORMAT, incarnation=token.incarnation, generation=token.generation)

    def write(self, event: str, **fields: Any) -> None:
        """Append one event, stamped now. It survives the death of this process. Raises OSError on a full disk."""
        self._journal.append({"event": event, "t": time.time(), **fields})

    def close(self) -> None:
        self._journal.close()


def note(folder: Path, token: Token, writer: str, event: str, **fields: Any) -> None:
    """Append one event to a segment that is open only for that: for writers that come and go."""
    ledger = Ledger(folder, token, writer)
    ledger.write(event, **fields)
    ledger.close()


def segments(folder: Path) -> list[Path]:
    """The segments' paths, by token and writer."""
    return sorted(folder.glob("ledger/*.jsonl"))


def read(folder: Path) -> list[journal.Event]:
    """All events of a training, by time; each also says its `incarnation`."""
    merged: list[journal.Event] = []
    for path in segments(folder):
        incarnation = int(path.name.split(".")[0])
        merged += [{**event, "incarnation": incarnation} for event in journal.read(path).events]
    return sorted(merged, key=lambda event: float(event["t"]))


class Tail:
    """Reads on where it stopped: for whoever follows a training while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[journal.Event]:
        """The events since the last call, by time."""
        found: list[journal.Event] = []
        for path in segments(self._folder):
            reading = journal.read(path, self._offsets.get(path, 0))
            self._offsets[path] = reading.offset
            found += reading.events
        return sorted(found, key=lambda event: float(event["t"]))


def loss_curve(events: list[journal.Event]) -> list[tuple[int, float]]:
    """(step, loss) of the training as it stands: work that a later incarnation did again is shown once."""
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
    return sorted(losses.items())


def validation_curve(events: list[journal.Event]) -> list[tuple[int, float]]:
    """(step, validation loss), each step once."""
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "validated"}
    return sorted(losses.items())
