"""Phases: the work of a rank at a moment, the unit of its progress, and the longest time without progress.

Slow is not hung. A rank that stages a terabyte takes hours and makes progress all the time; a rank without progress for
longer than its phase allows has hung. The deadline of a step is the recipe's (`recovery.no_progress_seconds`); the
other phases have the deadlines below, or those in the recipe's `recovery.phase_seconds`. The deadlines of steps and
validations become shorter when a run has measured their durations (`slipway.resources.trainings.faults`).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A phase of a rank, by the name that its heartbeats have."""

    name: str
    unit: str
    """The unit of progress; empty if there is none."""
    seconds: float
    """The longest time without progress, unless the recipe has another one."""


STARTING = Phase("starting", "", 1200)
"""Before the first heartbeat: images are pulled and the ranks meet, for which torchrun has 900 s."""
STAGING = Phase("staging", "bytes", 900)
"""Shards are copied to the node's NVMe; ranks that wait for another rank's copy count with it."""
BUILDING = Phase("building", "bytes", 1800)
"""The model is built and laid over the ranks; initial weights are read."""
RESTORING = Phase("restoring", "bytes", 900)
"""A checkpoint is verified and loaded."""
COMPILING = Phase("compiling", "", 3600)
"""The first step, if the layout compiles blocks."""
TRAINING = Phase("training", "steps", 0)
"""Steps; the recipe has their deadline."""
VALIDATING = Phase("validating", "batches", 900)
SAVING = Phase("committing", "bytes", 900)
"""A checkpoint that the steps wait for is written, above all the last one."""
COPYING = Phase("copying", "", 900)
"""The last checkpoint is copied to other tiers."""
ENDING = Phase("ending", "", 900)
"""The last records are written."""

PHASES = {
    phase.name: phase
    for phase in (STARTING, STAGING, BUILDING, RESTORING, COMPILING, TRAINING, VALIDATING, SAVING, COPYING, ENDING)
}


def deadline(phase: str, no_progress_seconds: float, overrides: Mapping[str, float]) -> float:
    """Seconds for which a rank may stay at one place of a phase.

    given: the recipe's deadlines by phase. Without one there, no phase has less time than a step. A phase that is not
    known here, of a trainer of another version, has a step's.
    """
    known = PHASES.get(phase)
    return overrides.get(phase, max(no_progress_seconds, known.seconds if known else 0.0))
