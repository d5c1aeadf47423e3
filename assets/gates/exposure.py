"""Exposure: how much of the suite a model has seen in its training, candidate and champion alike.

A model that has learnt the documents of a suite by heart has a low loss on them and is no better for it. Every snapshot
that led to a model's weights counts: its training's, and those of the trainings whose weights it began with. A snapshot
is compared with a suite once, by whoever needs it first: the suite's check `decontaminated`, or the gate.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets import unseen
from assets.gates import checks
from assets.gates.checks import CheckOutcome
from assets.suites import checked, suite
from assets.suites.suite import Example, Suite
from recipes.suite import SuiteRecipe
from resources.tiers import Tiers

REFUSED = "refused"
"""The policy by which a candidate that has seen too much does not pass."""


@dataclass(frozen=True)
class Exposure:
    """What a model has seen of a suite."""

    leaked: frozenset[str] = frozenset()
    """BLAKE3 of the suite's documents that share a passage with a training document."""
    compared: tuple[str, ...] = ()
    """The snapshots that were compared with the suite."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """By snapshot that led to the weights, why it was not compared."""


@dataclass(frozen=True)
class ExposureLimit:
    """What the policy and the suite's recipe allow."""

    suite: str
    documents: int
    """How many the suite has."""
    most: float
    """The largest share of them that may have leaked."""
    policy: str = REFUSED
    """The gate's field `leaks`."""


def of_checkpoint(
    folder: Path, tiers: Tiers, made: Suite, examples: Sequence[Example], recipe: SuiteRecipe
) -> Exposure:
    """What the checkpoint in a folder has seen; a snapshot that nobody has compared with the suite yet is read once.

    Raises ValueError for a checkpoint whose lineage cannot be read.
    """
    leaked, compared, unreadable = set[str](), list[str](), dict[str, str]()
    for snapshot in sorted(unseen.snapshots_seen(folder, tiers)):
        try:
            found = checked.of(tiers.durable_path, made, examples, snapshot, recipe.held_out)
        except (ValueError, FileNotFoundError) as error:
            unreadable[snapshot] = str(error)
        else:
            leaked.update(found.leaked)
            compared.append(snapshot)
    return Exposure(frozenset(leaked), tuple(compared), unreadable)


def of_champion(folder: Path, tiers: Tiers, made: Suite, examples: Sequence[Example], recipe: SuiteRecipe) -> Exposure:
    """The same of a champion, whose lineage may be unreadable."""
    try:
        return of_checkpoint(folder, tiers, made, examples, recipe)
    except ValueError as error:
        return Exposure(unreadable={"lineage": str(error)})


def limit(made: Suite, recipe: SuiteRecipe, policy: str) -> ExposureLimit:
    """The limit of a suite; `policy` is the gate's field `leaks`."""
    return ExposureLimit(recipe.name, made.tasks[suite.DOCUMENTS], recipe.contaminated, policy)


def check(found: Exposure, own: Collection[str], champion: Exposure | None, allowed: ExposureLimit) -> CheckOutcome:
    """Whether the candidate has seen no more of the suite than is allowed; `own` are its training's snapshots. Pure.

    What the champion has seen is reported: it makes the champion look better than it is, and so lets nobody pass.
    """
    broken, notes = _broken(found, own, allowed), list[str]()
    figures: dict[str, Any] = {
        "suite_documents": allowed.documents,
        "leaked": len(found.leaked),
        "leaked_at_most": allowed.most,
        "compared_with": list(found.compared),
    }
    if found.unreadable:
        figures["not_compared"] = dict(found.unreadable)
    if champion is not None:
        figures["champion_leaked"] = len(champion.leaked)
        notes += _of_champion(champion, allowed)
    if broken and allowed.policy == REFUSED:
        figures["broken"] = broken
    elif broken:
        notes.insert(0, f"{broken}; gate.leaks lets it pass")
    return CheckOutcome("broken" not in figures, figures, "; ".join(notes))


def without_suite() -> CheckOutcome:
    """The check of a candidate that is measured on no suite."""
    return checks.not_needed("it is measured on the validation split, which its dataset's recipe keeps apart")


def _broken(found: Exposure, own: Collection[str], allowed: ExposureLimit) -> str:
    """What is wrong with the candidate; empty when nothing is."""
    unknown = [why for snapshot, why in found.unreadable.items() if snapshot in own]
    if unknown:
        return f"suite {allowed.suite} cannot be compared with its training documents: {'; '.join(unknown)}"
    if len(found.leaked) <= allowed.most * allowed.documents:
        return ""
    return (
        f"its training documents give away {len(found.leaked)} of the {allowed.documents} documents of suite "
        f"{allowed.suite}, expected at most a share of {allowed.most:g}"
    )


def _of_champion(found: Exposure, allowed: ExposureLimit) -> list[str]:
    """What is to be known of the champion."""
    if found.unreadable:
        return [f"what the champion was trained on is not all known: {'; '.join(found.unreadable.values())}"]
    if len(found.leaked) <= allowed.most * allowed.documents:
        return []
    return [
        f"the training documents of the champion give away {len(found.leaked)} of the {allowed.documents} documents of "
        f"suite {allowed.suite}, which makes it look better than it is: raise the suite's edition"
    ]
