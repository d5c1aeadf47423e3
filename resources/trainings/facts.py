"""Training facts: the state of one training, read once from its folder, for one decision.

`read` reads what every decision needs in one pass: the desired state, the newest claim, the end of its incarnation, and
the records of its jobs. All other parts are read on first access and kept, so that a decision opens no file and lists
no folder twice. After an action that changes the state, the facts must be read again.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.trainings import records
from slipway.resources.trainings.records import Desired, MissingJob, RefusedStart, RunPolicy, Specification
from slipway.trainer.base import codec
from slipway.trainer.base.lazy import lazy
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Storage
from slipway.trainer.record import causes, fence, files, grants, heartbeat, numbered


@dataclass(frozen=True)
class TrainingFacts:
    """One training as it was when it was read."""

    folder: Path
    desired: Desired | None
    """The desired state; None before the training was first started."""
    claim: fence.Claim | None
    """The newest claim; None before the first start."""
    ended: fence.Exit | None
    """How the newest incarnation ended; None while it has not."""
    jobs: frozenset[str]
    """The file names of the records about its jobs."""
    desired_generation: int = 0
    """The number of the record of the desired state; 0 before the first. Work queues are closed for this number."""

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def incarnation(self) -> int:
        """The newest incarnation; 0 before the first."""
        return self.claim.token.incarnation if self.claim else 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the newest claim: those that an incarnation may use; in a later generation, its members."""
        return self.claim.nodes if self.claim else ()

    @lazy
    def offered(self) -> tuple[str, ...]:
        """The nodes for which the newest incarnation was claimed and its job was made."""
        if self.claim is None or self.claim.token.generation == 0:
            return self.nodes
        first = fence.Token(self.incarnation)
        return next((claim.nodes for claim in fence.claims(self.folder) if claim.token == first), self.nodes)

    @property
    def running(self) -> bool:
        """Whether an incarnation is claimed and has not ended."""
        return self.claim is not None and self.ended is None

    @property
    def succeeded(self) -> bool:
        return self.ended is not None and self.ended.outcome == "succeeded"

    @property
    def should_run(self) -> bool:
        return self.desired is not None and self.desired.want == "run"

    @property
    def unfinished(self) -> bool:
        """Whether it should run and has not succeeded. A failed training may be started again."""
        return self.should_run and not self.succeeded

    @lazy
    def paused(self) -> bool:
        """Whether it has completed the granted steps and waits for more. Raises Unreadable."""
        ended = self.ended
        if ended is None or ended.kind != causes.PAUSED:
            return False
        granted = grants.newest(self.folder)
        return granted is not None and granted.until <= ended.step

    @property
    def over(self) -> bool:
        """Whether it has ended and no further incarnation is due."""
        return self.ended is not None and not self.unfinished

    @lazy
    def specification(self) -> Specification:
        """Raises ValueError for a training that was never proposed."""
        return records.read(Specification, self.folder / files.SPECIFICATION)

    @lazy
    def run_policy(self) -> RunPolicy:
        """Raises ValueError for a training that was never proposed."""
        return records.read(RunPolicy, self.folder / files.RUN_POLICY)

    @property
    def storage(self) -> Storage:
        """When each tier gets a checkpoint, and which checkpoints it keeps."""
        return resolved.storage(self.run_policy.operation.get("storage", {}))

    def submitted(self, incarnation: int) -> bool:
        """Whether the job of an incarnation is known to have been submitted."""
        return job_record(incarnation) in self.jobs

    def missing_since(self, incarnation: int) -> float | None:
        """When the job was first missing, in seconds since the epoch; None if it is not missing."""
        name = missing_record(incarnation)
        if name not in self.jobs:
            return None
        path = self.folder / files.JOBS / name
        record = codec.read_if_whole(path, MissingJob)
        return record.first_seen if record else path.stat().st_mtime  # the file's time replaces a damaged record

    @lazy
    def refusal(self) -> RefusedStart | None:
        """Why the job of the newest incarnation could not be submitted; None if it was submitted or never tried."""
        name = refused_record(self.incarnation)
        if not self.running or self.submitted(self.incarnation) or name not in self.jobs:
            return None
        return codec.read_if_whole(self.folder / files.JOBS / name, RefusedStart)

    @lazy
    def commits(self) -> list[fence.Commit]:
        """The valid checkpoints, by step."""
        return fence.commits_under(self.folder, self.claim)

    @lazy
    def commit_names(self) -> Sequence[str]:
        """The names of the valid checkpoints. Cheaper than `commits`."""
        return fence.names_under(self.folder, self.claim)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.commit_names)

    @property
    def newest_step(self) -> int:
        """The step of the newest valid checkpoint; 0 without one."""
        return self.commits[-1].step if self.commits else 0

    @lazy
    def let_go(self) -> bool:
        """Whether only checkpoints that something refers to are kept, as for a trial that was not among the best."""
        return files.LET_GO in (files.entries(self.folder) or ())

    @property
    def damaged(self) -> Mapping[str, str]:
        """Damaged records of checkpoints, which are not valid: the reason by the name of the commit."""
        return fence.damaged(self.folder, self.claim)

    @lazy
    def holders(self) -> Mapping[str, tuple[str, ...]]:
        """The tiers that hold each valid checkpoint, by the name of its commit."""
        return replicas.holders(self.folder, self.commits)

    def commits_on(self, *tiers: str) -> list[fence.Commit]:
        """The valid checkpoints that at least one of these tiers holds, by step."""
        return [commit for commit in self.commits if set(tiers) & set(self.holders[commit.name])]

    @lazy
    def failures(self) -> list[fence.Exit]:
        """How each failed incarnation ended, the oldest first."""
        exits = (self.exit_of(number + 1) for number in range(self.incarnation))
        return [ended for ended in exits if ended is not None and ended.outcome == "failed"]

    @lazy
    def growths(self) -> int:
        """The number of its restarts on more nodes."""
        exits = (self.exit_of(number + 1) for number in range(self.incarnation))
        return sum(ended is not None and ended.kind == causes.GROWN for ended in exits)

    @property
    def failures_without_checkpoint(self) -> int:
        """The number of incarnations in a row, from the newest back, that failed without a checkpoint of their own.

        Causes that never count are left out: a lost node, an eviction or a pre-emption is not the training's fault, and
        after running out of memory, the next start uses a smaller micro-batch.
        """
        return sum(causes.cause(kind).factor is not None for kind in self.kinds_without_checkpoint)

    @lazy
    def kinds_without_checkpoint(self) -> tuple[str, ...]:
        """The causes of the failures in a row, from the newest back, without a checkpoint of their own.

        An incarnation that has not ended is skipped. The row starts again when somebody starts the training again.
        """
        left_checkpoint = {fence.token_of(name).incarnation for name in self.commit_names}
        kinds: list[str] = []
        for incarnation in range(self.incarnation, 0, -1):
            if incarnation in left_checkpoint:
                break
            ended = self.exit_of(incarnation)
            if ended is None:
                continue
            if self._is_of_an_earlier_life(ended) or (ended.outcome != "failed" and not ended.disrupted):
                break
            kinds.append(causes.DISRUPTED if ended.disrupted else ended.kind)
        return tuple(kinds)

    def _is_of_an_earlier_life(self, ended: fence.Exit) -> bool:
        """Whether somebody started the training again after this end. Compares clocks only for old records."""
        if self.desired is None or not self.should_run:
            return False
        if self.desired.incarnation is None:
            return ended.at < self.desired.at
        return ended.incarnation <= self.desired.incarnation

    def exit_of(self, incarnation: int) -> fence.Exit | None:
        """How an incarnation ended; None if it has not, or if there is no record of it."""
        return self.ended if incarnation == self.incarnation else fence.past_exit(self.folder, incarnation)

    @lazy
    def beats(self) -> list[heartbeat.Beat]:
        """The last heartbeat of each rank of the newest incarnation."""
        return heartbeat.read(self.folder, self.claim.token) if self.claim else []

    @lazy
    def begun(self) -> bool:
        """Whether a rank of the newest incarnation has written a heartbeat."""
        return any(name.startswith(f"{self.incarnation:06d}.") for name in _names(self.folder / files.HEARTBEATS))

    @lazy
    def reported(self) -> frozenset[str]:
        """The marks of what the control plane has already shown."""
        return _names(self.folder / files.REPORTED)


def unchanged(known: TrainingFacts) -> TrainingFacts:
    """The facts of a training whose decisive records have not changed. What ranks write is read again."""
    again = dataclasses.replace(known)
    again.__dict__.update(
        {name: known.__dict__[name] for name in ("run_policy", "specification") if name in known.__dict__}
    )
    return again


def read(folder: Path) -> TrainingFacts:
    """The facts of the training in `folder`. A missing folder has no claim and no desired state.

    Raises fence.Unreadable if a part cannot be read; then nothing is known about the training.
    """
    desired_generation = newest_desired(folder)
    desired = desired_of(folder, desired_generation)
    claim = fence.newest_claim(folder)
    ended = fence.read_exit(folder, claim.token.incarnation) if claim else None
    return TrainingFacts(folder, desired, claim, ended, _names(folder / files.JOBS), desired_generation)


def read_desired(folder: Path) -> Desired | None:
    """The desired state; None before the training was first started."""
    return desired_of(folder, newest_desired(folder))


def newest_desired(folder: Path) -> int:
    """The number of the newest record of the desired state; 0 if there is none. Raises Unreadable."""
    return numbered.newest(folder / files.DESIRED)


def desired_of(folder: Path, number: int) -> Desired | None:
    """The record of the desired state with this number; None for 0."""
    return records.read(Desired, files.numbered(folder, files.DESIRED, number)) if number else None


def job_record(incarnation: int) -> str:
    """The name of the record that the job of an incarnation was submitted."""
    return f"{incarnation:06d}.json"


def missing_record(incarnation: int) -> str:
    """The name of the record that the job of an incarnation is missing."""
    return f"{incarnation:06d}.missing.json"


def refused_record(incarnation: int) -> str:
    """The name of the record that the job of an incarnation could not be submitted."""
    return f"{incarnation:06d}.refused.json"


def _names(folder: Path) -> frozenset[str]:
    """The file names in a folder; none if it is missing. Raises fence.Unreadable."""
    return frozenset(files.entries(folder) or ())
