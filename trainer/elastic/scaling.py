"""Scaling: a job gets more nodes, or fewer, between two steps; the generation ends for it.

**Up.** A node that was lost and is back says in the job's store that it waits (`slipway.trainer.elastic.generations`).
A thread of rank 0 looks there, on a connection of its own, while the job has fewer nodes than it may have. Rank 0 adds
what it has seen to the numbers that the ranks sum in every step anyway: all of them learn of it after the same step,
and leave their generation there. So no step is done twice, and none is lost.

**Down.** Some nodes are asked to stop while others of their job are not, as when one node is drained. Where the
launcher starts a node anew that ended (`REPLACED`), the job goes on without it: all ranks have saved a checkpoint after
the same step, and end their generation there. A job whose nodes are all asked stops; one whose nodes nobody replaces
stops when one of them is asked.
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
"""So long the ranks wait, with their checkpoint saved, for nodes that are asked together with the first one: whoever
deletes a job asks its nodes one after the other."""
LOOK_SECONDS = 1.0
"""Between two looks for nodes that wait."""


class ScaleUp:
    """The nodes that wait for the generation of this rank to end; on ranks other than 0 there are none."""

    def __init__(self, settings: LayoutSettings, world: World, environment: Mapping[str, str] = os.environ) -> None:
        """`settings` say which numbers of nodes have a mesh."""
        self._settings, self._ranks = settings, int(environment.get("LOCAL_WORLD_SIZE", "1"))
        self.waiting = 0.0
        """How many nodes wait, as all ranks know since the last step."""
        self._stays = world.groups is not None and world.groups.stays
        self._environment, self._names = environment, tuple[str, ...]()
        self._generation, self._closing = generations.from_environment(environment), threading.Event()
        self._nodes, self._most = (int(environment.get(name, "1")) for name in ("GROUP_WORLD_SIZE", MOST))
        self._thread = threading.Thread(target=self._look, name="scale-up", daemon=True)
        if world.is_rank_zero and self._nodes < self._most and self._generation is not None:
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
    """The nodes that leave after this step; empty where the whole job stops. Every rank calls it, and gets the same.

    asked: whether this rank's node, `node`, was asked to stop. stops: whether this rank stops the job for a reason of
    the training's own.
    """
    if not float(os.environ.get(REPLACED, "0")):
        return ()
    time.sleep(SETTLE_SECONDS)
    answers = world.all_gather((node, leave_requested(), stops))
    leaving = {name for name, is_asked, _ in answers if is_asked}
    if any(job_stops for _, _, job_stops in answers) or leaving == {name for name, _, _ in answers}:
        return ()
    return tuple(sorted(leaving))


def leave_reason(nodes: tuple[str, ...], step: int) -> str:
    """Why the generation ends after this step, for a person."""
    return f"{', '.join(nodes)} was asked to stop: the others go on after step {step}"


def let_go(nodes: tuple[str, ...], node: str, step: int, stays: bool) -> None:
    """End the generation of all ranks after this step; rank 0, on `node`, calls it. Raises RuntimeError."""
    end = End(node, causes.STOP_REQUESTED, leave_reason(nodes, step), False, 0, time.time(), nodes=nodes, stay=stays)
    generations.announce(end)
