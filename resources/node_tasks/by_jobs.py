"""Node tasks as jobs: each a launcher's job of one process, pinned to its node, that leaves its outcome durably.

``<folder>/<name>/<attempt>.json`` is the outcome of an attempt, create-only: the task's result, or why there is none.
The job of an attempt has a name that is a function of task, node and attempt, so that whoever wants the same while it
is under way adopts it; a finished one is done again, which costs little where little is left to do.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resources.fleet.protocol import Fleet
from resources.launcher.protocol import Job, Launcher, State, Status, Unavailable
from resources.node_tasks.protocol import Done, Say
from resources.training_faults import lost_nodes
from trainer import atomic, digest, node_task
from trainer.node_task import Task

GRACE_SECONDS = 5.0
FOLDER = "node-tasks"
"""Of all outcomes, on the durable tier."""
PENDING_SECONDS = 1800.0
"""After which a job that was never started is given up: who wants the task asks again."""


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
            command=("python", "-m", "trainer.node_task"),
            config=node_task.document(self.task, self.outcome),
            nodes=(self.node,),
            labels={"task": self.task.KIND},
        )

    def done(self) -> Done | None:
        """Its outcome, None while there is none."""
        try:
            return Done(**json.loads(self.outcome.read_bytes()))
        except FileNotFoundError:
            return None

    def fail(self, why: str) -> None:
        """Leave as its outcome that there is no result, unless it has one."""
        atomic.create_only(self.outcome, atomic.readable_json({"failure": why}))


@dataclass(frozen=True)
class ByJobs:
    """All nodes at once."""

    launcher: Launcher
    fleet: Fleet
    folder: Path
    """On the durable tier, which nodes see under the same path."""
    poll_seconds: float

    def run(self, tasks: Mapping[str, Task], say: Say) -> dict[str, Done]:
        waiting = {node: self._begin(node, task) for node, task in tasks.items()}
        done, told = dict[str, Done](), dict[str, str]()
        while waiting:
            try:
                self._look(waiting, say, told)
                done |= self._through(waiting)
            except Unavailable as error:
                say(f"the cluster cannot be asked ({error}); nothing follows from that")
            waiting = {node: attempt for node, attempt in waiting.items() if node not in done}
            if waiting:
                time.sleep(self.poll_seconds)
        return {node: done[node] for node in tasks}

    def stop(self, tasks: Mapping[str, Task]) -> None:
        for node, task in tasks.items():
            self.launcher.cancel(self._newest(node, task).name, GRACE_SECONDS)

    def _begin(self, node: str, task: Task) -> Attempt:
        """The attempt that is under way, or else a new one; of those before nothing is needed any more."""
        attempt = self._newest(node, task)
        if attempt.number > 1:
            self.launcher.release(dataclasses.replace(attempt, number=attempt.number - 1).name)
        if self.launcher.poll(attempt.name).state.terminal:
            attempt.fail("it ended while nobody waited")
            return self._begin(node, task)
        try:
            self.launcher.submit(attempt.job())
        except ValueError as error:
            attempt.fail(str(error))
        return attempt

    def _newest(self, node: str, task: Task) -> Attempt:
        """The first attempt that has no outcome."""
        document = atomic.canonical_json(node_task.document(task, Path()))
        folder = self.folder / f"{task.KIND}-{node}-{digest.sha256(document)[:12]}"
        ended = [int(path.stem) for path in folder.glob("[0-9]*.json")]
        return Attempt(node, task, folder, max(ended, default=0) + 1)

    def _look(self, waiting: Mapping[str, Attempt], say: Say, told: dict[str, str]) -> None:
        """Say what is new, and leave the outcome of those whose job has none to leave. Raises Unavailable."""
        nodes = {node.name: node for node in self.fleet.nodes()}
        for name, attempt in waiting.items():
            status = self.launcher.poll(attempt.name)
            if attempt.outcome.exists():
                continue
            if status.reason and told.get(name) != status.reason:
                told[name] = status.reason
                say(f"{name}: {status.state.value}: {status.reason}")
            if status.state.live and (name not in nodes or nodes[name].lost):
                self._give_up(attempt, "; ".join(lost_nodes([name], nodes.values())))
            elif status.state is State.PENDING and time.time() - (status.submitted_at or time.time()) > PENDING_SECONDS:
                self._give_up(attempt, f"it was not started within {PENDING_SECONDS:.0f} s: {status.reason}")
            elif why := self._failure(attempt, status):
                attempt.fail(why)

    def _through(self, waiting: Mapping[str, Attempt]) -> dict[str, Done]:
        """The outcomes of those whose job is over, and is released. Raises Unavailable."""
        outcomes = {node: attempt.done() for node, attempt in waiting.items()}
        return {node: outcome for node, outcome in outcomes.items() if outcome and (self._release(waiting[node].name))}

    def _release(self, job: str) -> bool:
        """Whether nothing is left of a job."""
        return self.launcher.release(job) or self.launcher.poll(job).state is State.MISSING

    def _give_up(self, attempt: Attempt, why: str) -> None:
        self.launcher.cancel(attempt.name, GRACE_SECONDS)
        attempt.fail(why)

    def _failure(self, attempt: Attempt, status: Status) -> str:
        """Why a job will leave no result; empty while it may."""
        match status.state:
            case State.FAILED:
                return f"{status.reason}{self._last_words(attempt)}"
            case State.STOPPED:
                return "it was stopped"
            case State.MISSING:
                return "its job was deleted"
            case State.SUCCEEDED if not attempt.outcome.exists():
                return f"it left no outcome: {self.folder} is not the same folder there as here"
            case _:
                return ""

    def _last_words(self, attempt: Attempt) -> str:
        """The last line that the task wrote."""
        said = [log.strip().splitlines() for log in self.launcher.logs(attempt.name, tail_bytes=4096).values()]
        return "".join(f": {lines[-1].removeprefix('node task: ')}" for lines in said if lines)


def forget(durable: Path, before: float) -> None:
    """Remove the outcomes that were left before a time, seconds since the epoch: who waited for one has read it."""
    for outcome in (durable / FOLDER).glob("*/[0-9]*.json"):
        if outcome.stat().st_mtime < before:
            outcome.unlink()
            with contextlib.suppress(OSError):  # there are others yet
                outcome.parent.rmdir()
