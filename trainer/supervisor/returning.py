"""Returning: a node of a job whose generations go on without it asks to take part again.

It was lost and is back, or it came to the meeting too late, or the layout had no use for it. It waits with all that it
needs imported; rank 0 hears that it does, and ends the generation between two steps (`slipway.trainer.node.newcomers`).

One that stands in for a member that died ends the generation at once: the member's ranks are gone. It is that node
itself, or another machine with its number in the job: a launcher that gives numbers gives each to one node at a time.
"""

import contextlib
import time

from slipway.trainer.node.generations import ASKED, LOST, OVER, STOPPING, Arrival, End, Members, key
from slipway.trainer.record import causes
from slipway.trainer.supervisor.job_store import JobStore, StoreGone


def underway(store: JobStore, own: Arrival, stays: bool) -> Members | None:
    """The newest generation of the job, where there is one; from now on this node is neither lost nor asked to stop.

    A generation that it stands for a member of is over, and a member on another machine is lost from now on. Raises
    StoreGone.
    """
    store.remove(f"{LOST}/{own.node}")
    members = found = store.read(key(0, "members"), Members)
    while members:
        found, members = members, store.read(key(members.generation + 1, "members"), Members)
    if found and (before := _predecessor(found, own)):
        kind, what = causes.DISRUPTED, "lost"
        if store.has(f"{ASKED}/{before}"):
            kind, what = causes.ASKED, "asked to stop"
        if before == own.node:
            reason = f"node {before} was {what}, and is back"
        else:
            store.write(f"{LOST}/{before}", {})
            reason = f"node {before} was {what}, and {own.node} is here in its place"
        at, joins = time.time(), (own.node,)
        end = End(own.node, kind, reason, store.has(STOPPING), 1, at, (), (before,), stay=stays, joins=joins)
        store.write_first(key(found.generation, "end"), end)
    store.remove(f"{ASKED}/{own.node}")
    return found


def _predecessor(members: Members, own: Arrival) -> str:
    """The member that this node stands in for; empty where there is none."""
    same = (each.node for each in members.nodes if each.node == own.node or each.index == own.index >= 0)
    return next(same, "")


def ask(store: JobStore, members: Members, own: Arrival, most: int) -> None:
    """Say that this node waits, where the generation has fewer nodes than the job may have. Raises StoreGone."""
    if len(members.nodes) < most and not members.has(own.node):
        store.write(key(members.generation, "waiting", store.number(key(members.generation, "waits"))), own)


def tell_over(store: JobStore) -> None:
    """Say that the job is over, so that its store waits for nobody to come back; what cannot be said is left out."""
    with contextlib.suppress(StoreGone):
        store.write(OVER, {})
