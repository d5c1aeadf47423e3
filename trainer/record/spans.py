"""Spans: the times of each rank's work, for traces: its phases, and the parts of some of its steps.

    <training>/spans/<token>.spans-<rank>.jsonl

Spans are recorded only if the environment names a receiver of traces (the variables of OpenTelemetry). The ranks send
nothing: they write to their usual store, without waiting, and the control plane sends the spans later.

An event has `event` (its name), `t` (seconds since the epoch) and its own fields:
    segment     format, incarnation, generation
    rank        rank, node, since: when its process began
    phase       name, step, begun: it ends at `t`
    step        step, begun, seconds, parts: for each part its name, the seconds from `begun` to it, and its seconds
    end         the last one; a rank that was killed has none
"""

import os
from collections.abc import Mapping

from slipway.trainer.base import console
from slipway.trainer.record import files
from slipway.trainer.record.ledger import Ledger

FORMAT = "slipway.spans/1"
WRITER = "spans"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""One of them names the receiver of traces."""
DISABLED = "OTEL_SDK_DISABLED"
STEPS = "SLIPWAY_TRACE_STEPS"
"""The parts of every such step are recorded."""
DEFAULT_STEPS = 100


class SpanLog(Ledger):
    """Writes the spans of one rank under one token."""

    FOLDER = files.SPANS
    FORMAT = FORMAT


def are_wanted(environ: Mapping[str, str]) -> bool:
    """Whether traces are sent anywhere."""
    return any(environ.get(name) for name in ENDPOINTS) and environ.get(DISABLED, "").lower() != "true"


def steps_apart(environ: Mapping[str, str]) -> int:
    """The distance between two steps whose parts are recorded. Raises ValueError for a bad setting."""
    text = environ.get(STEPS) or str(DEFAULT_STEPS)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{STEPS}: found {text!r}, expected a number of steps, 1 or more")
    return int(text)


def of_rank(environ: Mapping[str, str] = os.environ) -> int:
    """The distance between two steps that this rank records, 0 if it records none; warns of a bad setting."""
    if not are_wanted(environ):
        return 0
    try:
        return steps_apart(environ)
    except ValueError as error:
        console.warn(f"trainer: {error}; this rank records no spans")
        return 0
