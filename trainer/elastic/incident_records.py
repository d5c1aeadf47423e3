"""Incident records: the records that a supervisor, or rank 0, makes of an interruption of the training.

A supervisor records the incident, and in the ledger the times of the recovery, after it has started the new ranks. Rank
0 records the incident of an end whose cause it knows, before the exit of the incarnation. A record that cannot be
written is dropped with a warning.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import layout
from slipway.trainer.config.layout import LayoutSettings
from slipway.trainer.diagnosis import requests
from slipway.trainer.elastic.generations import End, Members
from slipway.trainer.loading import order
from slipway.trainer.record import causes, fence, incidents, ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.incidents import IncidentRecord
from slipway.trainer.record.recorder import warn_if_unwritable

ACTIONS = {
    causes.RETRY: "starts again from the newest checkpoint",
    causes.SKIP: "starts again from the newest checkpoint",
    causes.SHRINK: "starts again with less",
    causes.REPLACE: "starts again on other nodes, where enough are ready",
    causes.STOP: "is given up",
}
"""The action that follows each answer to a cause."""
NO_INCIDENT = (causes.STOP_REQUESTED, causes.DONE, causes.GROWN, causes.SUPERSEDED)
"""Causes that are no fault."""


def incident(store: Path, members: Members, end: End, step: int, action: str) -> None:
    """Record why the generation of `members` ended, and the action that follows."""
    if end.kind in NO_INCIDENT:
        return
    token = str(Token(members.incarnation, members.generation))
    record = IncidentRecord(
        token, end.kind, end.reason, action, f"supervisor of {end.node}", end.at, step, end.ranks, end.nodes
    )
    with warn_if_unwritable("incident"):
        incidents.note(store, record)
        requests.ask(store, record.id, end.reason, record.by)  # the nodes collect the traces that the ranks have left


def divided(settings: LayoutSettings, before: Members, members: Members) -> str:
    """Each node's samples of a batch, now and before, for a person; empty if nothing has changed."""
    if before.nodes == members.nodes:
        return ""
    try:
        now = _division(settings, members)
        then = _division(settings, before)
    except Invalid:  # the ranks report this
        return ""
    return f"; of the {settings.batch.sequences} samples of each step: {now} (before: {then})"


def recovery(store: Path, members: Members, moments: Mapping[str, float]) -> None:
    """Record the times of the recovery, in seconds since the epoch by event, in the new generation's ledger."""
    with warn_if_unwritable("ledger"):
        segment = ledger.Ledger(store, Token(members.incarnation, members.generation), "supervisor")
        for event, at in moments.items():
            segment.write(event, t=at)
        segment.close()


def failure(store: Path, token: fence.Token, error: causes.Failure, step: int, policies: Mapping[str, str]) -> None:
    """Record the incident of an error, unless this generation has one already."""
    action = ACTIONS.get(causes.answer(error.kind, policies), "")
    reason = str(error).splitlines()[0] if str(error) else error.kind
    incident = IncidentRecord(
        str(token), error.kind, reason, action, "rank 0", time.time(), step, tuple(error.ranks), tuple(error.nodes)
    )
    with warn_if_unwritable("incident"):
        incidents.note(store, incident)


def _division(settings: LayoutSettings, members: Members) -> str:
    mesh = layout.check(settings, members.world, members.nodes[0].ranks)
    return order.division_in_words(
        settings.batch.sequences, mesh, [member.node for member in members.nodes for _ in range(member.ranks)]
    )
