"""Node tasks as jobs: each is a launcher's job with one process on its node, which writes its outcome to a file.

``<folder>/<name>/<attempt>.json`` is the outcome of an attempt, create-only: the task's result, or why there is none.
The name of the attempt's job is a function of task, node and attempt, so a second process that requests the same task
adopts the running job. A finished task runs again on request, which is cheap if there is little left to do.
"""

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.protocol import Fleet, by_name
from slipway.resources.launchers.protocol import Job, JobState, Launcher, Status
from slipway.resources.node_tasks.protocol import Say, TaskOutcome
from slipway.resources.trainings.faults import lost_nodes
from slipway.trainer import node_task
from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.node_task import Task

GRACE_SECONDS = 5.0
PROGRESS_SECONDS = 15.0
"""How often the progress of each node is printed."""
LINE_PREFIX = "node task: "
"""The prefix of a task's lines."""
FOLDER = "node-tasks"
"""The folder of all outcomes, on the durable tier."""
PENDING_SECONDS = 1800.0
"""The time after which a job that has not started is cancelled; the next request makes a new attempt."""


@dataclass(frozen=True)
class Attempt:
    """One start of a task on a node."""

    node: str
    task: Task
    folder: Path
    number: int

    @property
    def name(self) -> str:
        """The job's name."""
        return f"{self.folder.name}-{self.number}"

    @property
    def outcome(self) -> Path:
        return self.folder / f"{self.number:06d}.json"

    def job(self) -> Job:
        return Job(
            name=self.name,
            command=("python", "-P", "-m", "slipway.trainer.node_task"),
            config=node_task.document(self.task, self.outcome),
            nodes=(self.node,),
            labels={"task": self.task.KIND},
        )

    def done(self) -> TaskOutcome | None:
        """The outcome, or None."""
        return codec.read_if_there(self.outcome, TaskOutcome)

    def fail(self, why: str) -> None:
        """Record a failure as the outcome, unless there is an outcome."""
        codec.create_only(self.outcome, {"failure": why})


@dataclass(frozen=True)
class ByJobs:
    """Runs the tasks of all nodes in parallel."""

    launcher: Launcher
    fleet: Fleet
    folder: Path
    """A folder on the durable tier, at the same path on all nodes."""
    poll_seconds: float

    def run(self, tasks: Mapping[str, Task], say: Say) -> dict[str, TaskOutcome]:
        waiting = {node: self._begin(node, task) for node, task in tasks.items()}
        done = dict[str, TaskOutcome]()
        printed = dict[str, str]()
        progress_lines = dict[str, str]()
        looked = time.monotonic()
        while waiting:
            try:
                self._look(waiting, say, printed)
                if time.monotonic() - looked >= PROGRESS_SECONDS:
                    looked = time.monotonic()
                    self._say_progress(waiting, say, progress_lines)
                done |= self._finished(waiting)
            except Unavailable as error:
                say(f"the cluster does not answer ({error}); trying again")
            waiting = {node: attempt for node, attempt in waiting.items() if node not in done}
            if waiting:
                time.sleep(self.poll_seconds)
        return {node: done[node] for node in tasks}

    def stop(self, tasks: Mapping[str, Task]) -> None:
        for node, task in tasks.items():
            self.launcher.cancel(self._newest(node, task).name, GRACE_SECONDS)

    def _begin(self, node: str, task: Task) -> Attempt:
        """The running attempt, or a new one. Removes the job of the attempt before."""
        attempt = self._newest(node, task)
        if attempt.number > 1:
            self.launcher.release(dataclasses.replace(attempt, number=attempt.number - 1).name)
        if self.launcher.poll(attempt.name).state.terminal:
            attempt.fail("it ended while no process waited for it")
            return self._begin(node, task)
        try:
            self.launcher.submit(attempt.job())
        except ValueError as error:
            attempt.fail(str(error))
        return attempt

    def _newest(self, node: str, task: Task) -> Attempt:
        """The first attempt without an outcome."""
        document = atomic.canonical_json(node_task.document(task, Path()))
        folder = self.folder / f"{task.KIND}-{node}-{digest.sha256(document)[:12]}"
        ended = [int(path.stem) for path in folder.glob("[0-9]*.json")]
        return Attempt(node, task, folder, max(ended, default=0) + 1)

    def _look(self, waiting: Mapping[str, Attempt], say: Say, printed: dict[str, str]) -> None:
        """Print what is new, and record a failure for each job that will never write an outcome. Raises Unavailable."""
        nodes = by_name(self.fleet.nodes())
        for name, attempt in waiting.items():
            status = self.launcher.poll(attempt.name)
            if attempt.outcome.exists():
                continue
            if status.reason and printed.get(name) != status.reason:
                printed[name] = status.reason
                say(f"{name}: {status.state.value}: {status.reason}")
            if status.state.live and (name not in nodes or nodes[name].lost):
                self._give_up(attempt, "; ".join(lost_nodes([name], nodes)))
            elif (
                status.state is JobState.PENDING
                and time.time() - (status.submitted_at or time.time()) > PENDING_SECONDS
            ):
                self._give_up(attempt, f"it did not start within {PENDING_SECONDS:.0f} s: {status.reason}")
            else:
                why = self._failure(attempt, status)
                if why:
                    attempt.fail(why)

    def _say_progress(self, waiting: Mapping[str, Attempt], say: Say, progress_lines: dict[str, str]) -> None:
        """Print the progress of each node that has made some since the last time. Raises Unavailable."""
        for name, attempt in waiting.items():
            line = self._last_line(attempt)
            if line and progress_lines.get(name) != line:
                progress_lines[name] = line
                say(f"{name}: {line}")

    def _finished(self, waiting: Mapping[str, Attempt]) -> dict[str, TaskOutcome]:
        """The outcomes of the attempts whose job has ended and was removed. Raises Unavailable."""
        outcomes = {node: attempt.done() for node, attempt in waiting.items()}
        return {node: outcome for node, outcome in outcomes.items() if outcome and (self._release(waiting[node].name))}

    def _release(self, job: str) -> bool:
        """Remove an ended job; returns whether it is gone."""
        return self.launcher.release(job) or self.launcher.poll(job).state is JobState.MISSING

    def _give_up(self, attempt: Attempt, why: str) -> None:
        self.launcher.cancel(attempt.name, GRACE_SECONDS)
        attempt.fail(why)

    def _failure(self, attempt: Attempt, status: Status) -> str:
        """Why a job will never write an outcome; "" while it may still write one."""
        match status.state:
            case JobState.FAILED:
                return f"{status.reason}{self._line_suffix(attempt)}"
            case JobState.STOPPED:
                return "it was stopped"
            case JobState.MISSING:
                return "its job was deleted"
            case JobState.SUCCEEDED if not attempt.outcome.exists():
                return f"it wrote no outcome: {self.folder} on the node is not the same folder as here"
            case _:
                return ""

    def _line_suffix(self, attempt: Attempt) -> str:
        """The last line of the task's output after a colon, or ""."""
        line = self._last_line(attempt)
        return f": {line}" if line else ""

    def _last_line(self, attempt: Attempt) -> str:
        """The last line of the task's output, or ""."""
        outputs = [log.strip().splitlines() for log in self.launcher.logs(attempt.name, tail_bytes=4096).values()]
        return ": ".join(lines[-1].removeprefix(LINE_PREFIX) for lines in outputs if lines)


def remove_outcomes(durable: Path, before: float) -> None:
    """Remove the outcomes written before a time, in seconds since the epoch. Their processes have read them by then."""
    for outcome in (durable / FOLDER).glob("*/[0-9]*.json"):
        if outcome.stat().st_mtime < before:
            outcome.unlink()
            with contextlib.suppress(OSError):  # the folder holds other outcomes
                outcome.parent.rmdir()
