"""Kinds of runs: each kind of Dagster run has its own concurrency limit; there is no overall limit.

With one common limit, runs that wait for trainings for weeks would block all others. A table in
`slipway.assets.execution.pods` gives the kind of each step; the run coordinator reads it from a run's steps, however
the run was launched. The limits are in the instance's settings.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from dagster._core.storage.tags import PRIORITY_TAG

TAG = "slipway/kind"
"""The tag with the kind, on a step and on a run."""


class RunKind(StrEnum):
    """The kind of a run, for its limit. A run with steps of several kinds takes the first, which takes longest."""

    TRAINING = "training"
    """Waits for a training."""
    SWEEP = "sweep"
    """Waits for the trials of a sweep."""
    DATA = "data"
    """Builds a dataset or a suite."""
    EVALUATION = "evaluation"
    """Measures or replays a checkpoint."""
    MODEL = "model"
    """Registers, judges, exports or serves a model."""
    STAGING = "staging"
    """Stages shards on nodes."""
    UPKEEP = "upkeep"
    """Runs periodically: retention, backups, drills, reports."""
    RECOVERY = "recovery"
    """Finds out which node is at fault."""
    VERB = "verb"
    """Carries out a request for which a person waits: start, stop, pause, resume, delete, promote."""


UNLIMITED = (RunKind.RECOVERY, RunKind.VERB)
PRIORITIES = {RunKind.VERB: 2, RunKind.RECOVERY: 1}
"""The priorities of queued runs: a higher number starts first. All other kinds have 0."""


def of_steps(steps: Iterable[Mapping[str, str]]) -> RunKind:
    """The kind of a run whose steps have these tags; upkeep if no step has the tag, as in users' own assets."""
    kinds = {tags[TAG] for tags in steps if TAG in tags}
    return next((kind for kind in RunKind if kind in kinds), RunKind.UPKEEP)


def tags(kind: RunKind) -> dict[str, str]:
    """The tags of a run of this kind."""
    run_tags = {TAG: kind.value}
    if kind in PRIORITIES:
        run_tags[PRIORITY_TAG] = str(PRIORITIES[kind])
    return run_tags
