"""Progress without news: whether the work for which the demo waits still goes on.

An evaluation on a busy machine may report nothing for a long time, so silence alone does not end the demo. Live jobs
count as work, since the control plane ends them after limits of their own. A run of Dagster counts as work while its
process uses more CPU time than a few file reads need.
"""

import os
import time
from collections.abc import Callable, Mapping

from slipway.deploy.embedded import jobs
from slipway.deploy.embedded.instance import Running
from slipway.trainer.base import processes

LOOK_SECONDS = 15.0
BUSY_SHARE = 0.05
"""The least share of a processor that counts as work. A run that only polls each second uses a tenth of it. A
computation that shares a processor with ten others uses twice as much."""

Work = Mapping[int, float]
"""The CPU seconds of each run so far, including all its child processes, by the pid of the run's process."""


class Silence:
    """The time without news and without work."""

    def __init__(self, work: Callable[[], Work], has_live_job: Callable[[], bool], clock: Callable[[], float]) -> None:
        """`work` returns the CPU seconds of the runs so far, and `has_live_job` whether any job is live."""
        self._work = work
        self._has_live_job = has_live_job
        self._clock = clock
        self._begun = self._looked = clock()
        self._before: Work = {}

    def broken(self) -> None:
        """Record that something new happened."""
        self._begun = self._clock()

    def seconds(self) -> float:
        """The seconds of silence. Checks for work every `LOOK_SECONDS`."""
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            after = self._work()
            if busy(self._before, after, now - self._looked) or self._has_live_job():
                self._begun = now
            self._before = after
            self._looked = now
        return now - self._begun


def busy(before: Work, after: Work, seconds: float) -> bool:
    """Whether the live runs have worked in the last `seconds`. A run that is not in `before` began in that time."""
    return sum(max(0.0, done - before.get(pid, 0.0)) for pid, done in after.items()) >= BUSY_SHARE * seconds


def silence_of(running: Running) -> Silence:
    """The silence of a running instance."""
    server = running.processes["code-server"].pid
    return Silence(lambda: work_below(server), lambda: bool(jobs.live(running.home)), time.monotonic)


def work_below(proxy: int) -> dict[int, float]:
    """The work of a code server's runs. The children of the proxy are servers, and their children are runs."""
    runs = [run for server in processes.children(proxy) for run in processes.children(server)]
    return {run: processes.activity(run)[0] / os.sysconf("SC_CLK_TCK") for run in runs}
