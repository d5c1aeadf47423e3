"""Naming: a training's name for people: its recipe, when it was first started, and how it differs from the recipe.

On disk and in Dagster, the name is the id with its hash, so that a training starts only once. The name for people is
made from records, and is shown beside the id. Pure, except `of`.
"""

import time
from collections.abc import Mapping
from typing import Any

from slipway.resources.trainings import records
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import Desired, RunPolicy, Specification
from slipway.trainer.record import files

CHANGED_BY_HAND = "given"
"""The key in the origin of a run policy with the FIELD=VALUE changes of a person."""
LONGEST = 90


def of(facts: TrainingFacts) -> str:
    """The name of a training. Raises ValueError and Unreadable if its records cannot be read."""
    return name(facts.specification, facts.run_policy, first_wanted(facts))


def name(specification: Specification, run_policy: RunPolicy, started_at: float | None) -> str:
    """A name such as ``tiny-decoder, 23 Nov 09:32, run.steps=3000``. `started_at`: the first start, in seconds since
    the epoch. The name shows it in UTC, so that it is the same on every machine.
    """
    when = time.strftime("%-d %b %H:%M", time.gmtime(started_at)) if started_at else "offered"
    return ", ".join(filter(None, [specification.recipe, when, special(specification, run_policy)]))


def special(specification: Specification, run_policy: RunPolicy) -> str:
    """How a training differs from its recipe; "" if it does not."""
    origin = run_policy.origin
    branch = specification.branch
    parts = []
    if branch is not None:
        changes = f" with {_pairs(branch.changed)}" if branch.changed else ""
        parts.append(f"from {branch.training}@{branch.step}{changes}")
    elif "sweep" in origin:
        parts.append(f"parameters of trial {origin.get('trial', '?')} of {origin['sweep']}")
    parts += [str(change) for change in origin.get(CHANGED_BY_HAND, ())]
    if specification.cause:
        parts.append(_cause(specification, run_policy))
    text = ", ".join(parts)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def kind_of_cause(specification: Specification, run_policy: RunPolicy) -> str:
    """Why a training started, as one of a few words: sweep, branch, schedule, again (by a person), or the trigger of a
    retraining (new data, drift, live requests, quality); "" for a plain start of the recipe."""
    origin = run_policy.origin
    if specification.branch is not None:
        return "branch"
    if "sweep" in origin:
        return "sweep"
    if "renewal" in origin:
        return str(origin["renewal"])
    if "schedule" in origin:
        return "schedule"
    return "again" if specification.cause else ""


def _cause(specification: Specification, run_policy: RunPolicy) -> str:
    """The cause in words. The cause of a retraining is in words already."""
    kind = kind_of_cause(specification, run_policy)
    return f"{kind}: {specification.cause}" if kind in ("schedule", "again") else specification.cause


def _pairs(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{field}={value}" for field, value in changed.items())


def first_wanted(facts: TrainingFacts) -> float | None:
    """When the training was first started, from the oldest record that exists; None before."""
    names = files.names(facts.folder, files.DESIRED)
    return records.read(Desired, files.named(facts.folder, files.DESIRED, names[0])).at if names else None
