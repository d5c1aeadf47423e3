"""Forecast: what the checkpoints of a training take of each tier, and when a tier is full. Arithmetic alone.

What they take follows from measured sizes, the rules of retention and the intervals; when a tier is full, from what
was used of it over the last days, whatever used it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.operation import Keep

DAY = 86_400.0
WINDOW_DAYS = 14.0
"""Samples older than this say little of the growth of today."""


@dataclass(frozen=True)
class Demand:
    """What one training's checkpoints ask of a tier."""

    peak_bytes: int
    """With all that its rule keeps, and one more that is being written."""
    bytes_per_second: float
    """On average; a save asks for `burst` of it while it lasts."""
    burst_bytes_per_second: float
    """While a checkpoint is being written, as fast as the last ones were."""


@dataclass(frozen=True)
class Sample:
    """What was used of a tier at one moment."""

    at: float
    used: int
    capacity: int
    """In bytes; 0 where a tier has no end."""


@dataclass(frozen=True)
class Outlook:
    """When a tier is full."""

    used: int
    capacity: int
    planned: int
    """Peak bytes of the checkpoints that there will be, beyond those that there are."""
    growth: float
    """Bytes per second, by least squares; 0 where nothing grows or there is one sample."""
    seconds: float | None
    """Until it is full at this rate; None for never. 0 when what is planned has no room now."""


def demand(
    size: int, steps_left: int, step_seconds: float, seconds: float, rule: Keep, referred: int, saving: float
) -> Demand:
    """The demand of a training whose checkpoint has `size` bytes and is saved every `seconds` to a tier.

    `steps_left` of `step_seconds` each bound how many checkpoints there will be; `referred` are kept besides the
    rule's; `saving` is how many seconds the last saves took.
    """
    lasting = steps_left * step_seconds
    to_come = int(lasting / seconds) + 1 if seconds else 1
    kept = rule.last + rule.best + referred + (steps_left // rule.every if rule.every else 0)
    return Demand(
        peak_bytes=size * (min(to_come, kept) + 1),
        bytes_per_second=size / seconds if seconds else 0.0,
        burst_bytes_per_second=size / saving if saving else 0.0,
    )


def growth(samples: Sequence[Sample]) -> float:
    """Bytes per second that `used` grows by, the slope of the least-squares line; 0 below two moments."""
    recent = [sample for sample in samples if sample.at > samples[-1].at - WINDOW_DAYS * DAY]
    mean_at = sum(sample.at for sample in recent) / max(1, len(recent))
    mean_used = sum(sample.used for sample in recent) / max(1, len(recent))
    spread = sum((sample.at - mean_at) ** 2 for sample in recent)
    if not spread:
        return 0.0
    return sum((sample.at - mean_at) * (sample.used - mean_used) for sample in recent) / spread


def outlook(samples: Sequence[Sample], planned: int) -> Outlook:
    """The outlook of a tier from its samples, by time, at least one; `planned` as in `Outlook`."""
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
