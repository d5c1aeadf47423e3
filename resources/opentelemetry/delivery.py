"""Delivery: what of a training's trace is sent next, and the record of what was.

    <durable>/opentelemetry/…   as `slipway.resources.delivery_state`

A rank's file is read on from where the last reading stopped. A span whose end is not known yet (of a run, a job, a
rank) is sent when it is.
"""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.opentelemetry.spans import AssetRun, TraceSpan, TrainingTrace, job_key, run_key
from slipway.trainer.base import codec, journal
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Claim, Exit

FORMAT = "slipway.opentelemetry/1"
MOST_BYTES = 1 << 20
"""Of one rank's file at a time."""


@dataclass(frozen=True)
class SentSpans:
    """What of one training was sent."""

    complete: tuple[str, ...] = field(default=(), metadata={codec.KEY: "whole"})
    """The runs, jobs and ranks that are over and were sent."""
    read: Mapping[str, int] = field(default_factory=dict)
    """By the file of a rank that is not over, the bytes whose spans were sent."""


@dataclass(frozen=True)
class SpanBatch:
    """Some spans, and what is sent with them and before."""

    spans: Sequence[TraceSpan]
    sent: SentSpans


def has_spans(store: Path) -> bool:
    """Whether the ranks of a training record spans. Raises OSError."""
    return (store / files.SPANS).exists()


def batches(
    store: Path, claims: Sequence[Claim], exits: Sequence[Exit], runs: Sequence[AssetRun], sent: SentSpans
) -> Iterator[SpanBatch]:
    """What is new of a training, in the order in which it is to be sent. Raises OSError."""
    trace = TrainingTrace(store.name)
    ended = frozenset(sent.complete)
    for name in files.entries(store / files.SPANS) or ():
        if name not in ended:
            for batch in _of_rank(trace, store / files.SPANS / name, sent, ended):
                yield batch
                sent = batch.sent
    tops = {run_key(run.id): functools.partial(trace.of_run, run) for run in runs}
    tops |= {job_key(end.incarnation): functools.partial(trace.of_job, claims, end) for end in exits}
    for key, make_span in tops.items():
        if key not in ended:
            sent = SentSpans((*sent.complete, key), sent.read)
            yield SpanBatch([make_span()], sent)


def is_whole(store: Path, sent: SentSpans) -> bool:
    """Whether all that ranks have recorded was sent, with the ends of the ranks. Raises OSError."""
    return set(files.entries(store / files.SPANS) or ()) <= set(sent.complete)


def _of_rank(trace: TrainingTrace, path: Path, sent: SentSpans, ended: Collection[str]) -> Iterator[SpanBatch]:
    """What is new of one rank, and the rank itself when it is over.

    A rank that was killed does not say its end: it is over when its job was seen to be, and nothing has come since.
    """
    token = fence.Token.parse(".".join(path.name.split(".")[:2]))
    name = path.name
    begun = offset = sent.read.get(name, 0)
    says_end = False
    while (reading := journal.read(path, offset, MOST_BYTES)).offset > offset:
        offset = reading.offset
        says_end = says_end or any(event["event"] == "end" for event in reading.events)
        sent = SentSpans(sent.complete, {**sent.read, name: offset})
        yield SpanBatch(list(trace.inside_rank(token, reading.events)), sent)
    if says_end or (offset == begun and job_key(token.incarnation) in ended):
        rank = trace.of_rank(token, journal.read(path).events)
        offsets = {other: read for other, read in sent.read.items() if other != name}
        yield SpanBatch([rank] if rank else [], SentSpans((*sent.complete, name), offsets))
