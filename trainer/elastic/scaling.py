"""Scaling: a job gets more or fewer nodes between two steps, at the end of a generation.

**Up.** A node that was lost and is back writes to the job's store that it waits
(`slipway.trainer.elastic.generations`). A thread of rank 0 reads this on its own connection, while the job has fewer
nodes than it may have. Rank 0 adds the number of waiting nodes to the numbers that the ranks sum in every step anyway,
so all ranks learn of it after the same step and end their generation there. No step is repeated or lost.

**Down.** Some nodes of a job are asked to stop and others are not, as when one node is drained. If the launcher starts
a node that has ended anew (`REPLACED`), the job goes on without it: all ranks save a checkpoint after the same step,
and end their generation there. A job stops if all its nodes are asked; a job whose nodes are not replaced stops if one
of them is asked.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.config import layout
from slipway.trainer.config.layout import LayoutSettings
from slipway.trainer.elastic import generations
from slipway.trainer.elastic.generations import MOST, REPLACED, Arrival, End, key
from slipway.trainer.node.world import World
from slipway.trainer.record import causes

SETTLE_SECONDS = 2.0
"""The ranks wait this long, with their checkpoint saved, for requests to further nodes: to delete a job is to ask its
nodes one after the other."""
LOOK_SECONDS = 1.0
"""Between two readings of the nodes that wait."""


class ScaleUp:
    """The nodes that wait for the end of this rank's generation; rank 0 looks for them."""

    def __init__(self, settings: LayoutSettings, world: World, environment: Mapping[str, str] = os.environ) -> None:
        """`settings` decide which numbers of nodes have a mesh."""
        self.waiting = 0.0
        """The number of waiting nodes; all ranks know it since the last step."""

        # The job.
        self._settings = settings
        self._environment = environment
        self._ranks = int(environment.get("LOCAL_WORLD_SIZE", "1"))
        self._nodes = int(environment.get("GROUP_WORLD_SIZE", "1"))
        self._most = int(environment.get(MOST, "1"))
        self._generation = generations.from_environment(environment)
        self._stays = world.groups is not None and world.groups.stays

        # The nodes that the thread of rank 0 has found.
        self._names: tuple[str, ...] = ()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look, name="scale-up", daemon=True)
        if world.is_rank_zero and self._nodes < self._most and self._generation is not None:
            self._thread.start()

    def number(self) -> float:
        """This rank's addend to the number of waiting nodes: 0 on all ranks but rank 0, or if no larger mesh fits."""
        count = len(self._names)
        if not count:
            return 0.0
        fits = layout.fitting(self._settings, self._ranks, min(self._most, self._nodes + count))
        return float(count) if fits > self._nodes else 0.0

    def reason(self, step: int) -> str:
        """Why the generation ends after this step, for a person; complete on rank 0 only."""
        return f"made room after step {step} for {', '.join(self._names)}"

    def admit(self, step: int) -> None:
        """Announce the end of the generation; rank 0 calls it. Raises RuntimeError if the store is gone."""
        node = self._environment.get("SLIPWAY_NODE", "local")
        end = End(
            node, causes.GROWN, self.reason(step), False, 0, time.time(), ranks_stay=self._stays, joins=self._names
        )
        generations.announce(end, self._environment)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def _look(self) -> None:
        assert self._generation is not None
        with contextlib.suppress(RuntimeError):  # if the store is gone, no node can wait there
            store: Any = generations.job_store(self._environment)
            while not self._closing.wait(LOOK_SECONDS):
                count = store.add(key(self._generation, "waits"), 0)
                keys = [key(self._generation, "waiting", number) for number in range(count)]
                arrivals = [
                    codec.decode(Arrival, store.get(arrival_key), arrival_key)
                    for arrival_key in keys
                    if store.check([arrival_key])
                ]
                self._names = tuple(sorted({arrival.node for arrival in arrivals}))


def leaving_nodes(
    world: World,
    node: str,
    leave_requested: Callable[[], bool],
    stops: bool,
) -> tuple[str, ...]:
    """The nodes that leave after this step; empty if the whole job stops. All ranks call it, and get the same result.

    leave_requested: whether this rank's node, `node`, was asked to stop. stops: whether this rank stops the job for a
    reason within the training.
    """
    if not float(os.environ.get(REPLACED, "0")):
        return ()
    time.sleep(SETTLE_SECONDS)
    answers = world.all_gather((node, leave_requested(), stops))
    all_nodes = {name for name, _, _ in answers}
    leaving = {name for name, is_asked, _ in answers if is_asked}
    if leaving == all_nodes or any(job_stops for _, _, job_stops in answers):
        return ()
    return tuple(sorted(leaving))


def leave_reason(nodes: tuple[str, ...], step: int) -> str:
    """Why the generation ends after this step, for a person."""
    return f"{', '.join(nodes)} was asked to stop: the others go on after step {step}"


def let_go(nodes: tuple[str, ...], node: str, step: int, stays: bool) -> None:
    """End the generation of all ranks after this step; rank 0, on `node`, calls it. Raises RuntimeError."""
    end = End(
        node, causes.STOP_REQUESTED, leave_reason(nodes, step), False, 0, time.time(), nodes=nodes, ranks_stay=stays
    )
    generations.announce(end)
