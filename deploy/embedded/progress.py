"""Progress while nothing is new: whether what the demo waits for is still at work.

An evaluation on a busy machine says nothing for longer than any limit that is short enough for a person. So silence
alone is no reason to give up: jobs that live have limits of their own, after which the control plane ends them; the
runs of Dagster count as at work while their processes use the processor for more than a look at some files takes.
"""

import os
import time
from collections.abc import Callable, Mapping

from slipway.deploy.embedded import jobs
from slipway.deploy.embedded.instance import Running
from slipway.trainer.base import processes

LOOK_SECONDS = 15.0
BUSY_SHARE = 0.05
"""Of a processor, in each look. A run that waits and asks again each second uses a tenth of this; a computation that
shares a processor with ten others, twice as much."""

Work = Mapping[int, float]
"""The processor's seconds of each run so far, by the pid of its process; those of all processes below it count."""


class Silence:
    """For how long nothing was new, and nothing was at work."""

    def __init__(self, work: Callable[[], Work], has_live_job: Callable[[], bool], clock: Callable[[], float]) -> None:
        """`has_live_job` says whether any job lives."""
        self._work = work
        self._has_live_job = has_live_job
        self._clock = clock
        self._begun = self._looked = clock()
        self._before: Work = {}

    def broken(self) -> None:
        """Something is new."""
        self._begun = self._clock()

    def seconds(self) -> float:
        """How long it has lasted; looks for work now and then."""
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            after = self._work()
            if busy(self._before, after, now - self._looked) or self._has_live_job():
                self._begun = now
            self._before = after
            self._looked = now
        return now - self._begun


def busy(before: Work, after: Work, seconds: float) -> bool:
    """Whether the runs that live now have worked in these seconds; one that is new has begun in them."""
    return sum(max(0.0, done - before.get(pid, 0.0)) for pid, done in after.items()) >= BUSY_SHARE * seconds


def silence_of(running: Running) -> Silence:
    """The silence of an instance."""
    server = running.processes["code-server"].pid
    return Silence(lambda: work_below(server), lambda: bool(jobs.live(running.home)), time.monotonic)


def work_below(proxy: int) -> dict[int, float]:
    """The work of the runs of a code server: its proxy's children are servers, and theirs are runs."""
    runs = [run for server in processes.children(proxy) for run in processes.children(server)]
    return {run: processes.activity(run)[0] / os.sysconf("SC_CLK_TCK") for run in runs}
