"""Submission: a claimed incarnation's job on its way to the launcher, and whose fault it is where it does not arrive.

What lies in the job itself ends the incarnation: a new start would end in the same way. What the platform lacks is
waited for, and so is, by a training that has a checkpoint, hardware that it no longer fits: it fitted before.
"""

from collections.abc import Callable
from dataclasses import dataclass

from slipway.resources import code
from slipway.resources.launchers.protocol import DoesNotFit, Job, Launcher, MissingNodes
from slipway.resources.trainings import fit, refusals, staging_fit
from slipway.resources.trainings import job as training_job
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.unavailable import PlatformFault
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.record import causes


@dataclass(frozen=True)
class Submission:
    """Submits the jobs of one platform's trainings."""

    paths: Paths
    clock: Callable[[], float]
    revision: str = ""
    hardware: HardwareProfile | None = None
    sees_nodes: bool = False
    """Whether this process sees the nodes' NVMe folders."""

    def submit(
        self, launcher: Launcher, store: TrainingStore, facts: TrainingFacts, by: str, run: str, grace: float
    ) -> bool:
        """Submit or adopt the job of the newest incarnation; False where it waits, or has ended so.

        Raises Unavailable where the launcher cannot be asked, and OSError.
        """
        try:
            launcher.submit(self._job(facts, run, grace))
        except (PlatformFault, ValueError) as error:
            self._note(store, facts, error, by)
            return False
        return True

    def _note(self, store: TrainingStore, facts: TrainingFacts, error: Exception, by: str) -> None:
        """Record that the start waits, or how the incarnation has ended."""
        waits = isinstance(error, PlatformFault) or (isinstance(error, DoesNotFit) and facts.has_checkpoint)
        if waits:
            refusals.note(store, facts, str(error), by, self.clock)
            return
        gone = isinstance(error, MissingNodes)
        kind = causes.DISRUPTED if gone else causes.CONFIGURATION
        nodes = facts.nodes if gone else ()
        store.record_exit(facts.incarnation, "failed", str(error), by, nodes, disrupted=gone, kind=kind)

    def _job(self, facts: TrainingFacts, run: str, grace: float) -> Job:
        """The job of the newest incarnation. Raises DoesNotFit where it needs what is not there, or has too little."""
        try:
            fabric = self.hardware.fabric if self.hardware else ""
            code.keep_difference(self.paths.durable, self.revision)
            job = training_job.job(facts, self.paths, self.revision, run, fabric, grace)
            staging_fit.check(job, self.paths.durable, self.hardware, self.sees_nodes)
            if self.hardware is not None:
                fit.check(job, self.paths.durable, self.hardware)
            elif self.sees_nodes:
                fit.check_here(job, self.paths.durable)
        except ValueError as error:
            raise DoesNotFit(str(error)) from error
        return job
