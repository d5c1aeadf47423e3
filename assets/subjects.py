"""Subjects: what sensors and operations look after, and how a problem of one of them is shown.

It is shown on the subject's asset, as an observation that says what happened and what to do.
"""

from dataclasses import dataclass

import dagster as dg

from slipway.assets import keys
from slipway.resources.trainings.store import TRIALS, TrainingStore


@dataclass(frozen=True)
class Subject:
    """One training, sweep, dataset, node, or the fleet as a whole."""

    name: str
    """Its name in logs; no other subject of the same sensor or operation has it."""
    key: dg.AssetKey | None = None
    """The asset that shows it; None for what no asset shows: its problems are only in logs."""
    partition: str | None = None


def training(id: str) -> Subject:
    """A training: the recipe is in its id, so that its records need not be read."""
    recipe = id.rpartition("-")[0] or id
    return Subject(id, keys.key(recipe, "training"), id)


def of_store(store: TrainingStore) -> Subject:
    """A training or a trial, by where its folder lies."""
    above = store.folder.parent
    return trial(above.parent.name, store.id) if above.name == TRIALS else training(store.id)


def trial(sweep: str, id: str) -> Subject:
    """A trial of a sweep, whose id is that of the sweep and a number."""
    recipe = sweep.rpartition("-")[0] or sweep
    return Subject(id, keys.key(recipe, "trial"), id)


def sweep(recipe: str, id: str = "") -> Subject:
    """The sweep of a recipe; with an id, one of those that it ever had."""
    return Subject(f"sweep {id or recipe}", keys.key(recipe, "sweep"))


def offer(recipe: str) -> Subject:
    return Subject(f"offer of {recipe}", keys.key(recipe, "training"))


def dataset(recipe: str) -> Subject:
    return Subject(f"dataset {recipe}", keys.key(recipe, "staged_shards"))


def suite(recipe: str) -> Subject:
    return Subject(f"suite {recipe}", keys.key(recipe, "suite"))


FLEET = Subject("fleet")


def node(name: str) -> Subject:
    return Subject(f"node {name}", keys.PREFLIGHT, name)


def problem(error: Exception) -> str:
    """What happened, for a person."""
    return str(error) if isinstance(error, ValueError | OSError) and str(error) else f"{type(error).__name__}: {error}"


def remedy(error: Exception) -> str:
    """What a person can do."""
    if isinstance(error, ValueError):
        return "put right what the message names"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}see that it can be read and written, and is a file or folder as it should be"
    return "this is a fault of Slipway: the log has the traceback; please report it"


def observation(subject: Subject, by: str, error: Exception) -> dg.AssetObservation:
    """What a sensor or an operation tells about a subject that an asset shows."""
    assert subject.key is not None
    what, todo = problem(error), remedy(error)
    return dg.AssetObservation(
        subject.key,
        partition=subject.partition,
        description=f"{what}; what to do: {todo}. It is tried again, and everything else goes on.",
        metadata={"problem": what, "what_to_do": todo, "noticed_by": by},
    )
