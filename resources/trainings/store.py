"""The training store: the one door to a training's durable folder. Assets and sensors know no paths.

    <root>/<id>/specification.json   what is trained; create-only, its hash is in the id
                terms.json           where it may run and how it recovers; may change
                desired/<n>.json     what should be, by whom and why; the last one holds
                jobs/<incarnation>.json  that the job of an incarnation was submitted
                claims/ commits/ set-aside/ pruned/ exits/ ledger/ heartbeats/   the trainer's side
                replicas/ withdrawn/ which tiers hold its checkpoints
                let-go.json      that no checkpoint need be kept for itself
                starts/ stops/       what a script's ranks agree on
                incidents/           what interrupted the steps, a record each, with the evidence of the nodes
                diagnoses/           which nodes are asked what their ranks do
                tails/               the end of what the nodes of a failed incarnation wrote
                evaluations/         the scores of its checkpoints
                tracking.json        how far its metrics have been delivered
                reported/            what the control plane has already shown
    <root>/.open/<duty>/<id>@<life>.<opening>  that a duty of the control plane is open towards a training

A duty is work that the control plane has pending for a training: from one record of what is desired to the next. Each
opening is a file, and closing removes the openings that were looked up, up to the life that was judged. Whatever was
opened for a later life, or meanwhile, stays open. A sensor visits only what is open for it.
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
"""What is an id of a training, a trial or a sweep."""
TRIALS = "trials"


class TrainingStore:
    """The folder of one training: what decides reads the facts; a caller that needs one part reads that part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def read(self) -> TrainingFacts:
        """The state of the training now."""
        return facts.read(self.folder)

    def specification(self) -> Specification:
        """What is trained. Raises ValueError for a training that was never proposed."""
        return records.read(Specification, self.folder / files.SPECIFICATION)

    def run_policy(self) -> RunPolicy:
        """Where it may run. Raises ValueError for a training that was never proposed."""
        return records.read(RunPolicy, self.folder / files.RUN_POLICY)

    def desired(self) -> Desired | None:
        """What should be now; None before the training was first wanted."""
        return facts.read_desired(self.folder)

    def newest_claim(self) -> fence.Claim | None:
        return fence.newest_claim(self.folder)

    def exit(self) -> fence.Exit | None:
        """How the newest incarnation ended, None while it has not."""
        claim = self.newest_claim()
        return fence.read_exit(self.folder, claim.token.incarnation) if claim else None

    def commits(self) -> list[fence.Commit]:
        """The valid checkpoints, by step."""
        return fence.commits(self.folder)

    def events(self) -> list[journal.JournalEvent]:
        """The ledger, by time."""
        return ledger.read(self.folder)

    def desired_generation(self) -> int:
        """The number of the record of what should be, 0 before the first."""
        return facts.newest_desired(self.folder)

    def want(self, want: str, by: str, why: str, by_platform: bool = False) -> int:
        """Record what should be, "run" or "stop"; a record of what is desired already changes nothing.

        by_platform: whether nobody asked for it, as when a training is given up, whoever's process does so. Returns the
        number of the record that says so.
        """
        while True:
            number = facts.newest_desired(self.folder)
            desired = facts.desired_of(self.folder, number)
            if desired is not None and desired.want == want:
                return number
            path = files.numbered(self.folder, files.DESIRED, number + 1)
            newest = self._newest_incarnation()
            if records.create(Desired(want, by, why, time.time(), newest, by_platform), path):
                with contextlib.suppress(OSError):  # the record stands, and says the same
                    self._note(by, "wanted", newest or 0, want=want, why=why)
                return number + 1

    def _newest_incarnation(self) -> int | None:
        """0 before the first; None where the claims cannot be read, which must keep nobody from wanting a stop."""
        with contextlib.suppress(fence.Unreadable):
            claim = self.newest_claim()
            return claim.token.incarnation if claim else 0
        return None

    def claim(
        self, incarnation: int, nodes: tuple[str, ...], cause: str, by: str, ended: fence.Exit | None = None
    ) -> bool:
        """Claim an incarnation, sealing the one before, which has ended as `ended` says unless it has an exit.

        False when another process has claimed it, or when the training has succeeded.
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
        """Record an incarnation's end, unless it has a record: the first one stands.

        `ended_at` is when its job ended, by its launcher's record: maybe long before that was seen.
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
        """Write into the ledger how an incarnation ended, and when its job did where that is known."""
        fields = {"outcome": ended.outcome, "kind": ended.kind, "reason": ended.reason, "step": ended.step}
        fields |= {} if ended_at is None else {"ended_at": ended_at}
        self._note(ended.by, "ended", ended.incarnation, **fields)

    def note_release(self, commit: str, reason: str, by: str) -> None:
        """Write into the ledger that a checkpoint that was set aside counts again."""
        claim = self.newest_claim()
        self._note(by, "released", claim.token.incarnation if claim else 0, commit=commit, reason=reason)

    def note_incident(self, incident: IncidentRecord) -> bool:
        """Write what interrupted the steps, also into the ledger; the first record of an incident stands."""
        if not incidents.note(self.folder, incident):
            return False
        fields = {"id": incident.id, "kind": incident.kind, "cause": incident.reason, "nodes": list(incident.nodes)}
        self._note(incident.by, "incident", fence.Token.parse(incident.token).incarnation, **fields)
        return True

    def note_growth(self, incarnation: int, cause: str, nodes: tuple[str, ...], by: str) -> None:
        """Write into the ledger that an incarnation is started again on more nodes, and which ones are new."""
        self._note(by, "grown", incarnation, cause=cause, nodes=list(nodes))

    def _note(self, by: str, event: str, incarnation: int, **fields: Any) -> None:
        """Write an event of the control plane into the ledger, into the writer's own segment."""
        writer = re.sub(r"[^A-Za-z0-9]+", "-", by)
        ledger.note(self.folder, fence.Token(incarnation), writer, event, by=by, **fields)

    def change_run_policy(self, run_policy: RunPolicy, by: str, source: str = "") -> PolicyChanges:
        """Replace the run policy where it differs, and write into the ledger what changed, and who changed it and why.

        The origin stays, and so does the place of the initial weights unless `run_policy` has another. Where there is
        none yet, or it is damaged, this is the first. Raises OtherFormat for one of another version.
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
        if changed := policy_changes(stored, merged):
            records.replace(dataclasses.replace(merged, edition=stored.edition + 1), path)
            if claim := self.newest_claim():
                pairs = {name: list(pair) for name, pair in changed.items()}
                self._note(by, "terms_changed", claim.token.incarnation, changed=pairs, source=source)
        return changed

    def set_aside(self, commit: fence.Commit, reason: str) -> None:
        """Withdraw a damaged copy from the durable tier, and set the commit aside when no tier holds another copy."""
        replicas.set_aside(self.folder, commit, {DURABLE: reason})

    def let_checkpoints_go(self, by: str, why: str) -> None:
        """Record that none of its checkpoints need be kept for itself; retention removes them, if nothing refers to
        them."""
        codec.create_only(self.folder / files.LET_GO, CheckpointsLetGo(by, why, time.time()), LET_GO_FORMAT)

    def keep_checkpoints(self) -> None:
        """Take that record back: the rules of its recipe say which checkpoints are kept."""
        (self.folder / files.LET_GO).unlink(missing_ok=True)

    def note_away(self, seconds: float, by: str) -> None:
        """Write into the ledger that for so many seconds until now nothing looked after this training."""
        claim = self.newest_claim()
        self._note(by, "away", claim.token.incarnation if claim else 0, seconds=seconds)

    def mark_submitted(self, incarnation: int, by: str = "control") -> None:
        """Record that the job of an incarnation was submitted."""
        if codec.create_only(self.folder / files.JOBS / facts.job_record(incarnation), SubmittedJob(time.time())):
            with contextlib.suppress(OSError):  # the record stands, and says the same
                self._note(by, "submitted", incarnation)

    def mark_missing(self, incarnation: int, now: float) -> None:
        """Record when the job was first seen missing."""
        codec.create_only(self.folder / files.JOBS / facts.missing_record(incarnation), MissingJob(now))

    def unmark_missing(self, incarnation: int) -> None:
        """The job is there after all."""
        (self.folder / files.JOBS / facts.missing_record(incarnation)).unlink(missing_ok=True)

    def mark_reported(self, mark: str) -> None:
        """Record that the control plane has shown this (an exit, a checkpoint)."""
        atomic.create_only(self.folder / files.REPORTED / mark, b"")


class WorkQueue(enum.StrEnum):
    """One duty; its value is the name of its folder on disk."""

    RUN = "run"
    """Bring the training to its end: the job watch."""
    CHECKPOINTS = "checkpoints"
    """Show its checkpoints and have them evaluated: checkpoint arrivals."""
    PROMOTION = "promotion"
    """Judge its result once it has succeeded: promotions."""
    INCIDENTS = "incidents"
    """Show what interrupted its steps, what that cost, and where it went on: incidents."""
    NOTICES = "notices"
    """Tell people what happens to it: notifications."""
    TRACKING = "tracking"
    """Deliver its metrics to MLflow: metrics shipping."""


@dataclass(frozen=True)
class PendingWork:
    """A duty that is open towards one training, as it was when it was looked up."""

    training: str
    files: tuple[Path, ...]

    @property
    def desired_generation(self) -> int:
        """The newest life for which it is open."""
        return max((_parts(path.name)[1] for path in self.files), default=0)

    def close(self, desired_generation: int) -> None:
        """The duty is done for this life. What was opened for a later one, or after the look-up, stays open."""
        for path in self.files:
            if _parts(path.name)[1] <= desired_generation:
                path.unlink(missing_ok=True)


class Trainings:
    """All trainings under one root, and the duties that are open towards them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def propose(
        self, specification: Specification, run_policy: RunPolicy, id: str | None = None, by: str = "proposed again"
    ) -> TrainingStore:
        """Make the training known under its own id (a trial: under the given one).

        Proposing again changes its terms where they differ, and nothing else.
        """
        store = self.store(id or specification.id)
        store.change_run_policy(run_policy, by)
        records.create(specification, store.folder / files.SPECIFICATION)  # last: what has it is proposed whole
        return store

    def store(self, id: str) -> TrainingStore:
        """The folder of one training. Raises ValueError for an id that would leave the root."""
        if not id or id.startswith(".") or "/" in id:
            raise ValueError(f"training id: found {id!r}, expected letters, digits, '-' and '.'")
        return TrainingStore(self.root / id)

    def ids(self) -> list[str]:
        """The ids of all trainings ever proposed. Raises fence.Unreadable when they cannot be listed.

        A training whose own folder cannot be read is one of them: who visits it learns what is wrong with it.
        """
        names = listing.fitting(self.root, files.entries(self.root) or (), lambda name: ID.fullmatch(name) is not None)
        return [name for name in names if _proposed(self.root / name)]

    def stores(self) -> Iterator[TrainingStore]:
        """All trainings ever proposed, by id."""
        return map(self.store, self.ids())

    def start(self, store: TrainingStore, by: str, why: str, queues: tuple[WorkQueue, ...] = tuple(WorkQueue)) -> None:
        """Record that the training should run, with its checkpoints kept, and open these duties towards it.

        The duties are opened first, so that none is ever lost: they are for the life that begins. Raises ValueError,
        before anything is opened, for a training that was not proposed, or only half.
        """
        store.specification(), store.run_policy()
        store.keep_checkpoints()
        desired = store.desired()
        desired_generation = store.desired_generation()
        planned = desired_generation if desired is not None and desired.want == "run" else desired_generation + 1
        for queue in queues:
            enqueue(self._folder(queue), store.id, planned)
        begun = store.want("run", by, why)
        for queue in queues if begun != planned else ():  # somebody else wanted it, or stopped it, at the same moment
            enqueue(self._folder(queue), store.id, begun)

    def open(self, id: str, queue: WorkQueue) -> None:
        """Have a sensor look after this duty towards a training in its present life, again if it was done."""
        enqueue(self._folder(queue), id, self.store(id).desired_generation())

    def pending(self, queue: WorkQueue) -> list[str]:
        """The ids of the trainings with this duty open. Raises OSError where that cannot be read."""
        return [work.training for work in self.pending_work(queue)]

    def pending_work(self, queue: WorkQueue) -> list[PendingWork]:
        """What is open of this duty, by id: all that a sensor visits. Raises OSError where that cannot be read."""
        return pending_work_in(self._folder(queue))

    def with_pending_work(self) -> set[str]:
        """The ids of the trainings towards which any duty is open. Raises OSError where that cannot be read."""
        return {id for queue in WorkQueue for id in self.pending(queue)}

    def is_open(self, id: str, queue: WorkQueue) -> bool:
        """Whether this duty towards a training is open."""
        return id in self.pending(queue)

    def has_pending_work(self, id: str) -> bool:
        """Whether any duty towards a training is open."""
        return id in self.with_pending_work()

    def close(self, id: str, queue: WorkQueue) -> None:
        """The duty is done, whatever it was opened for."""
        for work in self.pending_work(queue):
            if work.training == id:
                work.close(self.store(id).desired_generation())

    def _folder(self, queue: WorkQueue) -> Path:
        return self.root / ".open" / queue


def enqueue(folder: Path, training: str, desired_generation: int) -> None:
    """Open the duty of this folder towards a training. Raises OSError."""
    atomic.create_only(folder / f"{training}@{desired_generation:06d}.{uuid.uuid4().hex[:12]}", b"")


def pending_work_in(folder: Path) -> list[PendingWork]:
    """The duties that are open, by training. Raises OSError where that cannot be read."""
    paths_by_training: dict[str, list[Path]] = {}
    names = files.entries(folder) or ()
    for name in listing.fitting(folder, names, lambda name: ID.fullmatch(_parts(name)[0]) is not None):
        paths_by_training.setdefault(_parts(name)[0], []).append(folder / name)
    return [PendingWork(training, tuple(paths)) for training, paths in sorted(paths_by_training.items())]


def all_trainings(tiers: "Tiers") -> Trainings:
    """All trainings of this platform."""
    return Trainings(tiers.durable_path / "trainings")


def all_trials(tiers: "Tiers") -> dict[str, Trainings]:
    """The trials of each sweep, by the sweep's id. Raises Unreadable when the sweeps cannot be listed, and OSError."""
    return trials_below(tiers.durable_path)


def trials_below(durable: Path) -> dict[str, Trainings]:
    """The same from the durable tier's folder."""
    sweeps = durable / "sweeps"
    names = listing.fitting(sweeps, files.entries(sweeps) or (), lambda name: ID.fullmatch(name) is not None)
    ids = [id for id in names if listing.is_folder(sweeps / id)]
    return {id: Trainings(sweeps / id / TRIALS) for id in ids if TRIALS in listing.names(sweeps / id)}


def _proposed(folder: Path) -> bool:
    """Whether there is a specification in a folder, or the folder cannot be read."""
    try:
        (folder / files.SPECIFICATION).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _parts(name: str) -> tuple[str, int]:
    """The training and the life; a file of the format before has no life, and counts as opened before the first."""
    training, mark, rest = name.rpartition("@")
    desired_generation = rest.partition(".")[0]
    return (training, int(desired_generation)) if mark and desired_generation.isdecimal() else (name, 0)
