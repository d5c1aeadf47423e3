"""The jobs of an embedded instance, for its command line: which run, and how to stop them."""

import time

from slipway.deploy.embedded import CannotStart
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.home import NODES, Home
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.local.overdue import HUNG_SECONDS
from slipway.resources.trainings.control import GRACE_SECONDS

STOP_SECONDS = GRACE_SECONDS + HUNG_SECONDS + 15.0


def launcher(home: Home) -> LocalLauncher:
    """The launcher of this home."""
    return EmbeddedCompute(jobs=str(home.jobs), nodes=str(home.nodes), names=list(NODES)).launcher()


def live(home: Home) -> list[str]:
    """The names of the jobs that run."""
    job_launcher = launcher(home)
    names = sorted(path.name for path in home.jobs.iterdir()) if home.jobs.is_dir() else []
    return [name for name in names if job_launcher.poll(name).state.live]


def stop_all(home: Home) -> None:
    """Stop every job gracefully and wait until all have ended. What should be is left as it is: they go on later.

    Raises CannotStart when one does not end, which its launcher's kill after the grace should not allow.
    """
    job_launcher = launcher(home)
    for name in live(home):
        job_launcher.cancel(name, GRACE_SECONDS)
    deadline = time.monotonic() + STOP_SECONDS
    while live_jobs := live(home):
        if time.monotonic() > deadline:
            raise CannotStart(f"these jobs have not ended: {', '.join(live_jobs)}; see {home.jobs}")
        time.sleep(0.1)
