"""Running short jobs: submit or adopt a job, wait, and read the result. The waiting process may die at any time.

An attempt has failed if its job ended without a result, was missing for some time, lost a node, or wrote nothing for a
long time. If the launcher does not answer, the process simply tries again.
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
"""The time between two lines about the progress of a job."""
SILENT_SECONDS = 1800.0
"""The time without output after which a running job counts as hanging; normally it writes every few seconds."""
MISSING_SECONDS = 10.0
"""How long a job object must be missing before it counts as deleted."""
Say = Callable[[str], None]


class ShortJobFailed(Exception):
    """An attempt has no result; the message says why, and where its log is. The next call makes a new attempt."""


@dataclass
class _AttemptWatch:
    """The waiting process's observations of one attempt, by its own clock."""

    text: str = ""
    moved_at: float = field(default_factory=time.monotonic)
    last_line: str = ""
    said_at: float = -SAY_SECONDS
    missing_since: float | None = None


@dataclass(frozen=True)
class ShortJobs:
    """Runs short jobs with one launcher."""

    launcher: Launcher
    fleet: Fleet
    durable: Path
    """The durable tier, at the same path in all jobs."""
    poll_seconds: float

    def run(self, short_job: ShortJob, say: Say) -> Mapping[str, Any]:
        """The result of a short job: of a finished, a running or a new attempt.

        Raises ShortJobFailed, and OSError if the durable tier cannot be read.
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
                _say_once(watch, f"the launcher does not answer, trying again: {error}", say)
            time.sleep(self.poll_seconds)
        if ended.failure:
            raise ShortJobFailed(f"{short_job.kind} of {short_job.about}: {ended.failure}")
        return ended.result

    def stop(self, short_job: ShortJob) -> None:
        """Stop the running attempt, if there is one. Raises Unavailable and OSError."""
        attempt = attempts.newest(self.durable, short_job)
        if attempt.claimed() is not None and attempt.outcome() is None:
            self.launcher.cancel(attempt.job_name, GRACE_SECONDS)
            attempt.fail("it was stopped, since its run was cancelled")

    def forget(self, short_job: ShortJob) -> None:
        """Remove the results of a short job, so that the next caller runs it again. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.durable / attempts.FOLDER / short_job.name)

    def _submit(self, short_job: ShortJob, attempt: ShortJobAttempt, watch: _AttemptWatch, say: Say) -> bool:
        """Submit or adopt the attempt's job. Returns False if too few nodes are ready. Raises Unavailable."""
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
        """Print what is new, and end an attempt that will never have a result. Raises Unavailable."""
        status = self.launcher.poll(attempt.job_name)
        logs = self.launcher.logs(attempt.job_name, tail_bytes=4096) if status.state is JobState.RUNNING else {}
        now = time.monotonic()
        text = "".join(logs.values())
        if text != watch.text:
            watch.text = text
            watch.moved_at = now
        line = _last_line(logs) if logs else status.reason
        if line and now - watch.said_at >= SAY_SECONDS:
            _say_once(watch, f"{short_job.about}: {line}", say)
        watch.missing_since = (watch.missing_since or now) if status.state is JobState.MISSING else None
        why = self._fault(status, watch, now)
        if why and attempt.outcome() is None:  # a result may have arrived meanwhile
            where = self._keep_logs(attempt)
            self.launcher.cancel(attempt.job_name, GRACE_SECONDS)
            attempt.fail(f"job {attempt.job_name}: {why}{where}")

    def _fault(self, status: Status, watch: _AttemptWatch, now: float) -> str:
        """Why there will never be a result; "" while there may be one. Raises Unavailable."""
        match status.state:
            case JobState.FAILED:
                return status.reason or "it failed"
            case JobState.STOPPED:
                return "it was stopped"
            case JobState.SUCCEEDED:
                return f"it wrote no result: {self.durable} on its nodes is not the same folder as here"
            case JobState.MISSING if now - (watch.missing_since or now) >= MISSING_SECONDS:
                return "its job was deleted"
            case JobState.RUNNING if now - watch.moved_at >= SILENT_SECONDS:
                return f"it wrote nothing for {SILENT_SECONDS:.0f} s, and was stopped"
            case JobState.PENDING | JobState.RUNNING:
                if status.state is JobState.PENDING:
                    watch.moved_at = now
                lost = faults.lost(status, by_name(self.fleet.nodes()))
                return lost.cause if lost else ""
            case _:
                return ""

    def _keep_logs(self, attempt: ShortJobAttempt) -> str:
        """Store the end of the job's output; returns its last lines and the path of the log, for the message."""
        logs = self.launcher.logs(attempt.job_name)
        for node, text in logs.items():
            atomic.replace(attempt.logs / f"{node}.txt", text.encode())
        last = "; ".join(line for line in (_last_line({node: text}) for node, text in logs.items()) if line)
        return f": {last}; its log: {attempt.logs}" if last else ""

    def _release(self, attempt: ShortJobAttempt) -> bool:
        """Remove the job of a finished attempt; returns whether it is gone. Raises Unavailable."""
        return self.launcher.release(attempt.job_name) or self.launcher.poll(attempt.job_name).state is JobState.MISSING


def _say_once(watch: _AttemptWatch, line: str, say: Say) -> None:
    if line != watch.last_line:
        watch.last_line = line
        watch.said_at = time.monotonic()
        say(line)


OWN_PREFIXES = ("evaluate: ", "export: ", "generate: ")
"""The prefixes of our own lines. torchrun writes many other lines if a rank fails."""


def _last_line(logs: Mapping[str, str]) -> str:
    """The last line with one of `OWN_PREFIXES`, or else the last line."""
    lines = [line for text in logs.values() for line in text.splitlines() if line.strip()]
    own_lines = [line for line in lines if line.startswith(OWN_PREFIXES)]
    return (own_lines or lines or [""])[-1]
