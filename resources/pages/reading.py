"""Reading for training pages: the data of a training's page, read incrementally.

The ledger's steps and the status are read each time. Whatever changes rarely or costs more (the account, incidents, the
comparison with the champion's configuration) is read at most once in `SLOW_SECONDS`. Read-only, since the process that
serves pages mounts the durable tier read-only.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipway.resources import links
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.mlflow.pages import Pages
from slipway.resources.mlflow.registry import TRAINING_TAG
from slipway.resources.pages import measured
from slipway.resources.promotions import promotion
from slipway.resources.trainings import accounts, incident_reports, metric_series, naming, updates
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.metric_series import CurveFold
from slipway.resources.trainings.status import TrainingStatus, status_of, wait_reason
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.resources.trainings.watch import ProgressWatch, Sight
from slipway.trainer.base import field_changes
from slipway.trainer.record import files
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.heartbeat import Beat, RankPlace
from slipway.trainer.record.phases import TRAINING

SLOW_SECONDS = 10.0
SHARE = 0.05
"""The maximum share of time for reading what changes rarely."""
NO_PAGES = Pages()
NEWEST = 20
"""The number of listed checkpoints."""
MOST_HELD = 64
"""The number of trainings in the cache; each takes some hundred KB."""


@dataclass(frozen=True)
class IncidentLine:
    """An incident as a row of a table."""

    at: float
    what: str
    cost: str
    done: str
    state: str
    path: str
    """Its page in Dagster."""


@dataclass(frozen=True)
class RareParts:
    """The parts of a page that change rarely."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """The seconds by use, with the uses in words."""
    incidents: tuple[IncidentLine, ...] = ()
    checkpoints: tuple[tuple[int, float, str, str], ...] = ()
    """The step, the time, the tiers and the score of each checkpoint, the newest first."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    champion: Mapping[str, str] = field(default_factory=dict)
    """The configuration of the champion's training; empty if there is none, or if it is this training."""
    champion_name: str = ""
    changes: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """The parts that could not be read, and why."""
    verdicts: tuple[str, ...] = ()
    """The gate's verdicts on its checkpoints, the newest first."""


@dataclass(frozen=True)
class TrainingView:
    """One training as its page shows it."""

    id: str
    recipe: str
    name: str
    """Its name for people."""
    snapshot: str
    folder: Path
    at: float
    """When it was read, in seconds since the epoch."""
    status: TrainingStatus
    fold: CurveFold
    rare: RareParts
    mlflow_run: str = ""
    """The id of its run in MLflow; empty before the first delivery."""
    mlflow_page: str = ""
    """The page of that run; empty if MLflow's address is unknown."""
    mlflow_others: str = ""
    """The page of all runs of its recipe; empty if MLflow's address is unknown."""
    sweep: str = ""
    """The sweep of which it is a trial or the full training, or ""."""


@dataclass
class _KnownTraining:
    """The cached state of one training."""

    fold: CurveFold
    lock: threading.Lock = field(default_factory=threading.Lock)
    rare: RareParts = RareParts()
    rare_until: float = 0.0
    step: float | None = None
    """The last step at the last reading."""
    new: int = 0
    """The bytes of the ledger that were read since the folds were stored."""


class TrainingReader:
    """Reads trainings for their pages. Thread-safe."""

    def __init__(self, durable: Path, clock: Callable[[], float] = time.monotonic, pages: Pages = NO_PAGES) -> None:
        """`pages`: the address of MLflow, for links."""
        self.durable = durable
        self._clock = clock
        self._pages = pages
        self._known: dict[Path, _KnownTraining] = {}
        self._watch = ProgressWatch(clock)
        self._lock = threading.Lock()

    def view(self, store: TrainingStore) -> TrainingView:
        """The current state of a training. Raises ValueError if it was never proposed, and Unreadable."""
        facts = store.read()
        known = self._of(store.folder)
        with known.lock:
            status = self._status(facts, known)
            if self._clock() >= known.rare_until or not status.is_live:
                begun = self._clock()
                known.rare = _rare(self.durable, store, facts)
                known.rare_until = self._clock() + max(SLOW_SECONDS, (self._clock() - begun) / SHARE)
            shipped = _shipped(store.folder)
            return TrainingView(
                id=store.id,
                recipe=facts.specification.recipe,
                name=naming.of(facts),
                snapshot=facts.specification.snapshot,
                folder=store.folder,
                at=time.time(),
                status=status,
                fold=known.fold,
                rare=known.rare,
                mlflow_run=shipped.run,
                mlflow_page=self._pages.of_run(shipped.run),
                mlflow_others=self._pages.of_experiment(shipped.experiment),
                sweep=str(facts.run_policy.origin.get("sweep", "")),
            )

    def status(self, facts: TrainingFacts) -> TrainingStatus:
        """The status of a training. The ledger is read only if the training runs. Raises Unreadable."""
        if not facts.running:
            return status_of(facts, CurveFold(), (), wait_reason(facts))
        known = self._of(facts.folder)
        with known.lock:
            return self._status(facts, known)

    def status_and_curves(self, facts: TrainingFacts) -> tuple[TrainingStatus, CurveFold]:
        """The status and the curves of a training. Stores what was read for the next reader, so only a process that can
        write to the durable tier may call it. Raises Unreadable, and OSError if it cannot write.
        """
        known = self._of(facts.folder)
        with known.lock:
            status = self._status(facts, known)
            if known.new > metric_series.WORTH_KEEPING or (known.new and not status.is_live):
                metric_series.keep(facts.folder, known.fold)
                known.new = 0
            return status, known.fold

    def _status(self, facts: TrainingFacts, known: _KnownTraining) -> TrainingStatus:
        """Read what is new in the ledger. The heartbeats, one file per rank, are read only if there is no new step."""
        known.new += metric_series.read_on(facts.folder, known.fold)
        step = known.fold.last.get("step")
        before = known.step
        known.step = step
        sights: list[Sight] = []
        if facts.running and facts.claim:
            token = facts.claim.token
            if None not in (step, before) and step != before and known.fold.started == str(token):
                sights = [Sight(0, RankPlace(TRAINING.name, int(step or 0)), 0.0)]
            else:
                sights = aged(self._watch.look(facts.folder, token, facts.beats), facts.beats)
        return status_of(facts, known.fold, sights, wait_reason(facts))

    def _of(self, folder: Path) -> _KnownTraining:
        with self._lock:
            known = self._known.pop(folder, None)
            if known is None:
                known = _KnownTraining(metric_series.stored_curves(folder))
            self._known[folder] = known
            while len(self._known) > MOST_HELD:
                del self._known[next(iter(self._known))]
            return known


def aged(sights: Sequence[Sight], beats: Iterable[Beat]) -> list[Sight]:
    """The sights, each at least as old as its rank itself reports: the difference of two times of its node's clock."""
    own = {beat.rank: beat.at - beat.progress_at for beat in beats}
    return [sight if sight.rank is None else replace(sight, age=max(sight.age, own[sight.rank])) for sight in sights]


def _rare(durable: Path, store: TrainingStore, facts: TrainingFacts) -> RareParts:
    """Read what changes rarely. An unreadable part is reported, and the others are still shown."""
    faults: list[str] = []

    def part(name: str, read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except (OSError, ValueError) as error:
            faults.append(f"{name}: {error}")
            return otherwise

    own = flat(facts.specification.identity_config) | flat(facts.run_policy.operation)
    best, champions = part("champion", lambda: champion_configuration(durable, facts), ("", {}))
    return RareParts(
        seconds=part("seconds", lambda: _seconds(facts.folder), {}),
        incidents=part(
            "incidents", lambda: tuple(_incident(incident) for incident in incident_reports.of(store, facts)), ()
        ),
        checkpoints=part("checkpoints", lambda: _checkpoints(facts), ()),
        verdicts=part("verdicts", lambda: measured.verdicts(durable, facts), ()),
        configuration=own,
        champion=champions,
        champion_name=best,
        changes=part("changes", lambda: _changes(facts.folder), ()),
        profiles=tuple(files.entries(facts.folder / files.PROFILES) or ()),
        faults=tuple(faults),
    )


def champion_configuration(durable: Path, facts: TrainingFacts) -> tuple[str, dict[str, str]]:
    """The name and the configuration of the champion that comes from the same recipe; ("", {}) if there is none.

    If the champion is this training itself, only the name. Read from the records of promotions, without MLflow.
    """
    recipe = facts.specification.recipe
    for model in promotion.models(durable):
        champion = promotion.champion(durable, model)
        training = champion.tags.get(TRAINING_TAG, "") if champion else ""
        if champion is None or not training or training.rpartition("-")[0] != recipe:
            continue
        name = f"{model} version {champion.version}"
        if training == facts.id:
            return f"{name}, from this training", {}
        with contextlib.suppress(ValueError, OSError):
            other = Trainings(facts.folder.parent).store(training).read()
            return f"{name} ({training})", flat(other.specification.identity_config) | flat(other.run_policy.operation)
    return "", {}


def flat(sections: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """All values of a configuration by their dotted names."""
    values: dict[str, str] = {}
    for name, value in sections.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{above}{name}.")
        else:
            values[f"{above}{name}"] = "-" if value is None else str(value)
    return values


def differences(own: Mapping[str, str], other: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The name, the own value and the other value of each difference."""
    names = [*own, *(name for name in other if name not in own)]
    rows = [(name, own.get(name, "-"), other.get(name, "-")) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _seconds(folder: Path) -> dict[str, float]:
    account = accounts.of_if_any(folder)
    if account is None:
        return {}
    spent = account[0].seconds
    return {title: spent[bucket] for bucket, title in buckets.TITLES.items() if spent.get(bucket)}


def _incident(report: incident_reports.IncidentReport) -> IncidentLine:
    done = f"{report.action}; {report.todo}" if report.todo else report.action
    path = links.incident(report.recipe, report.name)
    return IncidentLine(
        report.at, incident_reports.happened(report), incident_reports.cost(report), done, report.state, path
    )


def _checkpoints(facts: TrainingFacts) -> tuple[tuple[int, float, str, str], ...]:
    newest = list(reversed(facts.commits))[:NEWEST]
    scores = measured.scores(facts)
    return tuple(
        (commit.step, commit.at, ", ".join(facts.holders.get(commit.name, ())), scores.get(commit.name, ""))
        for commit in newest
    )


def _changes(folder: Path) -> tuple[str, ...]:
    return tuple(
        f"change {change.number} by {change.by} ({change.why}): {field_changes.changes(change.pairs)}; {change.state}"
        for change in updates.known(folder)
    )


def _shipped(folder: Path) -> ShippedLedger:
    """The record of what was delivered to MLflow; an empty one if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        return ShippedLedger.of_folder(folder)
    return ShippedLedger()
