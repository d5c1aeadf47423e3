"""Subjects of sensors and operations, such as a training or a node, and the observation of a problem with one.

A problem appears on the subject's asset, as an observation that says what happened and what to do.
"""

from dataclasses import dataclass

import dagster as dg

from slipway.assets import keys
from slipway.resources.trainings.store import TRIALS, TrainingStore


@dataclass(frozen=True)
class Subject:
    """One training, sweep, dataset, node, or the fleet as a whole."""

    name: str
    """The name in logs, unique among the subjects of a sensor or operation."""
    key: dg.AssetKey | None = None
    """The asset that shows its problems; None if they appear only in logs."""
    partition: str | None = None


def training(id: str) -> Subject:
    """A training by its id, which contains the recipe, so that no records are read."""
    recipe = id.rpartition("-")[0] or id
    return Subject(id, keys.key(recipe, "training"), id)


def of_store(store: TrainingStore) -> Subject:
    """A training or a trial, depending on the place of its folder."""
    above = store.folder.parent
    if above.name == TRIALS:
        return trial(above.parent.name, store.id)
    return training(store.id)


def trial(sweep: str, id: str) -> Subject:
    """A trial, whose id is the sweep's id and a number."""
    recipe = sweep.rpartition("-")[0] or sweep
    return Subject(id, keys.key(recipe, "trial"), id)


def sweep(recipe: str, id: str = "") -> Subject:
    """The current sweep of a recipe, or with an id any of its sweeps."""
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
    """A description of the error for a person."""
    if isinstance(error, ValueError | OSError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"


def remedy(error: Exception) -> str:
    """The action that a person can take."""
    if isinstance(error, ValueError):
        return "correct what the message names"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}make sure that it exists, is of the right kind (file or folder), and can be read and written"
    return "this is a bug in Slipway: please report it, with the traceback in the log"


def observation(subject: Subject, by: str, error: Exception) -> dg.AssetObservation:
    """The observation of a problem that a sensor or an operation has with a subject."""
    assert subject.key is not None
    what = problem(error)
    todo = remedy(error)
    return dg.AssetObservation(
        subject.key,
        partition=subject.partition,
        description=f"{what}; what to do: {todo}. Slipway tries again, and everything else continues.",
        metadata={"problem": what, "what_to_do": todo, "noticed_by": by},
    )
