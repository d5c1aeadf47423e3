"""The ledger: all events of a training, in order; the only clock.

It has append-only segments, one for each writer and token, so two processes never write one file. A reader merges them.
A thread of the rank writes them (`slipway.trainer.record.record_writer`), so the last events before a SIGKILL may be
missing. Every figure about a training (its loss curve, its lost seconds) is computed from these events.

An event has `event` (its name), `t` (seconds since the epoch) and its own fields:
    segment         format, incarnation, generation      started    world, device, torch, settings, processors, nvme,
                                                                    environment (`slipway.trainer.node.runtime_info`)
    node_usage      node, step, usage: of one rank of each node (`metrics.node_usage`)
    rank_figures    rank, step, figures: of each rank of several (`metrics.rank_figures`)
    phase           phase, step: rank 0 enters a phase of its work; of the first one, since: when its process began
    met             world: all ranks have met            stepped    step: the first one of this generation is done
    step            step, samples, tokens, loss, accuracy, perplexity, learning_rate, gradient_norm, seconds,
                    samples_per_second, tokens_per_second, flops_per_second, mfu; of rank 0: data_seconds,
                    forward_seconds and so on (`metrics.timeline`), cpu_cores, gpu_use and so on (`metrics.usage`);
                    of a script: step, loss, seconds, figures (its own, by name)
    bound           step, steps, bound, share, recommendation, data_share and so on: the bound of these steps
    profiled        rank, first, last, blocked_seconds, by, path     profile_failed   rank, first, last, reason
    validated       step, loss                           restored   step, commit, seconds
    handed_over     step, givers (by the rank that got its state, the rank that gave it), seconds
    committed       step, commit, seconds, bytes, blocked_seconds   commit_failed  step, reason, tier, blocked_seconds
    set_aside       commit, reason                       ended      outcome, step, reason
    step_left       step, seconds, reason: asked to stop     grace_too_short step, grace, seconds, reason
    tier_away       reason: a start waits for a tier     passed_over  commit, reason: no node had now gives it whole
    source_failed   commit, node, file, kind (damaged, away), reason: a restore asked the next place for the file
    skipped         step, found, kind, reason: the batch is skipped
    incident        id, kind, step, cause, action, nodes: of rank 0, for one that the start survived
    not_recorded    events: how many were dropped while the store could not be written
    replicated      step, commit, tier, bytes, seconds   replication_failed  step, commit, tier, reason
    changed         number, step, changed (by field, the value before and now), asked_by, why
    change_refused  number, step, reason, asked_by
from a supervisor, of the recovery that led to this generation: detected (when the one before was seen to be over),
ranks_gone, ranks_ready (when the new ones were started);
and from the control plane, each with `by`: wanted (want, why), claimed (nodes, cause), submitted, incident (nodes,
cause), grown (nodes, cause), ended (ended_at: when its job did, by the record of its launcher, which may be long before
that was seen), released (commit, reason), terms_changed (changed: by name, the value before and now; source: which
recipe), away (seconds: for how long until now nothing had looked after trainings).

The use of each second of a training follows from these events: `slipway.trainer.record.accounting`.
"""

import heapq
import time
from pathlib import Path
from typing import Any

from slipway.trainer.base import journal
from slipway.trainer.record import files
from slipway.trainer.record.fence import Token

FORMAT = "slipway.ledger/1"


class Ledger:
    """Writes one segment."""

    FOLDER = files.LEDGER
    """Its place below the training's folder."""
    FORMAT = FORMAT

    def __init__(self, folder: Path, token: Token, writer: str) -> None:
        """Open the segment of `writer` (rank-0, job-watch, ...) under the training's folder."""
        path = folder / self.FOLDER / f"{token}.{writer}.jsonl"
        fresh = not path.exists()
        self._journal = journal.Journal(path, durable=False)
        if fresh:
            self.write("segment", format=self.FORMAT, incarnation=token.incarnation, generation=token.generation)

    def write(self, event: str, **fields: Any) -> None:
        """Append one event, stamped now. It survives the death of this process. Raises OSError on a full disk."""
        self._journal.append({"event": event, "t": time.time(), **fields})

    def append(self, line: bytes) -> None:
        """Append an event that `journal.frame` made a line of. Raises OSError."""
        self._journal.append_lines(line)

    def close(self) -> None:
        self._journal.close()


def note(folder: Path, token: Token, writer: str, event: str, **fields: Any) -> None:
    """Append one event to a segment that is opened for it alone: for writers that do not stay."""
    ledger = Ledger(folder, token, writer)
    ledger.write(event, **fields)
    ledger.close()


def segments(folder: Path) -> list[Path]:
    """The segments' paths, by token and writer. Raises fence.Unreadable."""
    ledger = folder / files.LEDGER
    return [ledger / name for name in files.entries(ledger) or () if name.endswith(".jsonl")]


def read(folder: Path) -> list[journal.JournalEvent]:
    """All events of a training, in order; each has its `incarnation` too."""
    events_by_path = {path: journal.read(path).events for path in segments(folder)}
    return _in_order(
        {
            path: [{**event, "incarnation": _incarnation(path)} for event in events_by_path[path]]
            for path in events_by_path
        }
    )


class Tail:
    """Reads from where the last reading stopped, for a process that follows a running training."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[journal.JournalEvent]:
        """The events since the last call, in order."""
        events_by_path: dict[Path, list[journal.JournalEvent]] = {}
        for path in segments(self._folder):
            reading = journal.read(path, self._offsets.get(path, 0))
            self._offsets[path] = reading.offset
            events_by_path[path] = reading.events
        return _in_order(events_by_path)


def _in_order(by_segment: dict[Path, list[journal.JournalEvent]]) -> list[journal.JournalEvent]:
    """Events by incarnation, then in the order in which each writer wrote them; paths are by token.

    Clocks of two machines order nothing: `t` only decides how the writers of one incarnation are shown side by side.
    """
    writers: dict[int, dict[str, list[journal.JournalEvent]]] = {}
    for path, events in by_segment.items():
        writer = path.name.split(".", 2)[2]
        writers.setdefault(_incarnation(path), {}).setdefault(writer, []).extend(events)
    return [
        event
        for incarnation in sorted(writers)
        for event in heapq.merge(*writers[incarnation].values(), key=lambda event: float(event["t"]))
    ]


def _incarnation(segment: Path) -> int:
    return int(segment.name.split(".")[0])


def loss_curve(events: list[journal.JournalEvent]) -> list[tuple[int, float]]:
    """(step, loss) of the training now: a step that a later incarnation repeated has that incarnation's loss."""
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
    return sorted(losses.items())


def validation_curve(events: list[journal.JournalEvent]) -> list[tuple[int, float]]:
    """(step, validation loss), each step once."""
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "validated"}
    return sorted(losses.items())


def step_times(events: list[journal.JournalEvent]) -> list[float]:
    """When steps were done, in seconds since the epoch, in order."""
    return sorted(float(event["t"]) for event in events if event["event"] == "step")
