"""Kinds of runs: how many runs of Dagster run at once is limited by what they do, kind by kind, and by nothing else.

One number for all would let the runs that wait for trainings, which live for weeks, hold up all others. What each kind
of work counts as is in the table of `slipway.assets.execution.pods`; the run coordinator reads it in the steps of a
run, however that was launched, and the limits are in the instance's settings.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from dagster._core.storage.tags import PRIORITY_TAG

TAG = "slipway/kind"
"""On a step what it counts as, and on a run what it counts as among the limits."""


class RunKind(StrEnum):
    """What a run counts as. A run of several kinds counts as the one of them that stands first: it takes longest."""

    TRAINING = "training"
    """Waits for a training."""
    SWEEP = "sweep"
    """Waits for the trials of a sweep."""
    DATA = "data"
    """Makes a dataset or a suite."""
    EVALUATION = "evaluation"
    """Measures or replays a checkpoint."""
    MODEL = "model"
    """Registers, judges, exports or serves a model."""
    STAGING = "staging"
    """Stages shards on nodes."""
    UPKEEP = "upkeep"
    """Is done periodically: retention, backups, drills, reports."""
    RECOVERY = "recovery"
    """Finds out which node is at fault."""
    VERB = "verb"
    """Does what a person asked for and waits for: start, stop, pause, resume, delete, promote."""


UNLIMITED = (RunKind.RECOVERY, RunKind.VERB)
PRIORITIES = {RunKind.VERB: 2, RunKind.RECOVERY: 1}
"""Of runs that may begin, those with a higher number begin first; all others have 0."""


def of_steps(steps: Iterable[Mapping[str, str]]) -> RunKind:
    """What a run counts as whose steps have these tags. Steps that are not ours say nothing: they are upkeep."""
    kinds = {tags[TAG] for tags in steps if TAG in tags}
    return next((kind for kind in RunKind if kind in kinds), RunKind.UPKEEP)


def tags(kind: RunKind) -> dict[str, str]:
    """The tags of a run of this kind."""
    return {TAG: kind.value, **({PRIORITY_TAG: str(PRIORITIES[kind])} if kind in PRIORITIES else {})}
