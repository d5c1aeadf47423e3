"""Naming: a training's name for people: its recipe, when it was wanted, and what is special about it.

The id, with its hash, stays the name on disk and in Dagster: it is what makes a start happen once. The words are made
from records, and stand beside the id wherever people read. Pure, but for `of`.
"""

import time
from collections.abc import Mapping
from typing import Any

from slipway.resources.trainings import records
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import Desired, RunPolicy, Specification
from slipway.trainer.record import files

CHANGED_BY_HAND = "given"
"""In the origin of a training's terms: FIELD=VALUE, as a person gave them."""
LONGEST = 90


def of(facts: TrainingFacts) -> str:
    """The name of a training. Raises ValueError and Unreadable for one whose records cannot be read."""
    return name(facts.specification, facts.run_policy, first_wanted(facts))


def name(specification: Specification, run_policy: RunPolicy, started_at: float | None) -> str:
    """``tiny-decoder, 23 Nov 09:32, run.steps=3000``; `started_at`: when it first was, in seconds since the epoch.

    The moment is in UTC, so that a training has one name, whichever process of whichever machine shows it.
    """
    when = time.strftime("%-d %b %H:%M", time.gmtime(started_at)) if started_at else "offered"
    return ", ".join(filter(None, [specification.recipe, when, special(specification, run_policy)]))


def special(specification: Specification, run_policy: RunPolicy) -> str:
    """What distinguishes a training from others of its recipe; empty for one that is as its recipe says."""
    origin = run_policy.origin
    branch = specification.branch
    parts = []
    if branch is not None:
        parts.append(
            f"from {branch.training}@{branch.step} with {_pairs(branch.changed)}"
            if branch.changed
            else f"from {branch.training}@{branch.step}"
        )
    elif "sweep" in origin:
        parts.append(f"parameters of trial {origin.get('trial', '?')} of {origin['sweep']}")
    parts += [str(change) for change in origin.get(CHANGED_BY_HAND, ())]
    if specification.cause:
        parts.append(_cause(specification, run_policy))
    text = ", ".join(parts)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def kind_of_cause(specification: Specification, run_policy: RunPolicy) -> str:
    """Why a training began, as one of a few words: sweep, branch, schedule, again (a person's), or what a renewal names
    (new data, drift, live requests, quality); empty for one that is as its recipe says."""
    origin = run_policy.origin
    if specification.branch is not None:
        return "branch"
    if "sweep" in origin:
        return "sweep"
    if "renewal" in origin:
        return str(origin["renewal"])
    return "schedule" if "schedule" in origin else "again" if specification.cause else ""


def _cause(specification: Specification, run_policy: RunPolicy) -> str:
    """The cause in words; that of a renewal has them already."""
    kind = kind_of_cause(specification, run_policy)
    return f"{kind}: {specification.cause}" if kind in ("schedule", "again") else specification.cause


def _pairs(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{field}={value}" for field, value in changed.items())


def first_wanted(facts: TrainingFacts) -> float | None:
    """When it was first wanted, None before; by the oldest record that is left."""
    names = files.names(facts.folder, files.DESIRED)
    return records.read(Desired, files.named(facts.folder, files.DESIRED, names[0])).at if names else None
