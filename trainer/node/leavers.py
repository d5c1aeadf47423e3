"""Leavers: nodes that are asked to stop while others of their job are not, as when one node is drained.

Where the launcher starts a node anew that ended (`REPLACED`), the job goes on without it: all ranks have saved a
checkpoint after the same step, and end their generation there. A job whose nodes are all asked stops; one whose nodes
nobody replaces stops when one of them is asked.
"""

import os
import time
from collections.abc import Callable, Mapping

from slipway.trainer.node import generations
from slipway.trainer.node.generations import REPLACED, End
from slipway.trainer.node.world import World
from slipway.trainer.record import causes

SETTLE_SECONDS = 2.0
"""So long the ranks wait, with their checkpoint saved, for nodes that are asked together with the first one: whoever
deletes a job asks its nodes one after the other."""


def found(
    world: World, node: str, asked: Callable[[], bool], stops: bool, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The nodes that leave after this step; empty where the whole job stops. Every rank calls it, and gets the same.

    asked: whether this rank's node, `node`, was asked to stop. stops: whether this rank stops the job for a reason of
    the training's own.
    """
    if not float(environment.get(REPLACED, "0")):
        return ()
    time.sleep(SETTLE_SECONDS)
    said = world.gather((node, asked(), stops))
    leaving = {name for name, is_asked, _ in said if is_asked}
    if any(job_stops for _, _, job_stops in said) or leaving == {name for name, _, _ in said}:
        return ()
    return tuple(sorted(leaving))


def reason(nodes: tuple[str, ...], step: int) -> str:
    """Why the generation ends after this step, for a person."""
    return f"{', '.join(nodes)} was asked to stop: the others go on after step {step}"


def let_go(nodes: tuple[str, ...], node: str, step: int, stays: bool) -> None:
    """End the generation of all ranks after this step; rank 0, on `node`, calls it. Raises RuntimeError."""
    end = End(node, causes.ASKED, reason(nodes, step), False, 0, time.time(), nodes=nodes, stay=stays)
    generations.announce(end)
