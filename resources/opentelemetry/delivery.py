"""Delivery: what to send next of a training's trace, and the record of what was sent.

    <durable>/opentelemetry/…   as `slipway.resources.delivery_state`

A rank's file is read from where the last reading stopped. The span of a run, a job or a rank is sent once its end is
known.
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
"""How much of one rank's file is read at a time."""


@dataclass(frozen=True)
class SentSpans:
    """What was sent of one training."""

    complete: tuple[str, ...] = field(default=(), metadata={codec.KEY: "whole"})
    """The ended runs, jobs and ranks that were sent."""
    read: Mapping[str, int] = field(default_factory=dict)
    """The number of sent bytes of each rank's file, for ranks that have not ended."""


@dataclass(frozen=True)
class SpanBatch:
    """Some spans, and the record of what will have been sent after them."""

    spans: Sequence[TraceSpan]
    sent: SentSpans


def has_spans(store: Path) -> bool:
    """Whether the ranks of a training record spans. Raises OSError."""
    return (store / files.SPANS).exists()


def batches(
    store: Path, claims: Sequence[Claim], exits: Sequence[Exit], runs: Sequence[AssetRun], sent: SentSpans
) -> Iterator[SpanBatch]:
    """The new spans of a training, in the order of sending. Raises OSError."""
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
    """Whether everything that ranks have recorded was sent, including their ends. Raises OSError."""
    return set(files.entries(store / files.SPANS) or ()) <= set(sent.complete)


def _of_rank(trace: TrainingTrace, path: Path, sent: SentSpans, ended: Collection[str]) -> Iterator[SpanBatch]:
    """The new spans of one rank, and the span of the rank itself once it has ended.

    A killed rank records no end: it has ended if its job has ended and its file has not grown since.
    """
    token = fence.Token.parse(".".join(path.name.split(".")[:2]))
    name = path.name
    begun = sent.read.get(name, 0)
    offset = begun
    says_end = False
    while True:
        reading = journal.read(path, offset, MOST_BYTES)
        if reading.offset <= offset:
            break
        offset = reading.offset
        says_end = says_end or any(event["event"] == "end" for event in reading.events)
        sent = SentSpans(sent.complete, {**sent.read, name: offset})
        yield SpanBatch(list(trace.inside_rank(token, reading.events)), sent)
    if says_end or (offset == begun and job_key(token.incarnation) in ended):
        rank = trace.of_rank(token, journal.read(path).events)
        offsets = {other: read for other, read in sent.read.items() if other != name}
        yield SpanBatch([rank] if rank else [], SentSpans((*sent.complete, name), offsets))
