"""The training store: the one door to a training's durable folder. Assets and sensors know no paths.

<root>/<id>/specification.json   what is trained; create-only, its hash is in the id
            terms.json           where it may run and how it recovers; may change
            desired/<n>.json     what should be, by whom and why; the last one holds
            jobs/<incarnation>.json  that the job of an incarnation was submitted
            claims/ commits/ set-aside/ pruned/ exits/ ledger/ heartbeats/   the trainer's side
            replicas/ withdrawn/ which tiers hold its checkpoints
            starts/ stops/       what a script's ranks agree on
            tails/               the end of what the nodes of a failed incarnation wrote
            evaluations/         the scores of its checkpoints
            tracking.json        how far its metrics have been delivered
            reported/            what the control plane has already shown
<root>/.open/<duty>/<id>         trainings that somebody still has to look after
"""

import dataclasses
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer import atomic, config, digest, fence, heartbeat, journal, ledger
from trainer.checkpoint import replicas
from trainer.checkpoint.interval import DURABLE
from trainer.operation import Storage

FORMAT = "slipway.training/1"
DUTIES = ("run", "checkpoints", "promotion", "tracking")
"""What the control plane owes a training: bring it to its end, show its checkpoints, judge it, log it."""


@dataclass(frozen=True)
class Specification:
    """Everything that decides what a training computes."""

    recipe: str
    numbers: Mapping[str, Any]
    """The configuration's sections, resolved; see `trainer.config.SECTIONS`, of a script `trainer.script.Settings`."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    tokenizer: str
    """Its SHA-256; empty for a snapshot of images."""
    cause: str = ""
    """Tells apart trainings of the same numbers: a schedule's tick, a replay, a person's "again"."""

    @property
    def script(self) -> Mapping[str, Any] | None:
        """The command and the code of a training whose loop is the user's, None for one of our models."""
        script: Mapping[str, Any] | None = self.numbers.get("script")
        return script

    @property
    def id(self) -> str:
        """The logical id, which outlives every run and every job of the training."""
        return f"{self.recipe}-{digest.sha256(atomic.canonical_json(dataclasses.asdict(self)))[:12]}"


@dataclass(frozen=True)
class Terms:
    """What may change without making another training of it."""

    min_nodes: int
    max_nodes: int
    ranks_per_node: int
    no_progress_seconds: float
    """Without progress for this long, an incarnation is given up."""
    fruitless_incarnations: int
    """After this many failures in a row without a new checkpoint, the training is."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where the parameters came from: a sweep and its trial, a schedule."""
    staging: str = "before"
    """Whether a node stages all shards before it trains ("before") or while it does ("streaming")."""
    init: str = ""
    """The folder of the initial weights that the specification names, empty when it names none."""
    operation: Mapping[str, Any] = field(default_factory=dict)
    """The configuration's sections that may change; see `trainer.config.OPERATION`."""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """What the recipe says about its pods; see `recipes.kubernetes`."""
    pending_seconds: float = 600.0
    """One that waits for longer than this before it runs is told of."""


@dataclass(frozen=True)
class Desired:
    """What should be: "run" or "stop"."""

    want: str
    by: str
    why: str
    at: float


class TrainingStore:
    """One training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def specification(self) -> Specification:
        """Raises ValueError when nobody has proposed this training."""
        specification: Specification = _read(Specification, self.folder / "specification.json")
        return specification

    def terms(self) -> Terms:
        terms: Terms = _read(Terms, self.folder / "terms.json")
        return terms

    def desired(self) -> Desired | None:
        """What should be now; None while nobody has wanted anything."""
        paths = sorted(self.folder.glob("desired/*.json"))
        return _read(Desired, paths[-1]) if paths else None

    @property
    def wanted(self) -> bool:
        """Whether it should run."""
        desired = self.desired()
        return desired is not None and desired.want == "run"

    @property
    def unfinished(self) -> bool:
        """Whether it should run and has not succeeded; one that failed may be started again."""
        ended = self.exit()
        return self.wanted and (ended is None or ended.outcome != "succeeded")

    def want(self, want: str, by: str, why: str) -> None:
        """Say what should be; saying again what holds changes nothing."""
        while True:
            held = self.desired()
            if held is not None and held.want == want:
                return
            number = len(list(self.folder.glob("desired/*.json"))) + 1
            if _write(Desired(want, by, why, time.time()), self.folder / "desired" / f"{number:06d}.json"):
                return

    def newest_claim(self) -> fence.Claim | None:
        return fence.newest_claim(self.folder)

    def claim(self, incarnation: int, nodes: tuple[str, ...], cause: str, by: str) -> bool:
        """Claim an incarnation, sealing the one before. False when somebody else has."""
        token = fence.Token(incarnation)
        if not fence.claim(self.folder, token, nodes=nodes, cause=cause, by=by):
            return False
        self.note(by, "claimed", incarnation, nodes=list(nodes), cause=cause)
        return True

    def commits(self, *tiers: str) -> list[fence.Commit]:
        """The valid checkpoints, by step; with `tiers`, those that one of them holds."""
        commits = fence.commits(self.folder)
        if not tiers:
            return commits
        holders = replicas.holders(self.folder, commits)
        return [commit for commit in commits if set(tiers) & set(holders[commit.name])]

    def set_aside(self, commit: fence.Commit, reason: str) -> None:
        """Take the copy on the durable tier out of what counts, and the commit with it when there is no other."""
        replicas.set_aside(self.folder, commit, DURABLE, reason)

    def storage(self) -> Storage:
        """When each tier is given a checkpoint, and which it keeps."""
        return config.storage(self.terms().operation.get("storage", {}))

    def exit(self) -> fence.Exit | None:
        """How the newest incarnation ended, None while it has not."""
        claim = self.newest_claim()
        return fence.read_exit(self.folder, claim.token.incarnation) if claim else None

    def record_exit(
        self,
        incarnation: int,
        outcome: str,
        reason: str,
        by: str,
        nodes: tuple[str, ...] = (),
        disrupted: bool = False,
    ) -> None:
        """Record an incarnation's end, unless it has a record: the first one stands."""
        commits = self.commits()
        step = commits[-1].step if commits else 0
        ended = fence.Exit(incarnation, outcome, reason, step, by, time.time(), nodes, disrupted)
        if fence.record_exit(self.folder, ended):
            self.note(by, "ended", incarnation, outcome=outcome, reason=reason, step=step)

    def failures(self) -> list[fence.Exit]:
        """How each incarnation that failed did, the first one first."""
        claim = self.newest_claim()
        exits = (fence.read_exit(self.folder, n + 1) for n in range(claim.token.incarnation if claim else 0))
        return [ended for ended in exits if ended is not None and ended.outcome == "failed"]

    def fruitless(self) -> int:
        """How many incarnations in a row, the newest first, failed without a checkpoint of their own.

        One that has not ended is passed over, and so is one that was disrupted: a lost node, an eviction or a
        pre-emption is not the training's fault. Whoever wants the training to run again starts the count anew.
        """
        claim, desired = self.newest_claim(), self.desired()
        since = desired.at if desired and desired.want == "run" else 0.0
        fruitful = {commit.token.incarnation for commit in self.commits()}
        count = 0
        for incarnation in range(claim.token.incarnation if claim else 0, 0, -1):
            ended = fence.read_exit(self.folder, incarnation)
            if incarnation not in fruitful and (ended is None or ended.disrupted):
                continue
            if incarnation in fruitful or ended is None or ended.outcome != "failed" or ended.at < since:
                break
            count += 1
        return count

    def mark_submitted(self, incarnation: int) -> None:
        record = {"at": time.time()}
        atomic.create_only(self.folder / "jobs" / f"{incarnation:06d}.json", atomic.readable_json(record))

    def submitted(self, incarnation: int) -> bool:
        return (self.folder / "jobs" / f"{incarnation:06d}.json").exists()

    def missing_for(self, incarnation: int, now: float) -> float:
        """Seconds since the job was first seen missing; this call counts as seeing it so."""
        path = self.folder / "jobs" / f"{incarnation:06d}.missing.json"
        if atomic.create_only(path, atomic.readable_json({"first_seen": now})):
            return 0.0
        return now - float(json.loads(path.read_bytes())["first_seen"])

    def seen_again(self, incarnation: int) -> None:
        """The job is there after all."""
        (self.folder / "jobs" / f"{incarnation:06d}.missing.json").unlink(missing_ok=True)

    def beats(self) -> list[heartbeat.Beat]:
        """The last heartbeat of each rank of the newest incarnation."""
        claim = self.newest_claim()
        return heartbeat.read(self.folder, claim.token) if claim else []

    def begun(self, incarnation: int) -> bool:
        """Whether its trainers have been heard of."""
        return next(self.folder.glob(f"heartbeats/{incarnation:06d}.*"), None) is not None

    def events(self) -> list[journal.Event]:
        """The ledger."""
        return ledger.read(self.folder)

    def note(self, by: str, event: str, incarnation: int, **fields: Any) -> None:
        """Write an event of the control plane about an incarnation into the ledger, into the writer's own segment."""
        writer = re.sub(r"[^A-Za-z0-9]+", "-", by)
        ledger.note(self.folder, fence.Token(incarnation), writer, event, by=by, **fields)

    def reported(self, what: str) -> bool:
        """Whether the control plane has already shown `what` (an exit, a checkpoint)."""
        return (self.folder / "reported" / what).exists()

    def reports(self, prefix: str) -> list[str]:
        """What has been shown under this prefix, without the prefix."""
        return sorted(path.name.removeprefix(prefix) for path in (self.folder / "reported").glob(f"{prefix}*"))

    def mark_reported(self, what: str) -> None:
        atomic.create_only(self.folder / "reported" / what, b"")


class Trainings:
    """All trainings under one root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def propose(self, specification: Specification, terms: Terms, id: str | None = None) -> TrainingStore:
        """Make the training known under its own id (a trial: under the given one). Proposing again is harmless."""
        store = self.store(id or specification.id)
        _write(specification, store.folder / "specification.json")
        atomic.replace(store.folder / "terms.json", _encode(terms))
        return store

    def store(self, id: str) -> TrainingStore:
        """The door to one training. Raises ValueError for an id that would leave the root."""
        if not id or id.startswith(".") or "/" in id:
            raise ValueError(f"training id: found {id!r}, expected letters, digits, '-' and '.'")
        return TrainingStore(self.root / id)

    def known(self) -> list[str]:
        """The ids of all trainings ever proposed."""
        return sorted(path.parent.name for path in self.root.glob("*/specification.json"))

    def snapshots_in_use(self) -> set[str]:
        """The snapshots of all trainings that are to run and have not succeeded, or are owed a duty."""
        stores = [self.store(id) for id in self.known()]
        return {store.specification().snapshot for store in stores if self.owed(store.id) or store.unfinished}

    def start(self, store: TrainingStore, by: str, why: str, duties: tuple[str, ...] = DUTIES) -> None:
        """Want the training to run, and owe it these duties.

        They are listed first, so that none is ever lost, and again for a sensor that saw an end in between.
        """
        self._list(store, duties)
        store.want("run", by, why)
        self._list(store, duties)

    def _list(self, store: TrainingStore, duties: tuple[str, ...]) -> None:
        for duty in duties:
            atomic.create_only(self.root / ".open" / duty / store.id, b"")

    def owe(self, id: str, duty: str) -> None:
        """Have a duty towards a training looked after again."""
        self._list(self.store(id), (duty,))

    def opened(self, duty: str) -> list[str]:
        """The trainings with this duty open; all that a sensor has to visit."""
        return sorted(path.name for path in (self.root / ".open" / duty).glob("[!.]*"))

    def owed(self, id: str) -> bool:
        """Whether any duty of the training is open."""
        return any((self.root / ".open" / duty / id).exists() for duty in DUTIES)

    def close(self, id: str, duty: str) -> None:
        """The duty is done."""
        (self.root / ".open" / duty / id).unlink(missing_ok=True)


def _encode(value: Any) -> bytes:
    return atomic.readable_json({"format": FORMAT, **dataclasses.asdict(value)})


def _write(value: Any, path: Path) -> bool:
    return atomic.create_only(path, _encode(value))


def _read(kind: Any, path: Path) -> Any:
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such training") from None
    if record.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: not of format {FORMAT}")
    return kind(**record)
