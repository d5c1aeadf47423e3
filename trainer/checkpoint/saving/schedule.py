"""The schedule of saves: the tiers that the checkpoint of a step goes to, from the measured saves and failures.

Rank 0 decides by its clock and tells the other ranks, as the clocks of nodes differ.
"""

import time
from pathlib import Path

from trainer.checkpoint.saving import interval
from trainer.checkpoint.saving.cost import SaveCost
from trainer.checkpoint.tiers.ring import ONE_NODE, NodeRing
from trainer.checkpoint.tiers.tier import BACKUP, DURABLE, LASTING, NVME, TIERS
from trainer.config.resolved import Config
from trainer.node.world import World
from trainer.record import fence


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
        self._cost, self._saving = SaveCost(), 0.0
        self._failures = _failures(Path(config.placement.store))
        self._nvme_failed = False
        """Whether the last save on the NVMe failed, and none on the durable tier has been started since."""

    def follow(self, config: Config) -> None:
        """Go on with the intervals of another configuration."""
        self._config = config

    def add_measurement(self, blocked: float, seconds: float) -> None:
        """Record that a save blocked the steps for `blocked` seconds and took `seconds` in all."""
        self._cost.add_save(blocked, seconds)
        self._saving = seconds

    def add_failure(self, blocked: float, tier: str = "") -> None:
        """Record that a save failed and blocked the steps for `blocked` seconds.

        When the NVMe could not take it, the next checkpoint goes to the durable tier, in its place.
        """
        self._cost.add_save(blocked, blocked)
        self._nvme_failed = self._nvme_failed or tier == NVME

    def add_step(self, seconds: float, saving: bool, size: int) -> None:
        """Record a step; `saving`: while a checkpoint was written, of which a rank's part has `size` bytes."""
        self._cost.expect(size)
        self._cost.add_step(seconds, saving)

    def choice_as_number(self, step: int, has_room: bool) -> float:
        """Rank 0's choice of tiers for the checkpoint of `step`, as a number; 0 on other ranks, to be summed.

        Without room for another save, one that is due by the clock is put off to the next step: no step waits for it.
        """
        due = self._due_tiers(step, time.time(), has_room) if self._world.leads else ()
        return float(sum(1 << TIERS.index(tier) for tier in due))

    def start_saves(self, choice: float) -> tuple[str, ...]:
        """The tiers of a choice, the fastest first; their next intervals begin now."""
        tiers = tuple(tier for number, tier in enumerate(TIERS) if int(choice) >> number & 1)
        self._last |= dict.fromkeys(tiers, time.time())
        self._nvme_failed = self._nvme_failed and DURABLE not in tiers
        if self._ring.spreads and LASTING & set(tiers):
            # No node has the whole of what is on the NVMe of several, to copy it: every rank writes to the tier itself.
            tiers = tuple(tier for tier in tiers if tier != NVME)
        return tiers

    def last_tiers(self) -> tuple[str, ...]:
        """The tiers of a training's last checkpoint: those that outlive its nodes."""
        return tuple(tier for tier in (DURABLE, BACKUP) if tier in self._last)

    def _due_tiers(self, step: int, now: float, has_room: bool) -> tuple[str, ...]:
        storage = self._config.storage
        nvme = interval.nvme_seconds(storage, self._cost.seconds, self._saving, self._failures)
        intervals = {tier: each for tier, each in interval.seconds_by_tier(storage, nvme).items() if tier in self._last}
        if self._nvme_failed:
            # Where the NVMe stays full, each of its saves fails: the durable tier takes one in each of these intervals.
            longest = max(nvme, 60 * storage.nvme.minutes)
            intervals[DURABLE] = min(intervals[DURABLE] or longest, longest)
        intervals = intervals if has_room else {}
        return interval.due_tiers(now, step, self._config.checkpoint.every, intervals, self._last)


def _failures(store: Path) -> interval.Failures:
    claims = fence.claims(store)
    numbers = {claim.token.incarnation for claim in claims}
    exits = {number: found for number in numbers if (found := fence.past_exit(store, number)) is not None}
    return interval.failures(claims, exits, time.time())
