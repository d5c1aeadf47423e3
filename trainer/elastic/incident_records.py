"""Incident records: what a supervisor, or rank 0, puts on record of an interruption of the training.

A supervisor records the incident, and the moments of the recovery in the ledger, when the new ranks are on their way.
Rank 0 records the incident of an end that it knows the cause of, before the exit of the incarnation. What cannot be
written is said and left out.
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
"""What follows, by the answer to the cause."""
NO_INCIDENT = (causes.STOP_REQUESTED, causes.DONE, causes.GROWN, causes.SUPERSEDED)
"""Nothing went wrong then."""


def incident(store: Path, members: Members, end: End, step: int, action: str) -> None:
    """Record what ended the generation of `members`, and what is done about it."""
    if end.kind in NO_INCIDENT:
        return
    token = str(Token(members.incarnation, members.generation))
    record = IncidentRecord(
        token, end.kind, end.reason, action, f"supervisor of {end.node}", end.at, step, end.ranks, end.nodes
    )
    with warn_if_unwritable("incident"):
        incidents.note(store, record)
        requests.ask(store, record.id, end.reason, record.by)  # the nodes' processes have what the ranks have left


def divided(settings: LayoutSettings, before: Members, members: Members) -> str:
    """Who has which samples of each batch now, and who had them, for a person; empty where nothing has changed."""
    if before.nodes == members.nodes:
        return ""
    try:
        now, then = (_division(settings, group) for group in (members, before))
    except Invalid:  # the ranks say so
        return ""
    return f"; of the {settings.batch.sequences} samples of each step: {now} (before: {then})"


def recovery(store: Path, members: Members, moments: Mapping[str, float]) -> None:
    """Record in the ledger of a new generation when what happened, in seconds since the epoch."""
    with warn_if_unwritable("ledger"):
        segment = ledger.Ledger(store, Token(members.incarnation, members.generation), "supervisor")
        for event, at in moments.items():
            segment.write(event, t=at)
        segment.close()


def failure(store: Path, token: fence.Token, error: causes.Failure, step: int, policies: Mapping[str, str]) -> None:
    """Write the incident; where somebody else wrote one of this generation, that one stands."""
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
