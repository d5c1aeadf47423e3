"""Limits: how long this rank waits for the others in one exchange, by phase.

Before its first steps a rank may stage, restore or compile for long while others wait for it; a step is short, and a
rank that does not answer there is gone. So the limit is `hardware.timeout_seconds` at the start, in validations and at
the end, and `hardware.step_timeout_seconds` in steps.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from slipway.trainer.config.operation import Hardware
from slipway.trainer.node.world import World


class TimeLimits:
    """The limits of one rank."""

    def __init__(self, hardware: Hardware, world: World) -> None:
        self._elsewhere, self._in_steps = hardware.timeout_seconds, hardware.step_timeout_seconds
        self._world, self._stepped = world, False
        self._more: Callable[[], Sequence[dist.ProcessGroup]] = tuple
        self._now: tuple[float, list[dist.ProcessGroup]] = self._elsewhere, self._groups()

    def watch(self, groups: Callable[[], Sequence[dist.ProcessGroup]]) -> None:
        """Limit these groups too; they may be others later, when all ranks have made them anew."""
        self._more = groups

    def follow(self, hardware: Hardware) -> None:
        """Go on with the limits of another configuration, from the next phase on."""
        self._elsewhere, self._in_steps = hardware.timeout_seconds, hardware.step_timeout_seconds

    def enter(self, in_step: bool) -> None:
        """This rank begins a step, or something else. A process's first step warms up, and has the longer limit.

        No rank is behind in an exchange of the first step by then: at the end of each step all ranks agree.
        """
        seconds = self._in_steps if in_step and self._stepped else self._elsewhere
        self._stepped = self._stepped or in_step
        wanted = seconds, self._groups()
        if wanted != self._now:
            for group in wanted[1]:
                # PyTorch has no public function for this; torchtitan lowers its limit by the same one.
                distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
            self._now = wanted

    def _groups(self) -> list[dist.ProcessGroup]:
        if self._world.size == 1:
            return []
        beside = [self._world.objects] if self._world.objects else []
        default: dist.ProcessGroup = distributed_c10d._get_default_group()
        return [default, *beside, *self._more()]
