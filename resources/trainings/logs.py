"""Logs: what all ranks of all incarnations of a training wrote, in one place, each line with when and where.

Programs write plain lines, so a line's time is what it says itself (PyTorch's and most loggers' lines begin with one),
else that of the step it names by the ledger, else that of the line before it on its node. Its rank is the one that it
names, or the only one of its node. What neither says stays unknown.

The end of what each node of a failed incarnation wrote is kept beside its exit, as a tail: when a person looks into a
failure, the job's objects and the logs of its pods are gone.
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
"""So much of the end of a generation's ledger is read for the times of steps."""
MARK_CHARACTERS = 2000
"""By so much of its end an earlier reading is found again in a later one."""
_RANK = re.compile(r"\[?(?:default|rank ?)(\d+)\]?[:\]]|\brank (\d+)\b")
_STEP = re.compile(r"step (\d+)/")
_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(Z|[+-]\d\d:?\d\d)?")
TAIL_BYTES = 16_384
"""So much is kept of each node."""


@dataclass(frozen=True)
class LogLine:
    """One line."""

    at: float
    """When it was written, in seconds since the epoch, as far as is known."""
    incarnation: int
    node: str
    rank: int | None
    """The rank that wrote it, None where the line does not say."""
    text: str
    step: int | None = None
    """The newest step that was done then, by the ledger; None before the first that is known."""


@dataclass(frozen=True)
class LogSource:
    """The output of one node under one incarnation, and what its lines are read with."""

    incarnation: int
    node: str
    text: str
    begun: float
    """When the incarnation was claimed: no line is older."""
    steps: Mapping[int, float]
    """When each step was done."""
    ranks: frozenset[int] = frozenset()
    """The ranks that ran there, as far as is known."""


def lines(source: LogSource) -> Iterator[LogLine]:
    """The lines of one source, in their order. Pure."""
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
    """The lines of all sources in the order of time, those of one node in their own; only what was asked for. Pure."""
    all_lines = [line for source in sources for line in lines(source)]
    matching = (line for line in all_lines if line.at >= since and rank in (None, line.rank) and grep in line.text)
    return sorted(matching, key=lambda line: (line.incarnation, line.at))


def sources(
    store: TrainingStore, launcher: Launcher, size: int = 65_536, incarnation: int | None = None
) -> list[LogSource]:
    """The end of what each node wrote under each incarnation; for a job that is gone, what was kept of it.

    Raises ValueError for an incarnation that never was, and Unavailable.
    """
    facts = store.read()
    newest = facts.incarnation
    if incarnation is not None and not 1 <= incarnation <= newest:
        expected = f"one from 1 to {newest}" if newest else "none: it has not been started yet"
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
    """What sources have written since they were last asked, in whole lines."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, str], str] = {}
        self._last: dict[tuple[int, str], float] = {}

    def new(self, sources: Iterable[LogSource], last: bool = False) -> list[LogSource]:
        """The sources with what is new of each, the first time all; the `last` time also a line that is not whole."""
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
    """What of `text`, the end of a log, was not in `before`, its end at an earlier moment. Pure."""
    mark = before[-MARK_CHARACTERS:]
    position = text.rfind(mark)
    return text if position < 0 else text[position + len(mark) :] if mark else text


def keep_tails(store: TrainingStore, incarnation: int, launcher: Launcher) -> None:
    """Keep the tails of an incarnation, unless they are kept already or the launcher cannot be asked."""
    path = _tails_path(store, incarnation)
    if path.exists():
        return
    with contextlib.suppress(Unavailable):
        if texts := launcher.logs(job_name(store.id, incarnation), TAIL_BYTES):
            codec.create_only(path, texts)


def kept_tails(store: TrainingStore, incarnation: int) -> Mapping[str, str]:
    """The tails by node; empty when none were kept."""
    return codec.read_if_whole(_tails_path(store, incarnation), dict[str, str]) or {}


def _stamp(text: str) -> float | None:
    """The time with which a line begins; one without a zone is taken as UTC."""
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
    """When each of the last steps of an incarnation was done, by rank 0."""
    known: dict[int, float] = {}
    for claim in claims:
        path = store / files.LEDGER / f"{claim.token}.rank-0.jsonl"
        with contextlib.suppress(FileNotFoundError):
            events = journal.read(path, max(0, path.stat().st_size - LEDGER_BYTES)).events
            known |= {int(event["step"]): float(event["t"]) for event in events if event["event"] == "step"}
    return known


def _ranks(facts: TrainingFacts, claims: Iterable[fence.Claim]) -> dict[str, set[int]]:
    """The ranks of each node under an incarnation, by their last heartbeats."""
    ranks_by_node: dict[str, set[int]] = {}
    for claim in claims:
        for beat in heartbeat.read(facts.folder, claim.token):
            ranks_by_node.setdefault(beat.node, set()).add(beat.rank)
    return ranks_by_node


def _tails_path(store: TrainingStore, incarnation: int) -> Path:
    return files.numbered(store.folder, files.LOG_TAILS, incarnation)
