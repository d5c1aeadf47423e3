"""Training status: shows where each training stands while it runs, and keeps its page.

Should be: the newest event of a training's partition says what its records say now, and so does the page in its folder.
Is: its records, its ledger, its ranks' heartbeats, and what Dagster's event log has last.
Follows: an observation when the state has changed, when somebody else's event is the newest, and from time to time when
figures have; the page is written beside it at a bounded share of the time. What a start waits for is asked here, and
kept for those who cannot ask. A training that has ended is shown once more, whoever noticed its end.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from slipway.assets import keys, status_observation, subjects
from slipway.resources.compute.protocol import Compute
from slipway.resources.errors import Unavailable
from slipway.resources.event_log import latest_ids, newest_observation
from slipway.resources.pages import page_keeper
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import caching, naming
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.metric_series import CurveFold
from slipway.resources.trainings.status import TrainingStatus, keep_wait
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import recalled
from slipway.sensors.support.tick import Tick

NAME = "standings"
MIN_SECONDS, MAX_SECONDS, SHARE = 15.0, 600.0, 0.02
"""Figures are shown anew after this share of the time since the training was first seen, within these bounds.

A training of a month leaves some thousand observations in the event log, of some KB each."""
FIRST_PICTURE = 10
"""The first step with pictures; the next ones come at twice the step each: the log keeps each picture twice."""
_FOLLOWED = "*"
"""Under this name, which no training has, a memory keeps which trainings were open."""


@dataclass
class ShownStatus:
    """What was shown of one training."""

    begun: float
    status: TrainingStatus | None = None
    at: float = 0.0
    event: int = 0
    """The number of the newest event that is known to be ours."""
    pending: bool = False
    """Whether the log is not known to have what was shown last."""
    picture: int = FIRST_PICTURE
    page: page_keeper.PageKeeper = field(default_factory=page_keeper.PageKeeper)


_readers: dict[Path, TrainingReader] = {}


@dg.sensor(
    name=NAME,
    asset_selection='key:"*/training"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Shows where each training stands while it runs: state in words, figures, curves, and its page.",
)
def training_status(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    control = caching.of_now(compute.control(tiers))
    memory = recalled(tick.instance, NAME, root.root)
    reader = _readers.setdefault(tiers.durable_path, TrainingReader(tiers.durable_path))
    followed = memory.lasting_of(_FOLLOWED, set[str]())
    followed |= set(root.pending(WorkQueue.RUN))
    if memory.new:
        followed |= set(page_keeper.behind(root))
    memory.keep_only([_FOLLOWED, *followed])
    newest = _newest_events(tick.instance, followed)

    def show(id: str) -> None:
        shown_status = memory.lasting_of(id, ShownStatus(time.monotonic()))
        if not _show(tick, shown_status, reader, root, root.store(id), control, newest.get(id, 0)):
            followed.discard(id)

    tick.for_each(sorted(followed), subjects.training, show)
    return tick.result()


def _newest_events(instance: dg.DagsterInstance, ids: set[str]) -> dict[str, int]:
    """The number of the newest observation of each training's partition: one query for each recipe."""
    numbers: dict[str, int] = {}
    for recipe in {id.rpartition("-")[0] for id in ids}:
        numbers |= latest_ids(instance, keys.key(recipe, "training"), dg.DagsterEventType.ASSET_OBSERVATION)
    return numbers


def _show(
    tick: Tick,
    shown_status: ShownStatus,
    reader: TrainingReader,
    root: Trainings,
    store: TrainingStore,
    control: TrainingControl,
    newest: int,
) -> bool:
    """Bring what is shown of one training in line; whether it is to be looked at again."""
    facts = store.read()
    if facts.desired is None:
        return False
    _record_wait(facts, control)
    stands, fold = reader.status_and_curves(facts)
    age = time.monotonic() - shown_status.begun
    since = time.monotonic() - shown_status.at
    if _is_foreign(tick, shown_status, facts, newest) or is_due(shown_status.status, stands, since, age):
        tick.events.append(_observation(facts, stands, fold, shown_status))
        shown_status.status = stands
        shown_status.at = time.monotonic()
        shown_status.pending = True
    shown_status.page.update(reader, store, stands.is_live)
    return root.is_open(store.id, WorkQueue.RUN) or stands.is_live or shown_status.pending


def _is_foreign(tick: Tick, shown_status: ShownStatus, facts: TrainingFacts, newest: int) -> bool:
    """Whether the newest observation says something else than what was shown last; notes it where it does not."""
    if newest <= shown_status.event:
        return False
    observation = newest_observation(tick.instance, keys.key(facts.specification.recipe, "training"), facts.id)
    if shown_status.status is None or observation.get(status_observation.STATUS) != shown_status.status.summary:
        return True
    shown_status.event = newest
    shown_status.pending = False
    return False


def _observation(
    facts: TrainingFacts, stands: TrainingStatus, fold: CurveFold, shown_status: ShownStatus
) -> dg.AssetObservation:
    pictures = bool(fold.last) and (stands.step >= shown_status.picture or not stands.is_live)
    if pictures:
        shown_status.picture = max(FIRST_PICTURE, 2 * stands.step)
    recipe = facts.specification.recipe
    name = naming.of(facts)
    return status_observation.observation(recipe, facts.id, name, stands, fold, facts.folder, pictures)


def is_due(before: TrainingStatus | None, now: TrainingStatus, since: float, age: float) -> bool:
    """Whether an observation is due: `since` seconds after the last one, `age` after the training was first seen."""
    if before is None or (before.state, before.incarnation) != (now.state, now.incarnation):
        return True
    return before.summary != now.summary and since >= min(MAX_SECONDS, max(MIN_SECONDS, SHARE * age))


def _record_wait(facts: TrainingFacts, control: TrainingControl) -> None:
    """Ask what a start waits for, where one does, and keep it."""
    if not facts.unfinished or (facts.running and facts.begun):
        return
    try:
        waiting = control.waiting(facts)
        keep_wait(facts, waiting.reason if waiting else "")
    except Unavailable as error:
        keep_wait(facts, f"the launcher or the fleet cannot be asked: {error}")
