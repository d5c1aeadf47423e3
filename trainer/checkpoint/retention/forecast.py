"""The storage forecast: the bytes that checkpoints need on each tier, and when a tier will be full.

The bytes follow from measured sizes, the retention rules and the intervals. The time until a tier is full follows from
its use over the last days, by checkpoints and by everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.trainer.base.units import DAY
from slipway.trainer.config.operation import RetentionRule

WINDOW_DAYS = 14.0
"""Older samples are ignored: they are no evidence of the present growth."""


@dataclass(frozen=True)
class Demand:
    """The bytes, and bytes per second, that one training's checkpoints need on a tier."""

    peak_bytes: int
    """All checkpoints that its rule keeps, and one that is being written."""
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
    """Bytes; 0 if the tier has no limit."""


@dataclass(frozen=True)
class Outlook:
    """The use of a tier, and when it will be full."""

    used: int
    capacity: int
    planned: int
    """Bytes that the checkpoints need at their peak, beyond those that are there now."""
    growth: float
    """Bytes per second, by least squares; 0 if the use does not grow, or with one sample."""
    seconds_until_full: float | None
    """At this rate; None means never, and 0 that the planned bytes do not fit now."""


def demand(
    size: int, steps_left: int, step_seconds: float, seconds: float, rule: RetentionRule, referred: int, saving: float
) -> Demand:
    """The demand of a training whose checkpoints have `size` bytes and are saved to a tier every `seconds`.

    `steps_left`, of `step_seconds` each, limit the number of checkpoints to come; `referred` checkpoints stay besides
    those of the rule; the last save took `saving` seconds.
    """
    to_come = 1
    if seconds:
        to_come += int(steps_left * step_seconds / seconds)
    kept_count = rule.last + rule.best + referred
    if rule.every:
        kept_count += steps_left // rule.every
    return Demand(
        peak_bytes=size * (min(to_come, kept_count) + 1),
        bytes_per_second=size / seconds if seconds else 0.0,
        burst_bytes_per_second=size / saving if saving else 0.0,
    )


def growth(samples: Sequence[Sample]) -> float:
    """The growth of the use in bytes per second: the slope of the least-squares line; 0 for fewer than two times."""
    recent = [sample for sample in samples if sample.at > samples[-1].at - WINDOW_DAYS * DAY]
    mean_at = sum(sample.at for sample in recent) / max(1, len(recent))
    mean_used = sum(sample.used for sample in recent) / max(1, len(recent))
    spread = sum((sample.at - mean_at) ** 2 for sample in recent)
    if not spread:
        return 0.0
    return sum((sample.at - mean_at) * (sample.used - mean_used) for sample in recent) / spread


def outlook(samples: Sequence[Sample], planned: int) -> Outlook:
    """The outlook of a tier from its samples, at least one, in the order of time; `planned` as in `Outlook`."""
    last = samples[-1]
    rate = max(0.0, growth(samples))
    room = last.capacity - last.used
    seconds: float | None
    if not last.capacity:
        seconds = None
    elif planned > room:
        seconds = 0.0
    else:
        seconds = room / rate if rate else None
    return Outlook(last.used, last.capacity, planned, rate, seconds)
