"""Newcomers: nodes that wait to take part in a running job, and the end of a generation between two steps to let them.

A node that was lost and is back says in the job's store that it waits (`slipway.trainer.node.generations`). A thread of
rank 0 looks there, on a connection of its own, while the job has fewer nodes than it may have. Rank 0 adds what it has
seen to the numbers that the ranks sum in every step anyway: all of them learn of it after the same step, and leave
their generation there. So no step is done twice, and none is lost.
"""

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.config import layout
from slipway.trainer.config.layout import LayoutSettings
from slipway.trainer.node import generations
from slipway.trainer.node.generations import MOST, Arrival, End, key
from slipway.trainer.node.world import World
from slipway.trainer.record import causes

LOOK_SECONDS = 1.0
"""Between two looks for nodes that wait."""


class Newcomers:
    """The nodes that wait for the generation of this rank to end; on ranks other than 0 there are none."""

    def __init__(self, settings: LayoutSettings, world: World, environment: Mapping[str, str] = os.environ) -> None:
        """`settings` say which numbers of nodes have a mesh."""
        self._settings, self._ranks = settings, int(environment.get("LOCAL_WORLD_SIZE", "1"))
        self.waiting = 0.0
        """How many nodes wait, as all ranks know since the last step."""
        self._stays = world.groups is not None and world.groups.stays
        self._environment, self._names = environment, tuple[str, ...]()
        self._generation, self._closing = generations.given(environment), threading.Event()
        self._nodes, self._most = (int(environment.get(name, "1")) for name in ("GROUP_WORLD_SIZE", MOST))
        self._thread = threading.Thread(target=self._look, name="newcomers", daemon=True)
        if world.leads and self._nodes < self._most and self._generation is not None:
            self._thread.start()

    def number(self) -> float:
        """How many wait, as rank 0 has seen, where the layout has a mesh for more nodes with them: to be summed."""
        count = len(self._names)
        if not count:
            return 0.0
        fits = layout.fitting(self._settings, self._ranks, min(self._most, self._nodes + count))
        return float(count) if fits > self._nodes else 0.0

    def reason(self, step: int) -> str:
        """Why the generation ends after this step, for a person; asked of rank 0."""
        return f"made room after step {step} for {', '.join(self._names)}"

    def admit(self, step: int) -> None:
        """End the generation of all ranks after this step; rank 0 calls it. Raises RuntimeError without the store."""
        node = self._environment.get("SLIPWAY_NODE", "local")
        end = End(node, causes.GROWN, self.reason(step), False, 0, time.time(), stay=self._stays, joins=self._names)
        generations.announce(end, self._environment)

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def _look(self) -> None:
        assert self._generation is not None
        with contextlib.suppress(RuntimeError):  # the store is gone, and with it who waits there
            store: Any = generations.job_store(self._environment)
            while not self._closing.wait(LOOK_SECONDS):
                count = store.add(key(self._generation, "waits"), 0)
                places = [key(self._generation, "waiting", place) for place in range(count)]
                found = [codec.decode(Arrival, store.get(each), each) for each in places if store.check([each])]
                self._names = tuple(sorted({arrival.node for arrival in found}))
