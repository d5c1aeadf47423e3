"""The training store: the only access to a training's durable folder. Assets and sensors know no paths.

    <root>/<id>/specification.json   what is trained; create-only, its hash is in the id
                terms.json           the run policy: where it may run and how it recovers; may change
                desired/<n>.json     the desired state, by whom and why; the last one applies
                jobs/<incarnation>.json  the job of an incarnation was submitted
                claims/ commits/ set-aside/ pruned/ exits/ ledger/ heartbeats/   the trainer's side
                replicas/ withdrawn/ the tiers that hold its checkpoints
                let-go.json      no checkpoint has to be kept for itself
                starts/ stops/       the agreements of a script's ranks
                incidents/           a record of each incident, with the evidence of the nodes
                diagnoses/           requests to nodes for a diagnosis of their ranks
                tails/               the end of the logs of a failed incarnation's nodes
                evaluations/         the scores of its checkpoints
                tracking.json        how far its metrics have been delivered
                reported/            what the control plane has already shown
    <root>/.open/<queue>/<id>@<generation>.<entry>  an entry of a work queue: pending work for a training

Pending work belongs to a generation of the desired state. Each entry is a file. Closing removes the entries that were
read, up to the generation that was handled; entries for a later generation, or added meanwhile, stay. A sensor visits
only the trainings in its own queue.
"""

import contextlib
import dataclasses
import enum
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.resources.trainings import facts, records
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import (
    LET_GO_FORMAT,
    CheckpointsLetGo,
    Desired,
    MissingJob,
    PolicyChanges,
    RunPolicy,
    Specification,
    SubmittedJob,
    policy_changes,
)
from slipway.trainer.base import atomic, codec, journal, listing
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.record import fence, files, incidents, ledger
from slipway.trainer.record.incidents import IncidentRecord

if TYPE_CHECKING:  # it imports Dagster, which takes the command line seconds
    from slipway.resources.tiers import Tiers

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""The ids of trainings, trials and sweeps."""
TRIALS = "trials"


class TrainingStore:
    """The folder of one training. A decision reads all facts (`read`); a caller that needs one part reads that part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def read(self) -> TrainingFacts:
        """The state of the training now."""
        return facts.read(self.folder)

    def specification(self) -> Specification:
        """Raises ValueError if the training was never proposed."""
        return records.read(Specification, self.folder / files.SPECIFICATION)

    def run_policy(self) -> RunPolicy:
        """Raises ValueError if the training was never proposed."""
        return records.read(RunPolicy, self.folder / files.RUN_POLICY)

    def desired(self) -> Desired | None:
        """The desired state; None before the training was first started."""
        return facts.read_desired(self.folder)

    def newest_claim(self) -> fence.Claim | None:
        return fence.newest_claim(self.folder)

    def exit(self) -> fence.Exit | None:
        """How the newest incarnation ended; None while it has not."""
        claim = self.newest_claim()
        return fence.read_exit(self.folder, claim.token.incarnation) if claim else None

    def commits(self) -> list[fence.Commit]:
        """The valid checkpoints, by step."""
        return fence.commits(self.folder)

    def events(self) -> list[journal.JournalEvent]:
        """The ledger, by time."""
        return ledger.read(self.folder)

    def desired_generation(self) -> int:
        """The number of the newest record of the desired state; 0 if there is none."""
        return facts.newest_desired(self.folder)

    def want(self, want: str, by: str, why: str, by_platform: bool = False) -> int:
        """Set the desired state, "run" or "stop", unless it is set already; returns the number of its record.

        by_platform: whether the platform decided this and no person, for example because the training failed for good.
        """
        while True:
            number = facts.newest_desired(self.folder)
            desired = facts.desired_of(self.folder, number)
            if desired is not None and desired.want == want:
                return number
            path = files.numbered(self.folder, files.DESIRED, number + 1)
            newest = self._newest_incarnation()
            if records.create(Desired(want, by, why, time.time(), newest, by_platform), path):
                with contextlib.suppress(OSError):  # the record itself is enough
                    self._note(by, "wanted", newest or 0, want=want, why=why)
                return number + 1

    def _newest_incarnation(self) -> int | None:
        """The newest incarnation, 0 before the first; None if unreadable, since that must not prevent a stop."""
        with contextlib.suppress(fence.Unreadable):
            claim = self.newest_claim()
            return claim.token.incarnation if claim else 0
        return None

    def claim(
        self, incarnation: int, nodes: tuple[str, ...], cause: str, by: str, ended: fence.Exit | None = None
    ) -> bool:
        """Claim an incarnation and seal the one before, with `ended` as its exit unless it has one.

        Returns False if another process has claimed it, or if the training has succeeded.
        """
        token = fence.Token(incarnation)
        if not fence.claim(self.folder, token, nodes=nodes, cause=cause, by=by, ended=ended):
            return False
        self._note(by, "claimed", incarnation, nodes=list(nodes), cause=cause)
        return True

    def record_exit(
        self,
        incarnation: int,
        outcome: str,
        reason: str,
        by: str,
        nodes: tuple[str, ...] = (),
        disrupted: bool = False,
        kind: str = "",
        ended_at: float | None = None,
    ) -> None:
        """Record an incarnation's end, unless it is recorded already.

        `ended_at` is when its job ended according to its launcher, which may be long before it was noticed.
        """
        ended = self.exit_of(incarnation, outcome, reason, by, nodes, disrupted, kind)
        if fence.record_exit(self.folder, ended):
            self.note_end(ended, ended_at)

    def exit_of(
        self,
        incarnation: int,
        outcome: str,
        reason: str,
        by: str,
        nodes: tuple[str, ...],
        disrupted: bool,
        kind: str = "",
    ) -> fence.Exit:
        """The exit of an incarnation that ends now, at the step of the newest commit."""
        commits = self.commits()
        step = commits[-1].step if commits else 0
        return fence.Exit(incarnation, outcome, reason, step, by, time.time(), nodes, disrupted, kind)

    def note_end(self, ended: fence.Exit, ended_at: float | None = None) -> None:
        """Write to the ledger how an incarnation ended, and when its job ended, if known."""
        fields = {"outcome": ended.outcome, "kind": ended.kind, "reason": ended.reason, "step": ended.step}
        if ended_at is not None:
            fields["ended_at"] = ended_at
        self._note(ended.by, "ended", ended.incarnation, **fields)

    def note_release(self, commit: str, reason: str, by: str) -> None:
        """Write to the ledger that a checkpoint which was set aside is valid again."""
        claim = self.newest_claim()
        self._note(by, "released", claim.token.incarnation if claim else 0, commit=commit, reason=reason)

    def note_incident(self, incident: IncidentRecord) -> bool:
        """Write an incident record, and an event to the ledger. Returns False if the record exists already."""
        if not incidents.note(self.folder, incident):
            return False
        fields = {"id": incident.id, "kind": incident.kind, "cause": incident.reason, "nodes": list(incident.nodes)}
        self._note(incident.by, "incident", fence.Token.parse(incident.token).incarnation, **fields)
        return True

    def note_growth(self, incarnation: int, cause: str, nodes: tuple[str, ...], by: str) -> None:
        """Write to the ledger that an incarnation restarts on more nodes, and which nodes are new."""
        self._note(by, "grown", incarnation, cause=cause, nodes=list(nodes))

    def _note(self, by: str, event: str, incarnation: int, **fields: Any) -> None:
        """Write an event of the control plane to the writer's own segment of the ledger."""
        writer = re.sub(r"[^A-Za-z0-9]+", "-", by)
        ledger.note(self.folder, fence.Token(incarnation), writer, event, by=by, **fields)

    def change_run_policy(self, run_policy: RunPolicy, by: str, source: str = "") -> PolicyChanges:
        """Replace the run policy if it differs, and write to the ledger what changed, who changed it and why.

        The origin stays, and so does the folder of the initial weights unless `run_policy` has another. A missing or
        damaged policy is replaced. Raises OtherFormat for a policy of another version.
        """
        path = self.folder / files.RUN_POLICY
        try:
            stored = records.read(RunPolicy, path)
        except codec.OtherFormat:
            raise
        except (ValueError, fence.Unreadable):
            records.replace(run_policy, path)
            return {}
        preserved = {
            "origin": stored.origin or run_policy.origin,
            "init": run_policy.init or stored.init,
            "edition": stored.edition,
        }
        merged = dataclasses.replace(run_policy, **preserved)  # type: ignore[arg-type]
        changed = policy_changes(stored, merged)
        if changed:
            records.replace(dataclasses.replace(merged, edition=stored.edition + 1), path)
            claim = self.newest_claim()
            if claim:
                pairs = {name: list(pair) for name, pair in changed.items()}
                self._note(by, "terms_changed", claim.token.incarnation, changed=pairs, source=source)
        return changed

    def set_aside(self, commit: fence.Commit, reason: str) -> None:
        """Withdraw a damaged copy from the durable tier, and set the commit aside if no tier holds another copy."""
        replicas.set_aside(self.folder, commit, {DURABLE: reason})

    def let_checkpoints_go(self, by: str, why: str) -> None:
        """Record that the retention may remove all checkpoints that nothing refers to."""
        codec.create_only(self.folder / files.LET_GO, CheckpointsLetGo(by, why, time.time()), LET_GO_FORMAT)

    def keep_checkpoints(self) -> None:
        """Undo `let_checkpoints_go`: the rules of the recipe apply again."""
        (self.folder / files.LET_GO).unlink(missing_ok=True)

    def note_away(self, seconds: float, by: str) -> None:
        """Write to the ledger that no control plane watched this training for the last `seconds`."""
        claim = self.newest_claim()
        self._note(by, "away", claim.token.incarnation if claim else 0, seconds=seconds)

    def mark_submitted(self, incarnation: int, by: str = "control") -> None:
        """Record that the job of an incarnation was submitted."""
        if codec.create_only(self.folder / files.JOBS / facts.job_record(incarnation), SubmittedJob(time.time())):
            with contextlib.suppress(OSError):  # the record itself is enough
                self._note(by, "submitted", incarnation)

    def mark_missing(self, incarnation: int, now: float) -> None:
        """Record when the job was first missing."""
        codec.create_only(self.folder / files.JOBS / facts.missing_record(incarnation), MissingJob(now))

    def unmark_missing(self, incarnation: int) -> None:
        """Remove the record of a missing job, since the job exists."""
        (self.folder / files.JOBS / facts.missing_record(incarnation)).unlink(missing_ok=True)

    def mark_reported(self, mark: str) -> None:
        """Record that the control plane has shown something, such as an exit or a checkpoint."""
        atomic.create_only(self.folder / files.REPORTED / mark, b"")


class WorkQueue(enum.StrEnum):
    """A queue of pending work, one for each sensor; its value is the name of its folder on disk."""

    RUN = "run"
    """The job watch brings the training to its end."""
    CHECKPOINTS = "checkpoints"
    """Checkpoint arrivals show its checkpoints and have them evaluated."""
    PROMOTION = "promotion"
    """Promotions judge its result once it has succeeded."""
    INCIDENTS = "incidents"
    """The incidents sensor shows its incidents, their cost, and where the training went on."""
    NOTICES = "notices"
    """Notifications tell people what happens to it."""
    TRACKING = "tracking"
    """Metrics shipping delivers its metrics to MLflow."""


@dataclass(frozen=True)
class PendingWork:
    """The pending work for one training in one queue, as it was when it was read."""

    training: str
    files: tuple[Path, ...]

    @property
    def desired_generation(self) -> int:
        """The newest generation of the desired state for which there is work."""
        return max((_parts(path.name)[1] for path in self.files), default=0)

    def close(self, desired_generation: int) -> None:
        """Mark the work as done up to this generation. Work for a later one, or added meanwhile, stays."""
        for path in self.files:
            if _parts(path.name)[1] <= desired_generation:
                path.unlink(missing_ok=True)


class Trainings:
    """All trainings below one root, and the pending work for them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def propose(
        self, specification: Specification, run_policy: RunPolicy, id: str | None = None, by: str = "proposed again"
    ) -> TrainingStore:
        """Create the training's folder under its own id (a trial passes `id`).

        Proposing again only replaces a run policy that differs.
        """
        store = self.store(id or specification.id)
        store.change_run_policy(run_policy, by)
        records.create(specification, store.folder / files.SPECIFICATION)  # last, as it marks a complete proposal
        return store

    def store(self, id: str) -> TrainingStore:
        """The store of one training. Raises ValueError for an id that would leave the root."""
        if not id or id.startswith(".") or "/" in id:
            raise ValueError(f"training id: found {id!r}, expected letters, digits, '-' and '.'")
        return TrainingStore(self.root / id)

    def ids(self) -> list[str]:
        """The ids of all trainings ever proposed. Raises fence.Unreadable if they cannot be listed.

        A training with an unreadable folder is included, so that its reader reports the error.
        """
        names = listing.fitting(self.root, files.entries(self.root) or (), lambda name: ID.fullmatch(name) is not None)
        return [name for name in names if _proposed(self.root / name)]

    def stores(self) -> Iterator[TrainingStore]:
        """All trainings ever proposed, by id."""
        return map(self.store, self.ids())

    def start(self, store: TrainingStore, by: str, why: str, queues: tuple[WorkQueue, ...] = tuple(WorkQueue)) -> None:
        """Record that the training should run and keep its checkpoints, and add it to these work queues.

        The queues come first, for the coming generation, so that no work is ever lost. Raises ValueError, before
        anything is written, if the training was not proposed completely.
        """
        store.specification()
        store.run_policy()
        store.keep_checkpoints()
        desired = store.desired()
        desired_generation = store.desired_generation()
        planned = desired_generation if desired is not None and desired.want == "run" else desired_generation + 1
        for queue in queues:
            enqueue(self._folder(queue), store.id, planned)
        begun = store.want("run", by, why)
        if begun != planned:  # another process started or stopped the training at the same time
            for queue in queues:
                enqueue(self._folder(queue), store.id, begun)

    def open(self, id: str, queue: WorkQueue) -> None:
        """Add a training to a work queue in its current generation, even if the work was done before."""
        enqueue(self._folder(queue), id, self.store(id).desired_generation())

    def pending(self, queue: WorkQueue) -> list[str]:
        """The ids of the trainings in a work queue. Raises OSError if it cannot be read."""
        return [work.training for work in self.pending_work(queue)]

    def pending_work(self, queue: WorkQueue) -> list[PendingWork]:
        """The pending work in a queue, by id: all that its sensor visits. Raises OSError if it cannot be read."""
        return pending_work_in(self._folder(queue))

    def with_pending_work(self) -> set[str]:
        """The ids of the trainings in any work queue. Raises OSError if one cannot be read."""
        return {id for queue in WorkQueue for id in self.pending(queue)}

    def is_open(self, id: str, queue: WorkQueue) -> bool:
        """Whether a training is in this work queue."""
        return id in self.pending(queue)

    def has_pending_work(self, id: str) -> bool:
        """Whether a training is in any work queue."""
        return id in self.with_pending_work()

    def close(self, id: str, queue: WorkQueue) -> None:
        """Remove a training from a work queue, up to its current generation."""
        for work in self.pending_work(queue):
            if work.training == id:
                work.close(self.store(id).desired_generation())

    def _folder(self, queue: WorkQueue) -> Path:
        return self.root / ".open" / queue


def enqueue(folder: Path, training: str, desired_generation: int) -> None:
    """Add a training to the work queue in this folder. Raises OSError."""
    atomic.create_only(folder / f"{training}@{desired_generation:06d}.{uuid.uuid4().hex[:12]}", b"")


def pending_work_in(folder: Path) -> list[PendingWork]:
    """The pending work in the queue of this folder, by training. Raises OSError if it cannot be read."""
    paths_by_training: dict[str, list[Path]] = {}
    names = files.entries(folder) or ()
    for name in listing.fitting(folder, names, lambda name: ID.fullmatch(_parts(name)[0]) is not None):
        paths_by_training.setdefault(_parts(name)[0], []).append(folder / name)
    return [PendingWork(training, tuple(paths)) for training, paths in sorted(paths_by_training.items())]


def all_trainings(tiers: "Tiers") -> Trainings:
    """All trainings of this platform."""
    return Trainings(tiers.durable_path / "trainings")


def all_trials(tiers: "Tiers") -> dict[str, Trainings]:
    """The trials of each sweep, by the sweep's id. Raises Unreadable if the sweeps cannot be listed, and OSError."""
    return trials_below(tiers.durable_path)


def trials_below(durable: Path) -> dict[str, Trainings]:
    """As `all_trials`, from the folder of the durable tier."""
    sweeps = durable / "sweeps"
    names = listing.fitting(sweeps, files.entries(sweeps) or (), lambda name: ID.fullmatch(name) is not None)
    ids = [id for id in names if listing.is_folder(sweeps / id)]
    return {id: Trainings(sweeps / id / TRIALS) for id in ids if TRIALS in listing.names(sweeps / id)}


def _proposed(folder: Path) -> bool:
    """Whether a folder has a specification or cannot be read."""
    try:
        (folder / files.SPECIFICATION).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _parts(name: str) -> tuple[str, int]:
    """The training and the generation of an entry; 0 for an entry of the older format without a generation."""
    training, mark, rest = name.rpartition("@")
    desired_generation = rest.partition(".")[0]
    if mark and desired_generation.isdecimal():
        return training, int(desired_generation)
    return name, 0
