"""Spans: a training as one trace. Pure: records in, plain values out.

    <recipe>/training                 a Dagster run that started the training or waited for it
      job <training>-i<incarnation>   from the claim to the end of an incarnation
        rank <n>                      a process in one generation
          phase <name>                its phases, one after the other
          step <n>                    a sample of its steps, each until the next one begins
            data, forward, …          the sections of the step

Every id follows from the subject of the span, so a span that is sent twice is the same span.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Claim, Exit

BY_RUN = "run "
"""The beginning of a claim's `by` if a Dagster run has claimed; the id of the run follows."""
INTERNAL = 1
ERROR = 2
"""SPAN_KIND_INTERNAL; STATUS_CODE_ERROR."""


@dataclass(frozen=True)
class TraceSpan:
    """One span. Times are in seconds since the epoch."""

    trace: str
    """32 hexadecimal digits."""
    id: str
    """16 hexadecimal digits."""
    parent: str
    """The id of the parent span, or ""."""
    name: str
    begun: float
    ended: float
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    """Why it failed, or ""."""


@dataclass(frozen=True)
class AssetRun:
    """An ended Dagster run of a training asset."""

    id: str
    asset: str
    begun: float
    ended: float
    fault: str = ""


@dataclass(frozen=True)
class TrainingTrace:
    """Creates the spans of one training."""

    training: str

    def of_run(self, run: AssetRun) -> TraceSpan:
        """The span of a Dagster run, which is a root of the trace."""
        known = {"slipway.training": self.training, "dagster.run_id": run.id}
        return self._span(run_key(run.id), "", run.asset, run.begun, run.ended, known, run.fault)

    def of_job(self, claims: Sequence[Claim], ended: Exit) -> TraceSpan:
        """The span of an ended incarnation; `claims` are all claims of the training, the oldest first."""
        first = next(claim for claim in claims if claim.token.incarnation == ended.incarnation)
        known = {
            "slipway.training": self.training,
            "slipway.incarnation": ended.incarnation,
            "slipway.cause": first.cause,
            "slipway.nodes": list(first.nodes),
            "slipway.outcome": ended.outcome,
        }
        fault = (ended.reason or ended.kind or "failed") if ended.outcome == "failed" else ""
        parent = parent_run(claims, ended.incarnation)
        name = f"job {self.training}-i{ended.incarnation}"
        within = run_key(parent) if parent else ""
        return self._span(job_key(ended.incarnation), within, name, first.at, ended.at, known, fault)

    def of_rank(self, token: fence.Token, events: Sequence[JournalEvent]) -> TraceSpan | None:
        """The span of an ended rank, from all its events; None if it has recorded nothing."""
        rank_event = next((event for event in events if event["event"] == "rank"), None)
        if rank_event is None:
            return None
        number = int(rank_event["rank"])
        last = max(float(event["t"]) for event in events)
        known = {
            "slipway.training": self.training,
            "slipway.rank": number,
            "slipway.node": str(rank_event["node"]),
            "slipway.incarnation": token.incarnation,
            "slipway.generation": token.generation,
        }
        key = _rank(token, number)
        return self._span(key, job_key(token.incarnation), f"rank {number}", float(rank_event["since"]), last, known)

    def inside_rank(self, token: fence.Token, events: Sequence[JournalEvent]) -> Iterator[TraceSpan]:
        """The spans of a rank's phases and steps, from its events."""
        for event in events:
            if event["event"] == "phase":
                yield self._phase(token, event)
            elif event["event"] == "step":
                yield from self._step(token, event)

    def _phase(self, token: fence.Token, event: JournalEvent) -> TraceSpan:
        rank = _rank(token, int(event["rank"]))
        key = f"{rank} phase {event['name']} {event['begun']!r}"
        known = {"slipway.step": event["step"]}
        return self._span(key, rank, f"phase {event['name']}", float(event["begun"]), float(event["t"]), known)

    def _step(self, token: fence.Token, event: JournalEvent) -> Iterator[TraceSpan]:
        rank = _rank(token, int(event["rank"]))
        begun = float(event["begun"])
        key = f"{rank} step {event['step']}"
        known = {"slipway.step": event["step"]}
        yield self._span(key, rank, f"step {event['step']}", begun, begun + float(event["seconds"]), known)
        for index, (name, after, seconds) in enumerate(event["parts"]):
            yield self._span(f"{key} {index}", key, name, begun + after, begun + after + seconds, known)

    def _span(
        self, key: str, parent: str, name: str, begun: float, ended: float, known: Mapping[str, Any], fault: str = ""
    ) -> TraceSpan:
        trace = _digits(f"trace {self.training}", 16)
        inside = _digits(f"{self.training} {parent}", 8) if parent else ""
        return TraceSpan(
            trace, _digits(f"{self.training} {key}", 8), inside, name, begun, max(begun, ended), known, fault
        )


def parent_run(claims: Sequence[Claim], incarnation: int) -> str:
    """The Dagster run that claimed an incarnation, or if a sensor claimed it, the last run before; "" if there is none.

    It follows from the claims alone, so it never changes.
    """
    runs = [
        claim.by.removeprefix(BY_RUN)
        for claim in claims
        if claim.token.incarnation <= incarnation and claim.token.generation == 0 and claim.by.startswith(BY_RUN)
    ]
    return runs[-1] if runs else ""


def run_key(run: str) -> str:
    """The key of the span of a Dagster run."""
    return f"run {run}"


def job_key(incarnation: int) -> str:
    """The key of the span of an incarnation."""
    return f"job {incarnation}"


def export_request(spans: Sequence[TraceSpan], resource: Mapping[str, str]) -> dict[str, Any]:
    """An ExportTraceServiceRequest; `resource` describes the sender."""
    scope = {"scope": {"name": "slipway"}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}


def _rank(token: fence.Token, rank: int) -> str:
    return f"rank {token} {rank}"


def _digits(text: str, octets: int) -> str:
    """Hexadecimal digits derived from a text."""
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * octets]


def _span(span: TraceSpan) -> dict[str, Any]:
    return {
        "traceId": span.trace,
        "spanId": span.id,
        **({"parentSpanId": span.parent} if span.parent else {}),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(int(span.begun * 1e9)),
        "endTimeUnixNano": str(int(span.ended * 1e9)),
        "attributes": _attributes(span.attributes),
        **({"status": {"code": ERROR, "message": span.fault}} if span.fault else {}),
    }


def _attributes(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in known.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
