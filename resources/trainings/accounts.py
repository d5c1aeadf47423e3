"""Accounts: how each training spent its time, and what that costs, from its records.

The ledger's segments are folded one by one (`slipway.trainer.record.accounting.segments`). The file accounts.json
beside the training's records keeps the position and the result, so that only new events of a long ledger are read.
The file is only a cache; if it is damaged, outdated or missing, the ledger is read again.
Costs are rank-hours and their price, by use of time. A rank holds its GPU or processor from the start of its job's
processes, also while it repeats steps or waits for a restart. It holds none while the training waits for nodes, is
queued, or is stopped. A cost has a subject: the recipe, the sweep and trial, the team, and why the training started.
"""

import contextlib
import datetime
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipway.resources.trainings import naming, records
from slipway.resources.trainings.records import Desired, RunPolicy, SubmittedJob
from slipway.resources.trainings.store import TRIALS, TrainingStore
from slipway.trainer.base import atomic, codec, journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.base.units import HOUR
from slipway.trainer.record import fence, files, incidents, ledger
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import Account, InterruptionCost, TrainingHistory, Wish
from slipway.trainer.record.accounting.bookkeeper import account
from slipway.trainer.record.accounting.effective_time import EffectiveTime, effective_time
from slipway.trainer.record.accounting.segments import GenerationFold
from slipway.trainer.record.claims import Token
from slipway.trainer.record.incidents import IncidentRecord

ACCOUNTS_FILE = "accounts.json"
FORMAT = "slipway.accounts/1"
PIECE_BYTES = 8 << 20
"""The size of the pieces in which a segment is read."""
WORTH_KEEPING = 256 << 10
"""The number of new bytes from which the folds are stored; fewer are quickly read again."""
LEADER = "rank-0"
MARKS = ("detected", "ranks_ready", "incident", "ended", "away")
"""The events of other writers that matter for the account."""
FREE = (buckets.WAITING, buckets.QUEUE, buckets.STOPPED)
NOBODY: Mapping[str, str] = MappingProxyType({})


@dataclass
class SegmentReading:
    """The position in one segment, and the result of what was read."""

    offset: int = 0
    fold: GenerationFold = field(default_factory=GenerationFold)
    marks: list[dict[str, float | str]] = field(default_factory=list)


@dataclass
class FoldedLedger:
    """All segments of a training, by file name."""

    segments: dict[str, SegmentReading] = field(default_factory=dict)


def of(folder: Path, now: float | None = None) -> Account:
    """The account of the training in a folder. Raises ValueError if it never started, and Unreadable."""
    return account(_history(folder), time.time() if now is None else now)


def of_if_any(folder: Path, now: float | None = None) -> tuple[Account, EffectiveTime] | None:
    """The account and its effective time; None if the training never started or cannot be read."""
    with contextlib.suppress(ValueError, OSError):
        read_account = of(folder, now)
        return read_account, effective_time(read_account)
    return None


def interruption_costs(folder: Path) -> dict[str, InterruptionCost]:
    """The cost of each interruption of a training so far, by the token of the generation that it ended.

    Empty for a training that never started. Raises Unreadable.
    """
    with contextlib.suppress(ValueError):
        return {interruption.token: interruption for interruption in of(folder).interruptions}
    return {}


def folded(folder: Path) -> FoldedLedger:
    """The folds of all segments, from the stored ones and the new events. Raises Unreadable."""
    stored = _stored_folds(folder)
    ledger_folds = FoldedLedger()
    new = 0
    for path in ledger.segments(folder):
        reading = stored.segments.get(path.name, SegmentReading())
        if reading.offset > path.stat().st_size:
            reading = SegmentReading()
        before = reading.offset
        _read_on(path, reading)
        ledger_folds.segments[path.name] = reading
        new += reading.offset - before
    if new > WORTH_KEEPING:
        with contextlib.suppress(OSError):
            atomic.replace(folder / ACCOUNTS_FILE, codec.encode(ledger_folds, FORMAT), lasting=False)
    return ledger_folds


@dataclass(frozen=True)
class RankPrice:
    """The price of one rank for one hour: its GPU and its share of the node."""

    on_demand: float
    spot: float


@dataclass(frozen=True)
class Prices:
    """The general prices of a rank-hour, and the teams with their own prices."""

    currency: str
    on_demand: float
    spot: float
    teams: Mapping[str, RankPrice] = field(default_factory=dict)
    """Prices by owner."""

    def of(self, owner: str) -> RankPrice:
        """The price for an owner."""
        return self.teams.get(owner) or RankPrice(self.on_demand, self.spot)


@dataclass(frozen=True)
class CostShare:
    """The rank-hours of one day in one bucket."""

    day: datetime.date
    """The day in UTC on which the stretch of time began."""
    bucket: str
    """A name from `slipway.trainer.record.accounting.buckets`."""
    rank_hours: float


@dataclass(frozen=True)
class TrainingCost:
    """The rank-hours of a training, and their price."""

    shares: tuple[CostShare, ...]
    spot: bool
    """Whether its pods may run on spot nodes."""
    ranks: Mapping[int, int] = field(default_factory=dict)
    """The number of ranks of each incarnation."""
    owner: str = ""
    """The owner in the training's run policy, or ""."""

    @property
    def rank_hours(self) -> float:
        return sum(share.rank_hours for share in self.shares)

    def lost_to(self, interruption: InterruptionCost) -> float:
        """The rank-hours that an interruption cost."""
        seconds_lost = sum(
            seconds for bucket, seconds in interruption.lost.items() if bucket not in FREE and seconds > 0
        )
        return seconds_lost * self.ranks.get(int(interruption.token.split(".")[0]), 0) / HOUR

    def money(self, hours: float, price: RankPrice | None) -> float | None:
        """The price of `hours` rank-hours; None if no prices are set."""
        if price is None:
            return None
        return hours * (price.spot if self.spot else price.on_demand)


def cost_of(folder: Path, account: Account) -> TrainingCost:
    """The cost of the training in a folder, from its account. Raises ValueError and Unreadable."""
    run_policy = records.read(RunPolicy, folder / files.RUN_POLICY)
    claims = fence.claims(folder)
    counts = [min(len(claim.nodes), run_policy.max_nodes) * run_policy.ranks_per_node for claim in claims]
    starts = list(zip((claim.at for claim in claims), counts, strict=True))
    ranks = dict(zip((claim.token.incarnation for claim in claims), counts, strict=True))
    return TrainingCost(
        tuple(cost_shares(account, starts)), bool(run_policy.kubernetes.get("spot", False)), ranks, run_policy.owner
    )


def cost_if_any(folder: Path, now: float | None = None) -> TrainingCost | None:
    """The cost of a training; None if it never started or cannot be read."""
    known = of_if_any(folder, now)
    try:
        return cost_of(folder, known[0]) if known else None
    except (ValueError, OSError):
        return None


def cost_shares(account: Account, starts: Sequence[tuple[float, int]]) -> list[CostShare]:
    """Rank-hours by day and bucket. `starts` holds the claim time and the number of ranks of each incarnation,
    ascending."""
    times = [at for at, _ in starts]
    sums = dict[tuple[datetime.date, str], float]()
    for stretch in account.stretches:
        index = bisect_right(times, (stretch.begin + stretch.end) / 2)
        ranks = starts[index - 1][1] if index else 0
        day = datetime.datetime.fromtimestamp(stretch.begin, datetime.UTC).date()
        for bucket, seconds in stretch.seconds.items():
            if bucket not in FREE and seconds > 0 and ranks:
                sums[day, bucket] = sums.get((day, bucket), 0.0) + seconds * ranks / HOUR
    return [CostShare(day, bucket, hours) for (day, bucket), hours in sums.items()]


@dataclass(frozen=True)
class CostSubject:
    """To whom and to what the cost of a training is charged."""

    recipe: str
    sweep: str
    """The sweep of a trial; else ""."""
    trial: int | None
    team: str
    """The owner in the recipe, or ""."""
    cause: str
    """Why the training was started, as a word of `naming.kind_of_cause`."""


def cost_subject(store: TrainingStore, owners: Mapping[str, str] = NOBODY) -> CostSubject:
    """The subject of a training's cost; `owners` holds the owner of each recipe by name."""
    try:
        specification = store.specification()
        cause = naming.kind_of_cause(store.specification(), store.run_policy())
    except (ValueError, OSError):
        return CostSubject("", "", None, "", "")
    above = store.folder.parent
    sweep, _, number = store.id.rpartition(".") if above.name == TRIALS else ("", "", "")
    team = owners.get(sweep.rpartition("-")[0]) or owners.get(specification.recipe, "")
    trial = int(number) if number.isdecimal() else None
    return CostSubject(specification.recipe, sweep, trial, team, cause)


def _stored_folds(folder: Path) -> FoldedLedger:
    with contextlib.suppress(OSError, ValueError):
        return codec.read(folder / ACCOUNTS_FILE, FoldedLedger, FORMAT)
    return FoldedLedger()


def _read_on(path: Path, reading: SegmentReading) -> None:
    leads = _writer(path.name) == LEADER
    while True:
        piece = journal.read(path, reading.offset, PIECE_BYTES)
        if piece.offset == reading.offset:
            return
        reading.offset = piece.offset
        if leads:
            reading.fold.add(piece.events)
        else:
            reading.marks += [_mark(event) for event in piece.events if event["event"] in MARKS]


def _mark(event: JournalEvent) -> dict[str, float | str]:
    """The relevant fields of an event of another writer, as numbers and texts."""
    fields = {name: event[name] for name in ("event", "t", "kind", "reason", "cause", "ended_at", "seconds")
            if event.get(name) is not None}  # fmt: skip
    return {**fields, "nodes": ",".join(event.get("nodes", ()))}


def _writer(name: str) -> str:
    return name.split(".", 2)[2].removesuffix(".jsonl")


def _history(folder: Path) -> TrainingHistory:
    read = folded(folder)
    generations: dict[Token, GenerationFold] = {}
    marks: dict[Token, list[JournalEvent]] = {}
    for name, reading in read.segments.items():
        token = Token.parse(name.rsplit(".", 2)[0]) if _writer(name) == LEADER else _token(name)
        if _writer(name) == LEADER:
            generations[token] = reading.fold
        for mark in reading.marks:
            nodes = tuple(filter(None, str(mark["nodes"]).split(",")))
            marks.setdefault(token, []).append({**mark, "nodes": nodes})
    for incident in _incidents(folder):
        marks.setdefault(Token.parse(incident.token), []).append(
            {"event": "incident", "t": incident.at, **_why(incident)}
        )
    claims = fence.claims(folder)
    numbers = {token.incarnation for token in [*(claim.token for claim in claims), *generations]}
    exits = {number: fence.past_exit(folder, number) for number in numbers}
    every = [(token.incarnation, event) for token, events in marks.items() for event in events]
    return TrainingHistory(
        claims=claims,
        exits={number: exit_record for number, exit_record in exits.items() if exit_record is not None},
        generations=generations,
        wishes=_wishes(folder),
        submitted=_submitted(folder),
        ended={number: float(event["ended_at"]) for number, event in every if "ended_at" in event},
        marks=marks,
        away=sorted(
            {
                (float(event["t"]) - float(event["seconds"]), float(event["t"]))
                for _, event in every
                if event["event"] == "away"
            }
        ),
    )


def _incidents(folder: Path) -> list[IncidentRecord]:
    """The incidents that ended a generation and whose records can be read."""
    records_read = []
    for name in incidents.names(folder):
        with contextlib.suppress(ValueError, OSError):
            records_read.append(incidents.read(folder, name))
    return [incident for incident in records_read if not incident.survived]


def _why(incident: IncidentRecord) -> dict[str, Any]:
    return {"kind": incident.kind, "reason": incident.reason, "nodes": incident.nodes}


def _token(name: str) -> Token:
    return Token.parse(".".join(name.split(".")[:2]))


def _wishes(folder: Path) -> list[Wish]:
    wishes = []
    for name in files.names(folder, files.DESIRED):
        with contextlib.suppress(ValueError, OSError):
            desired = records.read(Desired, files.named(folder, files.DESIRED, name))
            wishes.append(Wish(desired.want == "run", desired.at, desired.incarnation or 0))
    return wishes


def _submitted(folder: Path) -> dict[int, float]:
    times = {}
    for name in files.names(folder, files.JOBS):
        if name.isdigit():
            with contextlib.suppress(ValueError, OSError):
                times[int(name)] = codec.read(files.named(folder, files.JOBS, name), SubmittedJob).at
    return times
