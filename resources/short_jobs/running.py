"""Running short jobs: submit or adopt, wait, and read the result. The process that waits is disposable.

An attempt has failed when its job ended without a result, was seen missing for a while, lost a node, or said nothing
for long. A launcher that cannot be asked is asked again, and nothing follows from that.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.protocol import Fleet, by_name
from slipway.resources.launchers.protocol import JobState, Launcher, Status
from slipway.resources.short_jobs import attempts
from slipway.resources.short_jobs.attempts import ShortJob, ShortJobAttempt
from slipway.resources.trainings import faults
from slipway.trainer.base import atomic
from slipway.trainer.base.codec import UndecodableRecord
from slipway.trainer.record.job_result import RESTORED

GRACE_SECONDS = 5.0
SAY_SECONDS = 15.0
"""Between two lines about how far a job is."""
SILENT_SECONDS = 1800.0
"""A running job that wrote nothing for so long hangs: it says every few seconds how far it is."""
MISSING_SECONDS = 10.0
"""A job object must be missing for so long before it counts as deleted."""
Say = Callable[[str], None]


class ShortJobFailed(Exception):
    """An attempt has no result; the message says why, and where its log is. Whoever asks again makes a new attempt."""


@dataclass
class _AttemptWatch:
    """What the waiting process has seen of one attempt, by its own clock."""

    text: str = ""
    moved_at: float = field(default_factory=time.monotonic)
    last_line: str = ""
    said_at: float = -SAY_SECONDS
    missing_since: float | None = None


@dataclass(frozen=True)
class ShortJobs:
    """Runs short jobs by one launcher."""

    launcher: Launcher
    fleet: Fleet
    durable: Path
    """The durable tier, which the jobs see under the same path."""
    poll_seconds: float

    def run(self, short_job: ShortJob, say: Say) -> Mapping[str, Any]:
        """The result of a short job: of one that is done, of one that is under way, or of a new one.

        Raises ShortJobFailed, and OSError when the durable tier cannot be read.
        """
        attempt = attempts.newest(self.durable, short_job)
        watch = _AttemptWatch()
        submitted = False
        while True:
            ended = attempt.outcome()
            try:
                if ended is None and not submitted:
                    submitted = self._submit(short_job, attempt, watch, say)
                if ended is None and submitted:
                    self._look(short_job, attempt, watch, say)
                if ended is not None and (ended.failure or self._release(attempt)):
                    break
            except Unavailable as error:
                _say_once(watch, f"the launcher cannot be asked, the run asks again: {error}", say)
            time.sleep(self.poll_seconds)
        if ended.failure:
            raise ShortJobFailed(f"{short_job.kind} of {short_job.about}: {ended.failure}")
        return ended.result

    def stop(self, short_job: ShortJob) -> None:
        """Stop the attempt that is under way, if there is one. Raises Unavailable and OSError."""
        attempt = attempts.newest(self.durable, short_job)
        if attempt.claimed() is not None and attempt.outcome() is None:
            self.launcher.cancel(attempt.job_name, GRACE_SECONDS)
            attempt.fail("it was stopped, as its run was cancelled")

    def forget(self, short_job: ShortJob) -> None:
        """Let the next who wants the same have it done again. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.durable / attempts.FOLDER / short_job.name)

    def _submit(self, short_job: ShortJob, attempt: ShortJobAttempt, watch: _AttemptWatch, say: Say) -> bool:
        """Submit the attempt's job, or adopt it; False while too few nodes are ready. Raises Unavailable."""
        try:
            job = attempt.claimed()
        except UndecodableRecord as error:
            attempt.fail(str(error))
            return True
        if job is None:
            nodes = self.fleet.nodes()
            ready = tuple(node.name for node in nodes if node.ready)
            if len(ready) < short_job.nodes:
                _say_once(watch, f"{short_job.about} waits: {faults.too_few(nodes, short_job.nodes)}", say)
                return False
            if attempt.number > 1:
                before = ShortJobAttempt(attempt.folder, attempt.number - 1)
                self.launcher.release(before.job_name)
                shutil.rmtree(before.path / RESTORED, ignore_errors=True)
            job = attempt.claim(short_job, ready if self.fleet.scheduled else ready[: short_job.nodes], short_job.nodes)
        try:
            self.launcher.submit(job)
        except ValueError as error:
            attempt.fail(str(error))
        else:
            _say_once(watch, f"{short_job.about}: job {job.name}, {job.node_count} x {job.ranks_per_node} ranks", say)
        return True

    def _look(self, short_job: ShortJob, attempt: ShortJobAttempt, watch: _AttemptWatch, say: Say) -> None:
        """Say what is new, and end an attempt that will leave no result. Raises Unavailable."""
        status = self.launcher.poll(attempt.job_name)
        logs = self.launcher.logs(attempt.job_name, tail_bytes=4096) if status.state is JobState.RUNNING else {}
        now = time.monotonic()
        if (text := "".join(logs.values())) != watch.text:
            watch.text, watch.moved_at = text, now
        line = _last_line(logs) if logs else status.reason
        if line and now - watch.said_at >= SAY_SECONDS:
            _say_once(watch, f"{short_job.about}: {line}", say)
        watch.missing_since = (watch.missing_since or now) if status.state is JobState.MISSING else None
        why = self._fault(status, watch, now)
        if why and attempt.outcome() is None:  # a result that came meanwhile counts
            where = self._keep_logs(attempt)
            self.launcher.cancel(attempt.job_name, GRACE_SECONDS)
            attempt.fail(f"job {attempt.job_name}: {why}{where}")

    def _fault(self, status: Status, watch: _AttemptWatch, now: float) -> str:
        """Why there will be no result; empty while there may be one. Raises Unavailable."""
        match status.state:
            case JobState.FAILED:
                return status.reason or "it failed"
            case JobState.STOPPED:
                return "it was stopped"
            case JobState.SUCCEEDED:
                return f"it left no result: {self.durable} is another folder on its nodes than here"
            case JobState.MISSING if now - (watch.missing_since or now) >= MISSING_SECONDS:
                return "its job was deleted"
            case JobState.RUNNING if now - watch.moved_at >= SILENT_SECONDS:
                return f"it wrote nothing for {SILENT_SECONDS:.0f} s, and was stopped"
            case JobState.PENDING | JobState.RUNNING:
                watch.moved_at = now if status.state is JobState.PENDING else watch.moved_at
                lost = faults.lost(status, by_name(self.fleet.nodes()))
                return lost.cause if lost else ""
            case _:
                return ""

    def _keep_logs(self, attempt: ShortJobAttempt) -> str:
        """Keep the end of what the job wrote; its last lines and the place of all of it, for the message."""
        logs = self.launcher.logs(attempt.job_name)
        for node, text in logs.items():
            atomic.replace(attempt.logs / f"{node}.txt", text.encode())
        last = "; ".join(line for line in (_last_line({node: text}) for node, text in logs.items()) if line)
        return f": {last}; its log: {attempt.logs}" if last else ""

    def _release(self, attempt: ShortJobAttempt) -> bool:
        """Remove the job of an attempt that has a result; returns whether nothing is left of it. Raises Unavailable."""
        return self.launcher.release(attempt.job_name) or self.launcher.poll(attempt.job_name).state is JobState.MISSING


def _say_once(watch: _AttemptWatch, line: str, say: Say) -> None:
    if line != watch.last_line:
        watch.last_line, watch.said_at = line, time.monotonic()
        say(line)


OWN_PREFIXES = ("evaluate: ", "export: ", "generate: ")
"""What the lines of our own begin with; torchrun writes many others when a rank fails."""


def _last_line(logs: Mapping[str, str]) -> str:
    """The last line of the job's own, or else of any."""
    lines = [line for text in logs.values() for line in text.splitlines() if line.strip()]
    own_lines = [line for line in lines if line.startswith(OWN_PREFIXES)]
    return (own_lines or lines or [""])[-1]
