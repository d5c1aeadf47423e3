"""Reports of incidents: what each cost, what was done, where the training went on, and whether a person is needed.

Everything is computed from records: the incident's own, the claims, how incarnations ended, and of the ledger the end
of the generation that was interrupted and the beginning of the one that followed. Reads, and changes nothing.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from resources.trainings import incidents
from resources.trainings.facts import TrainingFacts
from resources.trainings.store import TrainingStore
from trainer.base import journal
from trainer.base.journal import JournalEvent
from trainer.diagnosis import folder
from trainer.diagnosis.suspects import Suspect, suspects
from trainer.record import causes, fence, files, heartbeat
from trainer.record.fence import Claim, Token
from trainer.record.incidents import IncidentRecord

OVER, RECOVERING, WAITING, STOPPED = "over", "recovering", "waits for a person", "stopped by a person"
END_BYTES, BEGINNING_BYTES = 64 << 10, 256 << 10
"""So much is read of a generation's segments of the ledger: the steps before an incident, and what follows it."""
STEPS = 20
"""The last steps, whose median says how long a step takes."""
MARKS = ("detected", "ranks_gone", "claimed", "ranks_ready", "met", "started", "restored", "stepped")
"""What is reached one after the other, from the last step before an incident to the first one after it."""
TODO = {
    causes.CONFIGURATION: "put right in the recipe what the cause names, and start the training again",
    causes.DIVERGED: "look at the loss and at the data of the last steps; branch from an earlier checkpoint",
    causes.OUT_OF_MEMORY: "take a smaller micro-batch or a larger layout in the recipe; `slipway plan` tells which",
    causes.STORAGE: "see that the tier that the cause names can be read and written, then `slipway resume`",
    causes.MACHINE: "have the node looked at, cordon it with `slipway nodes cordon`, then `slipway resume`",
}
OTHERWISE = "read the evidence, put right what it shows, then `slipway resume`"


@dataclass(frozen=True)
class IncidentReport:
    """One incident as people see it. Times are seconds since the epoch."""

    id: str
    training: str
    incarnation: int
    kind: str
    """The class of the cause, of `trainer.record.causes`."""
    cause: str
    at: float
    noticed_by: str
    action: str
    state: str
    """One of `OVER`, `RECOVERING`, `WAITING` and `STOPPED`."""
    step: int
    """The last step that was done."""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    survived: bool = False
    suspects: tuple[Suspect, ...] = ()
    steps_lost: int | None = None
    """Steps that are done again; None while that is not known."""
    seconds_lost: float | None = None
    """From the last step to the first new one, and the time of the steps that are done again; None as above."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The parts of it, by what each led to."""
    resumed: str = ""
    """The token under which the training went on; empty while it has not."""
    resumed_on: tuple[str, ...] = ()
    resumed_from: int | None = None
    resumed_by: str = ""
    todo: str = ""
    """What a person is to do; empty where nobody is needed."""
    evidence: tuple[str, ...] = ()
    """Files in the incident's folder."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """What of the evidence could not be had, and why, by node."""

    @property
    def name(self) -> str:
        """Of all incidents, this one: the name of its partition."""
        return f"{self.training}.{self.id}"

    @property
    def settled(self) -> bool:
        """Whether nothing about it changes by itself any more."""
        return self.state != RECOVERING


def of(store: TrainingStore, facts: TrainingFacts) -> list[IncidentReport]:
    """The incidents of a training, the first one first. Raises OSError and ValueError."""
    claims, records = fence.claims(store.folder), incidents.read_all(store, facts)
    return [report(store, facts, claims, record) for record in records]


def of_all(stores: Iterable[TrainingStore], since: float = 0.0) -> list[IncidentReport]:
    """The incidents of trainings since a moment, the latest last.

    A training whose records cannot be read has none here; its summary says so.
    """
    found: list[IncidentReport] = []
    for store in stores:
        with contextlib.suppress(ValueError, OSError):
            found += [each for each in of(store, store.read()) if each.at >= since]
    return sorted(found, key=lambda each: each.at)


def report(store: TrainingStore, facts: TrainingFacts, claims: list[Claim], record: IncidentRecord) -> IncidentReport:
    """One incident. Raises OSError."""
    token = Token.parse(record.token)
    following = min((claim for claim in claims if claim.token > token), key=lambda each: each.token, default=None)
    found = folder.manifests(store.folder, record.id)
    before = _end(store.folder, token)
    done = max([record.step, *(event["step"] for event in before)])
    after = _beginning(store.folder, following.token) if following and not record.survived else {}
    resumed_from = int(after["restored"].get("step", 0)) if "restored" in after else (0 if "stepped" in after else None)
    state = OVER if record.survived or "stepped" in after else _state(facts, following)
    lost = max(0, done - resumed_from) if resumed_from is not None and "stepped" in after else None
    seconds = {} if record.survived else _seconds(record, following, before, after, lost)
    return IncidentReport(
        id=record.id,
        training=store.id,
        incarnation=token.incarnation,
        kind=record.kind,
        cause=record.reason,
        at=record.at,
        noticed_by=record.by,
        action=record.action,
        state=state,
        step=done,
        nodes=record.nodes,
        ranks=record.ranks,
        survived=record.survived,
        suspects=tuple(suspects(found, heartbeat.read(store.folder, token))) if found else (),
        steps_lost=0 if record.survived else lost,
        seconds_lost=round(sum(seconds.values()), 3) if "stepped" in after else None,
        seconds=seconds,
        resumed=str(following.token) if following and not record.survived else "",
        resumed_on=following.nodes if following and not record.survived else (),
        resumed_from=resumed_from,
        resumed_by=following.by if following and not record.survived else "",
        todo=TODO.get(record.kind, OTHERWISE) if state == WAITING else "",
        evidence=tuple(f"{each.node}/{name}" for each in found for name in sorted(each.files)),
        lacking={f"{each.node}: {what}": why for each in found for what, why in each.lacking.items()},
    )


def _state(facts: TrainingFacts, following: Claim | None) -> str:
    """Where a training stands that has not stepped since an incident."""
    if facts.claim is not None and following is not None and following.token < facts.claim.token:
        return OVER  # what followed was interrupted itself: that is another incident
    if facts.succeeded:
        return OVER
    if facts.wanted:
        return RECOVERING if following is None or facts.ended is None else OVER
    by_person = facts.desired is not None and (
        facts.desired.by.endswith("by hand") or "was cancelled" in facts.desired.why
    )
    return STOPPED if by_person else WAITING


def _seconds(
    record: IncidentRecord,
    following: Claim | None,
    before: list[JournalEvent],
    after: Mapping[str, JournalEvent],
    lost: int | None,
) -> dict[str, float]:
    """The seconds between one mark and the next, and of the steps that are done again.

    The marks are written by several machines, whose clocks differ a little: a mark is never before the one before it.
    """
    times = {name: float(event["t"]) for name, event in after.items()}
    times.setdefault("detected", record.at)
    if following is not None:
        times.setdefault("claimed", following.at)
    at = float(before[-1]["t"]) if before else record.at
    found = {}
    for mark in MARKS:
        if mark in times:
            found[mark] = round(max(0.0, times[mark] - at), 3)
            at = max(at, times[mark])
    if lost and (each := sorted(float(event["seconds"]) for event in before[-STEPS:])):
        found["steps done again"] = round(lost * each[len(each) // 2], 3)
    return found


def _end(store: Path, token: Token) -> list[JournalEvent]:
    """The last steps under a token."""
    path = store / files.LEDGER / f"{token}.rank-0.jsonl"
    with contextlib.suppress(FileNotFoundError):
        events = journal.read(path, max(0, path.stat().st_size - END_BYTES)).events
        return [event for event in events if event["event"] == "step" and "seconds" in event]
    return []


def _beginning(store: Path, token: Token) -> dict[str, JournalEvent]:
    """The first event of each mark under a token; the first step is `stepped`."""
    found: dict[str, JournalEvent] = {}
    for name in files.entries(store / files.LEDGER) or ():
        if not name.startswith(f"{token}.") or not name.endswith(".jsonl"):
            continue
        for event in journal.read(store / files.LEDGER / name, 0, BEGINNING_BYTES).events:
            mark = "stepped" if event["event"] == "step" else str(event["event"])
            if mark in MARKS and mark != "claimed" and event["t"] < found.get(mark, {"t": float("inf")})["t"]:
                found[mark] = event
    return found
