"""Naming: a training's name for people: its recipe, when it was wanted, and what is special about it.

The id, with its hash, stays the name on disk and in Dagster: it is what makes a start happen once. The words are made
from records, and stand beside the id wherever people read. Pure, but for `of`.
"""

import time
from collections.abc import Mapping
from typing import Any

from slipway.resources.trainings import records
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import Desired, Specification, Terms
from slipway.trainer.record import files

GIVEN = "given"
"""In the origin of a training's terms: FIELD=VALUE, as a person gave them."""
LONGEST = 90


def of(facts: TrainingFacts) -> str:
    """The name of a training. Raises ValueError and Unreadable for one whose records cannot be read."""
    return name(facts.specification, facts.terms, first_wanted(facts))


def name(specification: Specification, terms: Terms, wanted: float | None) -> str:
    """``tiny-decoder, 23 Nov 09:32, run.steps=3000``; `wanted`: when it first was, in seconds since the epoch.

    The moment is in UTC, so that a training has one name, whichever process of whichever machine shows it.
    """
    when = time.strftime("%-d %b %H:%M", time.gmtime(wanted)) if wanted else "offered"
    return ", ".join(filter(None, [specification.recipe, when, special(specification, terms)]))


def special(specification: Specification, terms: Terms) -> str:
    """What distinguishes a training from others of its recipe; empty for one that is as its recipe says."""
    origin, branch = terms.origin, specification.branch
    words = []
    if branch is not None:
        words.append(
            f"from {branch.training}@{branch.step} with {_pairs(branch.changed)}"
            if branch.changed
            else f"from {branch.training}@{branch.step}"
        )
    elif "sweep" in origin:
        words.append(f"parameters of trial {origin.get('trial', '?')} of {origin['sweep']}")
    words += [str(each) for each in origin.get(GIVEN, ())]
    if specification.cause:
        words.append(_cause(specification, terms))
    text = ", ".join(words)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def kind_of_cause(specification: Specification, terms: Terms) -> str:
    """Why a training began, as one of a few words: sweep, branch, schedule, again (a person's), or what a renewal names
    (new data, drift, live requests, quality); empty for one that is as its recipe says."""
    origin = terms.origin
    if specification.branch is not None:
        return "branch"
    if "sweep" in origin:
        return "sweep"
    if "renewal" in origin:
        return str(origin["renewal"])
    return "schedule" if "schedule" in origin else "again" if specification.cause else ""


def _cause(specification: Specification, terms: Terms) -> str:
    """The cause in words; that of a renewal has them already."""
    kind = kind_of_cause(specification, terms)
    return f"{kind}: {specification.cause}" if kind in ("schedule", "again") else specification.cause


def _pairs(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{field}={value}" for field, value in changed.items())


def first_wanted(facts: TrainingFacts) -> float | None:
    """When it was first wanted, None before; by the oldest record that is left."""
    names = files.names(facts.folder, files.DESIRED)
    return records.read(Desired, files.named(facts.folder, files.DESIRED, names[0])).at if names else None
