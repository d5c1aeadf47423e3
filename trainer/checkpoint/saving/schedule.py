"""The schedule of saves: the tiers that the checkpoint of a step goes to, from the measured saves and failures.

Rank 0 decides by its clock and tells the other ranks, as the clocks of nodes differ.

Whether the end of a stop fits between SIGTERM and SIGKILL is said before one is asked for (`StopGrace`): the end is
the last checkpoint, and before it the steps that cannot be left in the middle.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slipway.trainer.base import console
from slipway.trainer.checkpoint.saving import interval
from slipway.trainer.checkpoint.saving.interval import SaveCost
from slipway.trainer.checkpoint.tiers.ring import ONE_NODE, NodeRing
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, LASTING, NVME, TIERS
from slipway.trainer.config.resolved import Config
from slipway.trainer.node.world import World
from slipway.trainer.record import fence, incidents

GRACE_VARIABLE = "SLIPWAY_GRACE_SECONDS"
"""Between SIGTERM and SIGKILL; whoever starts the ranks sets it."""
CHANGED = 1.5
"""It is said again when a save takes so many times as long as it did then."""


class SaveSchedule:
    """The schedule of one incarnation. An interval begins when a save is started, whether it succeeds or not."""

    def __init__(self, config: Config, world: World, ring: NodeRing = ONE_NODE) -> None:
        self._world, self._config, self._ring = world, config, ring
        there = {DURABLE}
        if not ring.unusable:
            there.add(NVME)
        if config.placement.backup:
            there.add(BACKUP)
        self._last = dict.fromkeys(there, time.time())
        self._costs = {tier: SaveCost() for tier in TIERS}
        self._saving = dict.fromkeys(TIERS, 0.0)
        self._failures = _failures(Path(config.placement.store)) if world.is_rank_zero else interval.Failures(0, 0.0)
        self._writing = ""
        """The tier that the newest save is written to."""
        self._nvme_failed = False
        """Whether the last save on the NVMe failed, and none on the durable tier has been started since."""

    def follow(self, config: Config) -> None:
        """Go on with the intervals of another configuration."""
        self._config = config

    def saved(self, event: Mapping[str, Any]) -> None:
        """Record what the saver says of a save: that it is committed, or failed."""
        if event["event"] == "committed":
            self.add_measurement(event["blocked_seconds"], event["seconds"], event["tier"])
        else:
            self.add_failure(event["blocked_seconds"], event["tier"])

    def add_measurement(self, blocked: float, seconds: float, tier: str) -> None:
        """Record that a save on `tier` blocked the steps for `blocked` seconds and took `seconds` in all."""
        self._costs[tier].add_save(blocked, seconds)
        self._saving[tier] = seconds

    def add_failure(self, blocked: float, tier: str = "") -> None:
        """Record that a save failed and blocked the steps for `blocked` seconds.

        When the NVMe could not take it, the next checkpoint goes to the durable tier, in its place.
        """
        self._costs[tier or self._fastest].add_save(blocked, blocked)
        self._nvme_failed = self._nvme_failed or tier == NVME

    def add_step(self, seconds: float, saving: bool, size: int) -> None:
        """Record a step; `saving`: while a checkpoint was written, of which a rank's part has `size` bytes."""
        for tier, cost in self._costs.items():
            cost.expect(size)
            if not saving or tier == self._writing:
                cost.add_step(seconds, saving)

    @property
    def _fastest(self) -> str:
        """The first of the tiers that there are."""
        return next(tier for tier in TIERS if tier in self._last)

    def choice_as_number(self, step: int, has_room: bool) -> float:
        """Rank 0's choice of tiers for the checkpoint of `step`, as a number; 0 on other ranks, to be summed.

        Without room for another save, one that is due by the clock is put off to the next step: no step waits for it.
        """
        due = self._due_tiers(step, time.time(), has_room) if self._world.is_rank_zero else ()
        return float(sum(1 << TIERS.index(tier) for tier in due))

    def start_saves(self, choice: float) -> tuple[str, ...]:
        """The tiers of a choice, the fastest first; their next intervals begin now."""
        tiers = tuple(tier for number, tier in enumerate(TIERS) if int(choice) >> number & 1)
        self._last |= dict.fromkeys(tiers, time.time())
        self._nvme_failed = self._nvme_failed and DURABLE not in tiers
        if self._ring.spreads and LASTING & set(tiers):
            # No node has the whole of what is on the NVMe of several, to copy it: every rank writes to the tier itself.
            tiers = tuple(tier for tier in tiers if tier != NVME)
        self._writing = tiers[0] if tiers else self._writing
        return tiers

    def last_tiers(self) -> tuple[str, ...]:
        """The tiers of a training's last checkpoint: those that outlive its nodes."""
        return tuple(tier for tier in (DURABLE, BACKUP) if tier in self._last)

    def _due_tiers(self, step: int, now: float, has_room: bool) -> tuple[str, ...]:
        storage = self._config.storage
        intervals = {tier: self._seconds(tier) for tier in self._last}
        if self._nvme_failed:
            # Where the NVMe stays full, each of its saves fails: the durable tier takes one in each of these intervals.
            longest = max(self._seconds(NVME), 60 * storage.nvme.minutes)
            intervals[DURABLE] = min(intervals[DURABLE] or longest, longest)
        intervals = intervals if has_room else {}
        return interval.due_tiers(now, step, self._config.checkpoint.every, intervals, self._last)

    def _seconds(self, tier: str) -> float:
        """Seconds between two saves on a tier, by what saves on it cost and what it protects from.

        The fastest tier that there is protects from all failures of machines; one behind it, from the loss of a node.
        What is copied to the backup costs the steps nothing: its ceiling holds.
        """
        storage = self._config.storage
        if tier == BACKUP:
            return interval.ceilings(storage)[BACKUP]
        behind = tier != self._fastest
        between = self._failures.mean_seconds(self._world.size, storage.failures_per_rank_day, behind)
        return interval.tier_seconds(storage, tier, self._costs[tier].seconds, self._saving[tier], between)


class StopGrace:
    """Warns once that saves take longer than the grace, and again when they take much longer."""

    def __init__(self, record: Callable[..., None]) -> None:
        """`record` writes an event to the ledger."""
        self._record, self._warned_seconds = record, 0.0
        self._grace = float(os.environ.get(GRACE_VARIABLE) or 0.0)

    def saved(self, step: int, seconds: float, tier: str, before: float = 0.0) -> None:
        """A save on `tier` took so many seconds. Only those on tiers that outlive the nodes end a stop.

        `before`: the seconds that a stop may wait until it can save.
        """
        if (
            not self._grace
            or tier not in LASTING
            or before + seconds <= max(self._grace, CHANGED * self._warned_seconds)
        ):
            return
        self._warned_seconds = before + seconds
        reason = grace_sentence(self._grace, seconds, step, before)
        self._record("grace_too_short", step=step, grace=self._grace, seconds=before + seconds, reason=reason)
        console.warn(f"trainer: {reason}")


def grace_sentence(grace: float, seconds: float, step: int, before: float) -> str:
    """What a stop would come to, for a person."""
    save = f"the last save took, {seconds:.0f} s"
    stop = f"a stop takes, {before:.0f} s for steps that cannot be left in the middle and {seconds:.0f} s to save"
    return (
        f"the grace of {grace:.0f} s is shorter than {stop if before else save}: a stop now falls back to "
        f"step {step} or a later checkpoint; a longer grace is placement.kubernetes.grace_seconds"
    )


def _failures(store: Path) -> interval.Failures:
    """What machines did to this training so far; an incident that cannot be read counts as none."""
    claims = fence.claims(store)
    numbers = {claim.token.incarnation for claim in claims}
    exits = {number: past_exit for number in numbers if (past_exit := fence.past_exit(store, number)) is not None}
    known = []
    for name in incidents.names(store):
        with contextlib.suppress(ValueError, OSError):
            known.append(incidents.read(store, name))
    return interval.failures(claims, exits, known, time.time())
