"""A generation's own account: rank 0's events under one token, folded into spans of time.

Durations are differences of one clock, that of rank 0's node. The fold continues between readings, so a ledger of a
million steps is read once. Its size is bounded: if there are many spans of steps, they are merged.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record.accounting import buckets

MOST_STRETCHES = 512
FIRST_WIDTH = 16
"""How many steps a stretch has before any are merged."""
BEFORE = {
    "staging": buckets.STAGING,
    "started": buckets.BUILDING,
    "drawn": buckets.BUILDING,
    "initialized": buckets.BUILDING,
    "restored": buckets.RESTORING,
    "validated": buckets.VALIDATION,
    "step": buckets.STEPS,
}
"""The phase that led to an event, in a ledger of an earlier version, which has no phases."""
PARTS = ((buckets.DATA, "data_seconds"), (buckets.COMMUNICATION, "communication_seconds"))
"""The parts in a step's event; a ledger of an earlier version has more."""
PARTS_WITHOUT_PHASES = (
    *PARTS,
    (buckets.CHECKPOINT, "checkpoint_seconds"),
    (buckets.VALIDATION, "validation_seconds"),
)


@dataclass
class Stretch:
    """Some time of a training, and what it was spent on. Times are seconds since the epoch."""

    begin: float
    end: float
    seconds: dict[str, float]
    """By bucket; they sum to `end` - `begin`."""
    first: int = 0
    """Its first step; 0 if it did none. After a restore, the step after the restored one."""
    last: int = 0
    mfu_seconds: float = 0.0
    """The sum of each step's MFU times its seconds, over the steps whose MFU is known."""
    mfu_over: float = 0.0
    """The seconds of these steps."""


@dataclass
class GenerationFold:
    """The account from rank 0's segment of one token so far."""

    since: float = 0.0
    """When its process began; 0 when that is not on record."""
    begun: float | None = None
    """The time of its first event."""
    at: float = 0.0
    """The time of its newest event; it does not go back, even if the clock does."""
    phase: str = ""
    """The phase it is in, empty in a ledger without phases."""
    ended: bool = False
    """Whether it wrote its own end."""
    width: int = FIRST_WIDTH
    stretches: list[Stretch] = field(default_factory=list)

    def add(self, events: Iterable[JournalEvent]) -> "GenerationFold":
        """Fold events in, in the order in which they were written; returns itself."""
        for event in events:
            self._add(event)
        return self

    def _add(self, event: JournalEvent) -> None:
        name = event["event"]
        t = float(event["t"])
        if self.begun is None:
            self.begun = self.at = t
        t = max(t, self.at)
        if name == "step":
            self._add_step(event, t)
        elif name == "restored":
            self._spend(t, self._bucket(name))
            following = int(event["step"]) + 1
            self.stretches.append(Stretch(t, t, {}, following, following - 1))
        elif name == "phase":
            self._spend(t, self._bucket(name))
            self.phase = event["phase"]
            self.since = self.since or float(event.get("since", 0.0))
        elif name in BEFORE or name == "ended":
            self._spend(t, self._bucket(name))
            self.ended = self.ended or name == "ended"
        self.at = t

    def _bucket(self, event: str) -> str:
        """The bucket of the time since the newest event."""
        if self.phase:
            return buckets.BY_PHASE.get(self.phase, buckets.STARTING)
        return BEFORE.get(event, buckets.STARTING if not self._has_steps else buckets.STEPS)

    @property
    def _has_steps(self) -> bool:
        return bool(self.stretches) and self.stretches[-1].last > 0

    def _spend(self, until: float, bucket: str) -> None:
        """The time since the newest event, up to `until`, was spent on `bucket`."""
        if until <= self.at:
            return
        stretch = self.stretches[-1] if self.stretches else None
        if stretch is not None and (stretch.first or bucket in stretch.seconds):
            stretch.seconds[bucket] = stretch.seconds.get(bucket, 0.0) + until - self.at
            stretch.end = until
        else:
            self.stretches.append(Stretch(self.at, until, {bucket: until - self.at}))

    def _add_step(self, event: JournalEvent, t: float) -> None:
        step = int(event["step"])
        stretch = self.stretches[-1] if self.stretches else None
        if stretch is None or not stretch.first or step != stretch.last + 1 or step - stretch.first >= self.width:
            stretch = Stretch(self.at, self.at, {}, step, step)
            self.stretches.append(stretch)
            self._compact()
        stretch.last = step
        total = t - self.at
        if total > 0:
            for bucket, spent in self._parts(event, total).items():
                stretch.seconds[bucket] = stretch.seconds.get(bucket, 0.0) + spent
            stretch.end = t
        if "mfu" in event and "seconds" in event:
            stretch.mfu_seconds += float(event["mfu"]) * float(event["seconds"])
            stretch.mfu_over += float(event["seconds"])

    def _parts(self, event: JournalEvent, total: float) -> dict[str, float]:
        """The seconds of a step by bucket, `total` in all."""
        if self.phase == "compiling":
            return {buckets.COMPILING: total}
        parts = {buckets.STEPS: total}
        measured = 0.0
        for bucket, key in PARTS if self.phase else PARTS_WITHOUT_PHASES:
            spent = event.get(key)
            if spent and spent > 0:
                parts[bucket] = float(spent)
                measured += parts[bucket]
        if measured > total:
            # A GPU's parts are read late, and may belong to a step before: together they are at most this step.
            parts = {bucket: spent * total / measured for bucket, spent in parts.items()}
        parts[buckets.STEPS] = max(0.0, total - measured)
        return parts

    def _compact(self) -> None:
        """Merge neighbours that follow one another in steps, when there are many."""
        if len(self.stretches) <= MOST_STRETCHES:
            return
        self.width *= 2
        merged: list[Stretch] = []
        for stretch in self.stretches:
            before = merged[-1] if merged else None
            if (
                before is not None
                and before.first
                and before.last + 1 == stretch.first
                and stretch.last - before.first < self.width
                and stretch is not self.stretches[-1]
            ):
                merged[-1] = joined(before, stretch)
            else:
                merged.append(stretch)
        self.stretches = merged


def joined(one: Stretch, next: Stretch) -> Stretch:
    """Two stretches that follow one another, as one."""
    seconds = dict(one.seconds)
    for bucket, spent in next.seconds.items():
        seconds[bucket] = seconds.get(bucket, 0.0) + spent
    return Stretch(
        one.begin,
        next.end,
        seconds,
        one.first or next.first,
        max(one.last, next.last),
        one.mfu_seconds + next.mfu_seconds,
        one.mfu_over + next.mfu_over,
    )
