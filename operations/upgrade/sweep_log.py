"""The log of a sweep, from slipway.sweep-log/1 to slipway.sweep-log/2.

In version 1 every sweep was successive halving by stopping: a trial was judged at each rung as it arrived, and trained
on or stopped, without a pause. Its plan and what it may spend were one event. Version 2 has a scheduler of several
kinds, a budget that can change, and trials that go `until` a rung.
"""

from collections.abc import Iterator
from typing import Any

from slipway.assets.sweeps import events
from slipway.assets.sweeps.state import fold
from slipway.trainer.base import journal

OLD = "slipway.sweep-log/1"
PLAN = ("sweep", "recipe", "space", "sampler", "seed", "steps")
BUDGET = ("trials", "parallel", "retries", "failed_trials")
KNOWN = {"opened", "asked", "started", "reported", "decided", "ended", "retried", "closed"}


def migrated(data: bytes) -> bytes | None:
    """The bytes of the log in version 2; None for a log that is not of version 1.

    Lines that are torn or damaged are left out, as every reader does. Raises ValueError for a log of version 1 that
    does not make sense.
    """
    old = [event for line in data.split(b"\n") if line and (event := journal.parse(line)) is not None]
    if not old or old[0].get("format") != OLD:
        return None
    try:
        new = [each for event in old for each in _migrated(event, old[0])]
    except (KeyError, TypeError) as error:
        raise ValueError(f"sweep log: found an event without {error}, expected one of {OLD}") from None
    fold([events.parse(event) for event in new])
    return b"".join(map(journal.frame, new))


def _migrated(event: dict[str, Any], opened: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of version 2 that say what one of version 1 did."""
    kind = event["event"]
    if kind not in KNOWN:
        raise ValueError(f"sweep log: found the event {kind!r}, expected one of {', '.join(sorted(KNOWN))}")
    if kind == "opened":
        plan = {name: event[name] for name in PLAN}
        yield {
            "event": kind, "at": event["at"], "format": "slipway.sweep-log/2", **plan, "scheduler": _scheduler(event)
        }  # fmt: skip
        yield {"event": "budgeted", "at": event["at"], **{name: event[name] for name in BUDGET}, "by": events.RECIPE}
    elif kind == "asked":
        yield {**event, "until": opened["steps"]}
    else:
        yield event


def _scheduler(opened: dict[str, Any]) -> dict[str, Any]:
    """The scheduler of a plan; in version 2, the last of the rungs is the full length."""
    if not opened["rungs"]:
        return {"kind": "none"}
    return {"kind": "stopping", "rungs": [*opened["rungs"], opened["steps"]], "eta": opened["eta"], "noise": None}
