"""Logs: the output of all ranks of all incarnations of a training, merged, each line with its time and place.

Programs write plain lines. The time of a line is the timestamp at its beginning (as in PyTorch's and most loggers'
lines), else the ledger's time of the step that it names, else the time of the line before it on its node. The rank of a
line is the rank that it names, or the only rank of its node, or unknown.

The tail of each node's output is stored beside the exit of a failed incarnation, because the job and its pods' logs are
usually gone when a person looks into the failure.
"""

import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec, journal
from slipway.trainer.record import fence, files, heartbeat

LEDGER_BYTES = 1 << 20
"""How much of the end of a generation's ledger is read for the times of steps."""
MARK_CHARACTERS = 2000
"""The length of the end of an earlier reading that is searched for in a later one."""
_RANK = re.compile(r"\[?(?:default|rank ?)(\d+)\]?[:\]]|\brank (\d+)\b")
_STEP = re.compile(r"step (\d+)/")
_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(Z|[+-]\d\d:?\d\d)?")
TAIL_BYTES = 16_384
"""The size of the stored tail of each node."""


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    at: float
    """When it was written, in seconds since the epoch; an estimate if the line has no timestamp."""
    incarnation: int
    node: str
    rank: int | None
    """The rank that wrote it; None if unknown."""
    text: str
    step: int | None = None
    """The newest completed step at that time, from the ledger; None before the first known step."""


@dataclass(frozen=True)
class LogSource:
    """The output of one node in one incarnation, and what is needed to interpret its lines."""

    incarnation: int
    node: str
    text: str
    begun: float
    """When the incarnation was claimed; no line is older."""
    steps: Mapping[int, float]
    """When each step was completed."""
    ranks: frozenset[int] = frozenset()
    """The known ranks of the node."""


def lines(source: LogSource) -> Iterator[LogLine]:
    """The lines of one source in their order. Pure."""
    done = sorted((moment, step) for step, moment in source.steps.items())
    at = source.begun
    lone = next(iter(source.ranks)) if len(source.ranks) == 1 else None
    for text in source.text.splitlines():
        at = max(at, _stamp(text) or _of_step(text, source.steps) or at)
        named = _RANK.search(text)
        rank = int(named[1] or named[2]) if named else lone
        index = bisect_right(done, at, key=lambda entry: entry[0])
        yield LogLine(at, source.incarnation, source.node, rank, text, done[index - 1][1] if index else None)


def merged(sources: Iterable[LogSource], since: float = 0.0, rank: int | None = None, grep: str = "") -> list[LogLine]:
    """The matching lines of all sources, by incarnation and time; lines of one node keep their order. Pure."""
    all_lines = [line for source in sources for line in lines(source)]
    matching = (line for line in all_lines if line.at >= since and rank in (None, line.rank) and grep in line.text)
    return sorted(matching, key=lambda line: (line.incarnation, line.at))


def sources(
    store: TrainingStore, launcher: Launcher, size: int = 65_536, incarnation: int | None = None
) -> list[LogSource]:
    """The end of each node's output in each incarnation; for a job that is gone, the stored tails.

    Raises ValueError for an unknown incarnation, and Unavailable.
    """
    facts = store.read()
    newest = facts.incarnation
    if incarnation is not None and not 1 <= incarnation <= newest:
        expected = f"one from 1 to {newest}" if newest else "none: the training has not started yet"
        raise ValueError(f"training {store.id}: found incarnation {incarnation}, expected {expected}")
    claims = fence.claims(store.folder)
    log_sources: list[LogSource] = []
    for number in range(1, newest + 1) if incarnation is None else [incarnation]:
        texts = launcher.logs(job_name(store.id, number), size) or kept_tails(store, number)
        own = [claim for claim in claims if claim.token.incarnation == number]
        begun = min((claim.at for claim in own), default=0.0)
        steps = _steps(store.folder, own)
        ranks = _ranks(facts, own)
        log_sources += [
            LogSource(number, node, text, begun, steps, frozenset(ranks.get(node, ()))) for node, text in texts.items()
        ]
    return log_sources


class LogFollower:
    """Follows logs: returns the lines that are new since the last call."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, str], str] = {}
        self._last: dict[tuple[int, str], float] = {}

    def new(self, sources: Iterable[LogSource], last: bool = False) -> list[LogSource]:
        """The sources with their new complete lines (at first, all lines). With `last`, also an incomplete line."""
        new_sources = []
        for log_source in sources:
            key = (log_source.incarnation, log_source.node)
            complete = log_source.text if last else log_source.text[: log_source.text.rfind("\n") + 1]
            fresh = after(complete, self._texts.get(key, ""))
            source = replace(log_source, text=fresh, begun=max(log_source.begun, self._last.get(key, 0.0)))
            self._texts[key] = complete
            self._last[key] = max((line.at for line in lines(source)), default=source.begun)
            new_sources.append(source)
        return new_sources


def after(text: str, before: str) -> str:
    """The part of `text`, the end of a log, that follows `before`, an earlier reading of its end. Pure."""
    mark = before[-MARK_CHARACTERS:]
    position = text.rfind(mark)
    if not mark or position < 0:
        return text
    return text[position + len(mark) :]


def keep_tails(store: TrainingStore, incarnation: int, launcher: Launcher) -> None:
    """Store the tails of an incarnation, unless they are stored already or the launcher does not answer."""
    path = _tails_path(store, incarnation)
    if path.exists():
        return
    with contextlib.suppress(Unavailable):
        texts = launcher.logs(job_name(store.id, incarnation), TAIL_BYTES)
        if texts:
            codec.create_only(path, texts)


def kept_tails(store: TrainingStore, incarnation: int) -> Mapping[str, str]:
    """The stored tails by node; empty if there are none."""
    return codec.read_if_whole(_tails_path(store, incarnation), dict[str, str]) or {}


def _stamp(text: str) -> float | None:
    """The timestamp at the beginning of a line; without a time zone it counts as UTC."""
    match = _STAMP.match(text)
    if match is None:
        return None
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(match[1].replace(",", ".") + (match[2] or ""))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _of_step(text: str, steps: Mapping[int, float]) -> float | None:
    match = _STEP.search(text)
    return steps.get(int(match[1])) if match else None


def _steps(store: Path, claims: Iterable[fence.Claim]) -> dict[int, float]:
    """When rank 0 completed each of the last steps of an incarnation."""
    known: dict[int, float] = {}
    for claim in claims:
        path = store / files.LEDGER / f"{claim.token}.rank-0.jsonl"
        with contextlib.suppress(FileNotFoundError):
            events = journal.read(path, max(0, path.stat().st_size - LEDGER_BYTES)).events
            known |= {int(event["step"]): float(event["t"]) for event in events if event["event"] == "step"}
    return known


def _ranks(facts: TrainingFacts, claims: Iterable[fence.Claim]) -> dict[str, set[int]]:
    """The ranks of each node in an incarnation, from their last heartbeats."""
    ranks_by_node: dict[str, set[int]] = {}
    for claim in claims:
        for beat in heartbeat.read(facts.folder, claim.token):
            ranks_by_node.setdefault(beat.node, set()).add(beat.rank)
    return ranks_by_node


def _tails_path(store: TrainingStore, incarnation: int) -> Path:
    return files.numbered(store.folder, files.LOG_TAILS, incarnation)
