"""The storage forecast: the room that checkpoints need on each tier, and when a tier will be full. Pure arithmetic.

The room follows from measured sizes, the rules of retention and the intervals. The time until a tier is full follows
from its use over the last days, by checkpoints and by everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.trainer.base.units import DAY
from slipway.trainer.config.operation import RetentionRule

WINDOW_DAYS = 14.0
"""Older samples are not used: they say little about the present growth."""


@dataclass(frozen=True)
class Demand:
    """The room and the rate that one training's checkpoints need on a tier."""

    peak_bytes: int
    """All checkpoints that its rule keeps, and one more that is being written."""
    bytes_per_second: float
    """The average over time."""
    burst_bytes_per_second: float
    """The rate while a checkpoint is being written, as fast as the last one was."""


@dataclass(frozen=True)
class Sample:
    """The use of a tier at one moment."""

    at: float
    used: int
    """Bytes."""
    capacity: int
    """Bytes; 0 where a tier has no limit."""


@dataclass(frozen=True)
class Outlook:
    """The use of a tier, and when it will be full."""

    used: int
    capacity: int
    planned: int
    """Bytes that the checkpoints need at their peak, beyond those that are there now."""
    growth: float
    """Bytes per second, by least squares; 0 where the use does not grow, and with one sample."""
    seconds_until_full: float | None
    """At this rate; None means never, and 0 that there is no room now for the planned bytes."""


def demand(
    size: int, steps_left: int, step_seconds: float, seconds: float, rule: RetentionRule, referred: int, saving: float
) -> Demand:
    """The demand of a training whose checkpoints have `size` bytes and are saved to a tier every `seconds`.

    `steps_left`, of `step_seconds` each, limit the number of checkpoints to come; `referred` checkpoints stay besides
    those of the rule; the last save took `saving` seconds.
    """
    lasting = steps_left * step_seconds
    to_come = int(lasting / seconds) + 1 if seconds else 1
    kept_count = rule.last + rule.best + referred + (steps_left // rule.every if rule.every else 0)
    return Demand(
        peak_bytes=size * (min(to_come, kept_count) + 1),
        bytes_per_second=size / seconds if seconds else 0.0,
        burst_bytes_per_second=size / saving if saving else 0.0,
    )


def growth(samples: Sequence[Sample]) -> float:
    """Bytes per second by which the use grows: the slope of the least-squares line; 0 for fewer than two times."""
    recent = [sample for sample in samples if sample.at > samples[-1].at - WINDOW_DAYS * DAY]
    mean_at = sum(sample.at for sample in recent) / max(1, len(recent))
    mean_used = sum(sample.used for sample in recent) / max(1, len(recent))
    spread = sum((sample.at - mean_at) ** 2 for sample in recent)
    if not spread:
        return 0.0
    return sum((sample.at - mean_at) * (sample.used - mean_used) for sample in recent) / spread


def outlook(samples: Sequence[Sample], planned: int) -> Outlook:
    """The outlook of a tier from its samples, at least one, in the order of time; `planned` as in `Outlook`."""
    last, rate = samples[-1], max(0.0, growth(samples))
    room = last.capacity - last.used
    seconds: float | None
    if not last.capacity:
        seconds = None
    elif planned > room:
        seconds = 0.0
    else:
        seconds = room / rate if rate else None
    return Outlook(last.used, last.capacity, planned, rate, seconds)
