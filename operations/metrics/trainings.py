"""The facts of trainings for a scrape. What costs a scrape is what is open, not what exists.

A training is read while any duty towards it is open, once more after the last one was closed, and once when this
process first hears of it. All others keep the reading that they had.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from slipway.operations.metrics.facts import LatestCheckpoint, TrainingReading
from slipway.resources.trainings import accounts
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import LASTING
from slipway.trainer.record import incidents
from slipway.trainer.record.accounting.effective_time import EffectiveTime
from slipway.trainer.record.heartbeat import RankPlace

RankPositions = dict[int, RankPlace]


@dataclass(frozen=True)
class _Movement:
    """Where the ranks of one incarnation were, and since when by this process's clock."""

    positions: RankPositions
    since: float


class TrainingsReader:
    """Reads the trainings of one platform, scrape by scrape."""

    def __init__(self, trainings: Trainings, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` says for how long ranks stand still."""
        self._trainings = trainings
        self._clock = clock
        self._known: dict[str, TrainingReading] = {}
        self._pending: frozenset[str] = frozenset()
        self._movements: dict[str, _Movement] = {}

    def read(self) -> tuple[list[TrainingReading], int]:
        """All trainings, and how many of them were read anew. Raises OSError where they cannot be listed."""
        ids = self._trainings.ids()
        pending = frozenset(self._trainings.with_pending_work())
        self._known = {id: reading for id, reading in self._known.items() if id in set(ids)}
        anew = [id for id in ids if id in pending or id in self._pending or id not in self._known]
        for id in anew:
            self._known[id] = self._reading(self._trainings.store(id))
        self._pending = pending
        return [self._known[id] for id in ids], len(anew)

    def _reading(self, store: TrainingStore) -> TrainingReading:
        """One training; where its records cannot be read, that is its state."""
        try:
            return self._of(store)
        except (ValueError, OSError):
            return replace(self._known.get(store.id, TrainingReading(store.id, "", "")), state="unreadable")

    def _of(self, store: TrainingStore) -> TrainingReading:
        facts = store.read()
        now = time.time()
        desired = facts.desired
        claim = facts.claim
        ended = facts.ended
        commits = facts.commits
        account = accounts.of_if_any(store.folder) if desired is not None else None
        effective = account[1] if account else None
        since = claim.at if claim else desired.at if desired else 0.0
        begun = [beat.step for beat in facts.beats]
        return TrainingReading(
            id=store.id,
            recipe=facts.specification.recipe,
            state=_state(facts),
            since=ended.at if ended else since,
            should_run=facts.should_run,
            incarnation=facts.incarnation,
            step=max([commits[-1].step if commits else 0, ended.step if ended else 0, *begun]),
            steps=facts.specification.identity_config.get("run", {}).get("steps"),
            nodes=len(facts.nodes),
            still=self._still(facts) if facts.running and begun else None,
            waiting=max(0.0, now - since) if facts.unfinished and not begun else None,
            staged=sum(beat.done for beat in facts.beats if beat.phase == "staging") if facts.running else None,
            spent=account[0].seconds if account else {},
            ettr=_ettr(effective) if effective else {},
            goodput=effective.goodput if effective else None,
            mfu=effective.mfu if effective else None,
            failures=len(facts.failures),
            failures_in_a_row=facts.failures_without_checkpoint,
            given_up=ended is not None and ended.outcome == "failed" and facts.over,
            incidents=_incidents(store),
            checkpoints=Counter(tier for tiers in facts.holders.values() for tier in tiers),
            newest={tier: facts.commits_on(tier)[-1].at for tiers in facts.holders.values() for tier in tiers},
            checkpoint_step=commits[-1].step if commits else None,
            damaged=len(facts.damaged) + sum(len(replicas.damaged(store.folder, tier)) for tier in LASTING),
            latest=_latest(facts),
        )

    def _still(self, facts: TrainingFacts) -> float:
        """For how long no rank was seen to move: by this process's clock, as nodes' clocks say nothing of it."""
        now = self._clock()
        positions = {beat.rank: beat.progress for beat in facts.beats}
        before = self._movements.get(facts.id)
        if before is None or before.positions != positions:
            self._movements[facts.id] = before = _Movement(positions, now)
        return now - before.since


def _state(facts: TrainingFacts) -> str:
    if facts.running:
        return "running"
    if facts.ended is None:
        return "waiting" if facts.should_run else "offered" if facts.desired is None else "stopped"
    if facts.succeeded:
        return "succeeded"
    return "waiting" if facts.should_run and not facts.over else facts.ended.outcome


def _ettr(effective: EffectiveTime) -> dict[str, float | None]:
    return {"meta": effective.ettr_meta, "bytedance": effective.ettr_bytedance, "window": effective.ettr_window}


def _incidents(store: TrainingStore) -> dict[str, int]:
    """Incidents by class; a record that is damaged counts as unknown."""
    kinds: Counter[str] = Counter()
    for name in incidents.names(store.folder):
        try:
            kinds[incidents.read(store.folder, name).kind or "unknown"] += 1
        except (ValueError, OSError):
            kinds["unknown"] += 1
    return kinds


def _latest(facts: TrainingFacts) -> LatestCheckpoint | None:
    commits = facts.commits_on(*LASTING)
    return LatestCheckpoint(commits[-1].step, commits[-1].manifest, commits[-1].at) if commits else None
