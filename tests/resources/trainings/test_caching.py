"""The control of one moment: it submits by the launcher of that moment."""

import dataclasses

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings import caching
from slipway.resources.trainings.decision import Action
from tests.resources.trainings.lab import BRIEF, BY, Lab, numbers


@dataclasses.dataclass(frozen=True)
class Noting(LocalLauncher):
    """A launcher that goes away as soon as a job has been submitted to it."""

    jobs: list[Job] = dataclasses.field(default_factory=list)

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        raise Unavailable("the network is down")


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_job_that_others_follow_is_submitted_as_one(lab: Lab, is_warm: bool):
    store = lab.start_training(numbers(BRIEF))
    launcher = Noting(lab.launcher.folder, lab.launcher.code, lab.launcher.fleet)
    control = caching.of_now(lab.control(launcher), is_warm)
    assert control.advance(store, BY) is Action.CLAIM
    with pytest.raises(Unavailable):
        control.advance(store, BY)
    assert [job.warm_start for job in launcher.jobs] == [is_warm]
