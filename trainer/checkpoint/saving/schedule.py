"""The schedule of saves: the tiers that the checkpoint of a step goes to, from the measured saves and failures.

Rank 0 decides by its clock and tells the other ranks, because the clocks of nodes differ.

`StopGrace` warns in advance if a stop does not fit between SIGTERM and SIGKILL: a stop takes the steps that cannot be
abandoned in the middle, and the last checkpoint.
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
"""Seconds between SIGTERM and SIGKILL; set by the launcher of the ranks."""
CHANGED = 1.5
"""The warning is repeated if a stop takes this many times as long as at the last warning."""


class SaveSchedule:
    """The schedule of one incarnation. An interval begins when a save is started, whether it succeeds or not."""

    def __init__(self, config: Config, world: World, ring: NodeRing = ONE_NODE) -> None:
        self._world = world
        self._config = config
        self._ring = ring
        available = {DURABLE}
        if not ring.unusable:
            available.add(NVME)
        if config.placement.backup:
            available.add(BACKUP)
        self._last = dict.fromkeys(available, time.time())
        """By available tier, the begin of the newest save: seconds since the epoch."""

        # What was measured, and what it is compared with.
        self._costs = {tier: SaveCost() for tier in TIERS}
        self._saving = dict.fromkeys(TIERS, 0.0)
        """By tier, the seconds of the newest save."""
        self._failures = interval.Failures(0, 0.0)
        if world.is_rank_zero:
            self._failures = _failures(Path(config.placement.store))

        # The newest saves.
        self._writing = ""
        """The tier that the newest save is written to."""
        self._nvme_failed = False
        """Whether the last save on the NVMe failed, and none on the durable tier has been started since."""

    def follow(self, config: Config) -> None:
        """Go on with the intervals of another configuration."""
        self._config = config

    def saved(self, event: Mapping[str, Any]) -> None:
        """Record the saver's event of a save: committed, or failed."""
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

        If it was on the NVMe, the next checkpoint goes to the durable tier instead.
        """
        self._costs[tier or self._fastest].add_save(blocked, blocked)
        self._nvme_failed = self._nvme_failed or tier == NVME

    def add_step(self, seconds: float, saving: bool, size: int) -> None:
        """Record a step; `saving`: whether a checkpoint was being written; `size`: the bytes of a rank's part."""
        for tier, cost in self._costs.items():
            cost.expect(size)
            if not saving or tier == self._writing:
                cost.add_step(seconds, saving)

    @property
    def _fastest(self) -> str:
        """The fastest available tier."""
        return next(tier for tier in TIERS if tier in self._last)

    def choice_as_number(self, step: int, has_room: bool) -> float:
        """This rank's addend to rank 0's choice of tiers for the checkpoint of `step`; 0 on other ranks.

        Without room for another save, a save that is due by the clock moves to a later step, so no step waits for it.
        """
        if not self._world.is_rank_zero:
            return 0.0
        due = self._due_tiers(step, time.time(), has_room)
        return float(sum(1 << TIERS.index(tier) for tier in due))

    def start_saves(self, choice: float) -> tuple[str, ...]:
        """The tiers of a choice, the fastest first; their next intervals begin now."""
        tiers = tuple(tier for number, tier in enumerate(TIERS) if int(choice) >> number & 1)
        self._last |= dict.fromkeys(tiers, time.time())
        self._nvme_failed = self._nvme_failed and DURABLE not in tiers
        if self._ring.spreads and LASTING & set(tiers):
            # No node has the whole of a spread checkpoint, to copy it: every rank writes to the other tier itself.
            tiers = tuple(tier for tier in tiers if tier != NVME)
        if tiers:
            self._writing = tiers[0]
        return tiers

    def last_tiers(self) -> tuple[str, ...]:
        """The tiers of a training's last checkpoint: all that outlive its nodes."""
        return tuple(tier for tier in (DURABLE, BACKUP) if tier in self._last)

    def _due_tiers(self, step: int, now: float, has_room: bool) -> tuple[str, ...]:
        storage = self._config.storage
        intervals = {tier: self._seconds(tier) for tier in self._last}
        if self._nvme_failed:
            # While the NVMe is full, each of its saves fails: the durable tier takes one in each of its intervals.
            longest = max(self._seconds(NVME), 60 * storage.nvme.minutes)
            intervals[DURABLE] = min(intervals[DURABLE] or longest, longest)
        if not has_room:
            intervals = {}
        return interval.due_tiers(now, step, self._config.checkpoint.every, intervals, self._last)

    def _seconds(self, tier: str) -> float:
        """Seconds between two saves on a tier, from their cost and the failures from which the tier protects.

        The fastest available tier protects from all failures of machines; a slower one, from the loss of a node. Copies
        to the backup cost the steps nothing, so its interval is the ceiling.
        """
        storage = self._config.storage
        if tier == BACKUP:
            return interval.ceilings(storage)[BACKUP]
        behind = tier != self._fastest
        between = self._failures.mean_seconds(self._world.size, storage.failures_per_rank_day, behind)
        return interval.tier_seconds(storage, tier, self._costs[tier].seconds, self._saving[tier], between)


class StopGrace:
    """Warns once if a stop takes longer than the grace period, and again if it takes much longer."""

    def __init__(self, record: Callable[..., None]) -> None:
        """`record` writes an event to the ledger."""
        self._record = record
        self._warned_seconds = 0.0
        self._grace = float(os.environ.get(GRACE_VARIABLE) or 0.0)

    def saved(self, step: int, seconds: float, tier: str, before: float = 0.0) -> None:
        """Check a save on `tier` that took `seconds`; only a tier that outlives the nodes gets the last checkpoint.

        `before`: the seconds that a stop may wait until it can save.
        """
        if not self._grace or tier not in LASTING:
            return
        stop_seconds = before + seconds
        if stop_seconds <= max(self._grace, CHANGED * self._warned_seconds):
            return
        self._warned_seconds = stop_seconds
        reason = grace_sentence(self._grace, seconds, step, before)
        self._record("grace_too_short", step=step, grace=self._grace, seconds=stop_seconds, reason=reason)
        console.warn(f"trainer: {reason}")


def grace_sentence(grace: float, seconds: float, step: int, before: float) -> str:
    """The consequence of a stop, for a person."""
    duration = f"the last save took, {seconds:.0f} s"
    if before:
        duration = (
            f"a stop takes, {before:.0f} s for steps that cannot be left in the middle and {seconds:.0f} s to save"
        )
    return (
        f"the grace of {grace:.0f} s is shorter than {duration}: a stop now falls back to "
        f"step {step} or a later checkpoint; a longer grace is placement.kubernetes.grace_seconds"
    )


def _failures(store: Path) -> interval.Failures:
    """The failures of machines under this training so far; an incident that cannot be read does not count."""
    claims = fence.claims(store)
    exits = {}
    for number in {claim.token.incarnation for claim in claims}:
        past_exit = fence.past_exit(store, number)
        if past_exit is not None:
            exits[number] = past_exit
    known = []
    for name in incidents.names(store):
        with contextlib.suppress(ValueError, OSError):
            known.append(incidents.read(store, name))
    return interval.failures(claims, exits, known, time.time())
