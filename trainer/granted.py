"""Granted steps: a training that is given its steps a part at a time goes as far as it may, and no further.

The ranks know the last step that is granted from their start on, so that no step before it costs an exchange or a look
at the store. After that step rank 0 looks again, and tells the others.
"""

import time
from pathlib import Path

from slipway.trainer.node.world import World
from slipway.trainer.record import grants
from slipway.trainer.record.grants import StepGrant

LOOK_SECONDS = 0.05
"""Between two looks for another grant."""


class GrantedSteps:
    """How far one incarnation may go. All ranks call each method at the same time."""

    def __init__(self, store: Path, world: World) -> None:
        """Raises OSError, on all ranks, where the grants cannot be read."""
        self._store, self._world = store, world
        self._grant = self._newest(0)

    def are_done(self, step: int) -> bool:
        """Whether the step after `step` is not granted. Raises OSError, on all ranks."""
        if self._grant is None or step < self._grant.until:
            return False
        self._grant = self._newest(step)
        return self._grant is not None and step >= self._grant.until

    def wait_for_more(self, step: int, stop: object) -> bool:
        """Stay for a while, as the grant says, while rank 0 is not asked to stop; whether more steps are granted."""
        self._grant = self._newest(step, waits=True, stop=stop)
        return self._grant is None or step < self._grant.until

    def _newest(self, step: int, waits: bool = False, stop: object = False) -> StepGrant | None:
        """The newest grant, on all ranks; rank 0 waits for one that goes beyond `step`, as long as the newest says."""
        found, fault = None, ""
        if self._world.leads:
            begun = time.monotonic()
            try:
                found = grants.newest(self._store)
                while waits and found and _is_worth_a_wait(found, step, begun) and not stop:
                    time.sleep(LOOK_SECONDS)
                    found = grants.newest(self._store)
            except OSError as error:
                fault = str(error)
        found, fault = self._world.from_leader((found, fault))
        if fault:
            raise OSError(fault)
        return found


def _is_worth_a_wait(newest: StepGrant, step: int, begun: float) -> bool:
    """Whether ranks that have waited since `begun` still wait: nobody has granted more, or had them leave."""
    return newest.until <= step and time.monotonic() - begun < newest.wait_seconds
