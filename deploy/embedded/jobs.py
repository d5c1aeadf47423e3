"""The jobs of an embedded instance, for the command line: which jobs run, and how to stop them."""

import time

from slipway.deploy.embedded import CannotStart
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.home import NODES, Home
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.local.overdue import HUNG_SECONDS
from slipway.resources.trainings.control import GRACE_SECONDS

STOP_SECONDS = GRACE_SECONDS + HUNG_SECONDS + 15.0


def launcher(home: Home) -> LocalLauncher:
    return EmbeddedCompute(jobs=str(home.jobs), nodes=str(home.nodes), names=list(NODES)).launcher()


def live(home: Home) -> list[str]:
    """The names of the running jobs."""
    job_launcher = launcher(home)
    names = sorted(path.name for path in home.jobs.iterdir()) if home.jobs.is_dir() else []
    return [name for name in names if job_launcher.poll(name).state.live]


def stop_all(home: Home) -> None:
    """Stop every job gracefully, and wait until all have ended. The trainings' desired state remains: they go on later.

    Raises CannotStart if a job does not end, although the launcher kills it after the grace period.
    """
    job_launcher = launcher(home)
    for name in live(home):
        job_launcher.cancel(name, GRACE_SECONDS)
    deadline = time.monotonic() + STOP_SECONDS
    live_jobs = live(home)
    while live_jobs:
        if time.monotonic() > deadline:
            raise CannotStart(f"these jobs have not ended: {', '.join(live_jobs)}; see {home.jobs}")
        time.sleep(0.1)
        live_jobs = live(home)
