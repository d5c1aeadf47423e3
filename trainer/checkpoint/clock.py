"""The clock of checkpoints: which tiers the one of this step goes to, by what was measured of saves and failures.

Rank 0's clock decides, and the others are told: clocks differ between nodes.
"""

import os
import time
from pathlib import Path

from trainer import fence
from trainer.checkpoint import interval
from trainer.checkpoint.interval import BACKUP, DURABLE, NVME, TIERS
from trainer.config import Config
from trainer.world import World


class Clock:
    """One incarnation's. A save counts from when it was taken, whatever comes of it."""

    def __init__(self, config: Config, world: World) -> None:
        self._world, self._config = world, config
        there = {DURABLE}
        if world.size == int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
            # A checkpoint on the NVMe is whole on one node, where all of its ranks find it again.
            there.add(NVME)
        if config.placement.backup:
            there.add(BACKUP)
        self._last = dict.fromkeys(there, time.time())
        self._blocked: float | None = None
        self._saving = 0.0
        self._failures = _failures(Path(config.placement.store))

    def saved(self, blocked: float, seconds: float) -> None:
        """A save blocked the steps for `blocked` seconds, and took `seconds` in all."""
        self._blocked, self._saving = blocked, seconds

    def wish(self, step: int) -> float:
        """Rank 0's choice of tiers for the checkpoint of `step` as a number, 0 on the others: to be summed."""
        due = self._due(step, time.time()) if self._world.leads else ()
        return float(sum(1 << TIERS.index(tier) for tier in due))

    def chosen(self, wish: float) -> tuple[str, ...]:
        """The tiers of a wish, the fastest first, which are given a checkpoint now."""
        tiers = tuple(tier for number, tier in enumerate(TIERS) if int(wish) >> number & 1)
        self._last |= dict.fromkeys(tiers, time.time())
        return tiers

    def at_the_end(self) -> tuple[str, ...]:
        """The tiers of a training's last checkpoint: those that outlive its nodes."""
        return tuple(tier for tier in (DURABLE, BACKUP) if tier in self._last)

    def _due(self, step: int, now: float) -> tuple[str, ...]:
        storage = self._config.storage
        nvme = interval.nvme_seconds(storage.nvme.minutes, self._blocked, self._saving, self._failures)
        intervals = {tier: each for tier, each in interval.seconds(storage, nvme).items() if tier in self._last}
        return interval.due(now, step, self._config.checkpoint.every, intervals, self._last)


def _failures(store: Path) -> interval.Failures:
    claims = fence.claims(store)
    numbers = {claim.token.incarnation for claim in claims}
    exits = {number: found for number in numbers if (found := fence.read_exit(store, number)) is not None}
    return interval.failures(claims, exits, time.time())
