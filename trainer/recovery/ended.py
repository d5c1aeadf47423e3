"""The incident of an end that a rank knows the cause of: rank 0 writes it, before the exit of the incarnation."""

import time
from collections.abc import Mapping
from pathlib import Path

from slipway.trainer.record import causes, fence, incidents
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


def note(store: Path, token: fence.Token, error: causes.Failure, step: int, policies: Mapping[str, str]) -> None:
    """Write the incident; where somebody else wrote one of this generation, that one stands."""
    action = ACTIONS.get(causes.answer(error.kind, policies), "")
    reason = str(error).splitlines()[0] if str(error) else error.kind
    incident = IncidentRecord(
        str(token), error.kind, reason, action, "rank 0", time.time(), step, tuple(error.ranks), tuple(error.nodes)
    )
    with warn_if_unwritable("incident"):
        incidents.note(store, incident)
