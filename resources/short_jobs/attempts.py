"""Short jobs and their attempts: work that is done once, and a folder with the result of each start of it.

    <durable>/short-jobs/<name>/<attempt>/job.json          the launcher's job, as the first caller described it
                                         /outcome.json      its result, or why there is none
                                                            (`slipway.trainer.record.job_result`)
                                         /logs/<node>.txt   the end of its output, if it failed

The name is a function of the job's subject, so that a second caller finds the running attempt or the result. `job.json`
is create-only, so that all callers that adopt an attempt submit the same job.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipway.resources.launchers import document
from slipway.resources.launchers.protocol import Job
from slipway.trainer.base import atomic, codec, digest, listing
from slipway.trainer.record import job_result
from slipway.trainer.record.job_result import ShortJobOutcome

FOLDER = "short-jobs"
"""The folder on the durable tier."""
JOB = "job.json"
OUTCOME = "outcome.json"
LOGS = "logs"


@dataclass(frozen=True)
class ShortJob:
    """Work that is done once."""

    kind: str
    """One word, with which the names of its jobs begin."""
    about: str
    """The subject, for people."""
    identity: Mapping[str, Any]
    """Everything on which its result depends, without its placement. Two jobs with the same identity are the same."""
    command: tuple[str, ...]
    request: Mapping[str, Any]
    """The JSON document that the command reads; the path of its `outcome` is added."""
    nodes: int = 1
    ranks_per_node: int = 1
    kubernetes: Mapping[str, Any] | None = None
    """The section `placement.kubernetes` for its pods."""

    @property
    def name(self) -> str:
        document = atomic.canonical_json({"kind": self.kind, **self.identity})
        return f"{self.kind}-{digest.sha256(document)[:16]}"


@dataclass(frozen=True)
class ShortJobAttempt:
    """One start of a short job."""

    folder: Path
    number: int

    @property
    def job_name(self) -> str:
        return f"{self.folder.name}-{self.number}"

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:06d}"

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    def claim(self, short_job: ShortJob, nodes: tuple[str, ...], size: int) -> Job:
        """The launcher's job of this attempt: the recorded one, or else this one, which is recorded."""
        job = Job(
            name=self.job_name,
            command=short_job.command,
            config={**short_job.request, "outcome": str(self.path / OUTCOME)},
            nodes=nodes,
            size=size,
            least=size,
            ranks_per_node=short_job.ranks_per_node,
            labels={"task": short_job.kind},
            kubernetes=short_job.kubernetes or {},
        )
        atomic.create_only(self.path / JOB, atomic.readable_json(document.of(job)))
        claimed = self.claimed()
        assert claimed is not None
        return claimed

    def claimed(self) -> Job | None:
        """The recorded job; None if the attempt has not begun. Raises OSError and codec.UndecodableRecord."""
        document_read: dict[str, Any] | None = codec.read_if_there(self.path / JOB, dict[str, Any])
        return None if document_read is None else document.job(document_read)

    def outcome(self) -> ShortJobOutcome | None:
        """The outcome, or None. A damaged outcome counts as a failure. Raises OSError."""
        try:
            return job_result.read(self.path / OUTCOME)
        except codec.OtherFormat:
            raise
        except codec.UndecodableRecord as error:
            return ShortJobOutcome(failure=str(error))

    def fail(self, why: str) -> None:
        job_result.fail(self.path / OUTCOME, why)

    def next(self) -> "ShortJobAttempt":
        return replace(self, number=self.number + 1)


def newest(durable: Path, short_job: ShortJob) -> ShortJobAttempt:
    """The attempt to adopt: the newest one, or the next one if that has failed. Raises OSError."""
    folder = durable / FOLDER / short_job.name
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    attempt = ShortJobAttempt(folder, max(numbers, default=1))
    ended = attempt.outcome()
    return attempt.next() if ended is not None and ended.failure else attempt


def under_way(durable: Path) -> Iterator[Job]:
    """The jobs of all running attempts. Raises OSError and codec.UndecodableRecord."""
    for name in listing.names_if_there(durable / FOLDER):
        for number in filter(str.isdigit, listing.names_if_there(durable / FOLDER / name)):
            attempt = ShortJobAttempt(durable / FOLDER / name, int(number))
            job = attempt.claimed() if attempt.outcome() is None else None
            if job is not None:
                yield job


def remove_old(durable: Path, before: float, release: Callable[[str], bool]) -> None:
    """Remove short jobs that ended before a time, in seconds since the epoch, with the launcher's jobs.

    Their callers have read the results by then. Raises OSError, and what `release` raises.
    """
    for folder in sorted((durable / FOLDER).glob("*")):
        begun = [ShortJobAttempt(folder, int(path.name)) for path in folder.glob("[0-9]*")]
        outcomes = [attempt.path / OUTCOME for attempt in begun]
        ends = [path.stat().st_mtime for path in outcomes if path.exists()]
        if len(ends) == len(begun) and max(ends, default=before) < before:
            for attempt in begun:
                release(attempt.job_name)
            shutil.rmtree(folder)
