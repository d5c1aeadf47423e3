"""Promotions: judges each training that has succeeded, once all its checkpoints are evaluated.

Should be: the candidate of every finished training is registered and checked, and is the champion if the checks pass.
Is: the training's facts, its evaluations, and what the event log has of its candidate and its champion.
Follows: a run that judges the training. A run that broke before the candidate was judged is requested again; a
candidate that failed its checks is not judged again. One that waits for a person, because the champion cannot be
compared with, is judged again once there is another champion; one that passed and is held back (by a freeze, for an
approval, for a cool-down), once nothing holds it. The trainings of a recipe are judged one after the other, each
against the champion that the one before it left. An alias in MLflow that lags behind the promotions is set.
"""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.promotion.evaluation import best
from slipway.assets.promotion.policy_checks import CHECKS
from slipway.assets.subjects import Subject
from slipway.resources.event_log import materialized, rejected
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import Promotions, held_back, is_mirrored, is_outdated, models, undecided
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import PendingWork, Trainings, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import SensorMemory, decisive, recalled
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick

NAME = "promotions"
PROMOTES_TAG = "slipway/promotes"
JUDGES_TAG = "slipway/judges"


@dataclass(frozen=True)
class EvaluatedTraining:
    """A training that has ended, all of whose checkpoints are evaluated."""

    work: PendingWork
    facts: TrainingFacts

    @property
    def recipe(self) -> str:
        return self.facts.specification.recipe


@dg.sensor(
    name=NAME,
    asset_selection='key:"*/candidate" or key:"*/champion"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Judges each finished training: candidate, checks, champion.",
)
def promotions(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    _mirror(tick, tiers, tracking)
    pending_work = root.pending_work(WorkQueue.PROMOTION)
    memory = recalled(tick.instance, NAME, root.root)
    memory.keep_only(work.training for work in pending_work)
    arriving = set(root.pending(WorkQueue.CHECKPOINTS))
    ended: list[EvaluatedTraining] = []
    tick.for_each(
        [work for work in pending_work if work.training not in arriving],
        _subject,
        lambda work: ended.extend(_look(root, memory, work)),
    )
    promoting = NewestRuns(tick.instance, PROMOTES_TAG, [training.facts.id for training in ended])
    judging = NewestRuns(tick.instance, JUDGES_TAG, {training.recipe for training in ended})
    requested: set[str] = set()
    tick.for_each(
        ended,
        lambda training: _subject(training.work),
        lambda training: _judge(tick, training, promoting, judging, requested, tiers.durable_path),
    )
    return tick.result()


def _mirror(tick: Tick, tiers: Tiers, tracking: Tracking) -> None:
    """Let MLflow's aliases follow promotions that were made while it was away."""
    durable = tiers.durable_path

    def follow(model: str) -> None:
        if not is_mirrored(durable, model):
            Promotions(Registry(tracking, durable), durable, model).mirror()

    tick.for_each(models(durable), lambda model: Subject(f"the champion of {model}"), follow)


def _subject(work: PendingWork) -> Subject:
    return subjects.training(work.training)


def _look(root: Trainings, memory: SensorMemory, work: PendingWork) -> list[EvaluatedTraining]:
    """The training, if it has ended."""
    store = root.store(work.training)
    if memory.is_quiet(store.id, decisive(store.folder)):
        return []
    facts = store.read()
    facts.specification  # noqa: B018 - a training that cannot be read is no reason to stop at the others
    if facts.ended is not None:
        return [EvaluatedTraining(work, facts)]
    memory.found_nothing(store.id)
    return []


def _judge(
    tick: Tick, ended: EvaluatedTraining, promoting: NewestRuns, judging: NewestRuns, requested: set[str], durable: Path
) -> None:
    """Have one training judged; `requested` are the recipes for which this tick has requested a run.

    Raises ValueError, with what to do, while its candidate waits for a person.
    """
    facts = ended.facts
    recipe = ended.recipe
    candidate = best(facts) if facts.succeeded else None
    waiting = undecided(durable, candidate[0].manifest) if candidate else None
    if waiting and not is_outdated(durable, waiting):
        raise ValueError(f"its candidate waits: {waiting.undecided}")
    if candidate and (why := held_back(durable, candidate[0].manifest)):
        raise ValueError(f"its candidate passed, and waits: {why}")
    is_judged = waiting is None and not promoting.unfinished(facts.id) and _is_judged(tick.instance, facts)
    if candidate is None or is_judged:
        ended.work.close(facts.desired_generation)
    elif recipe not in requested and not judging.unfinished(recipe) and promoting.may_request(facts.id):
        assets = [keys.key(recipe, "candidate"), keys.key(recipe, "champion")]
        tick.request(assets, {PROMOTES_TAG: facts.id, JUDGES_TAG: recipe}, facts.id)
        requested.add(recipe)


def _is_judged(instance: dg.DagsterInstance, facts: TrainingFacts) -> bool:
    """Whether its candidate has become the champion or failed its checks: a run may break anywhere before."""
    recipe = facts.specification.recipe
    candidate = keys.key(recipe, "candidate")
    return materialized(instance, keys.key(recipe, "champion"), facts.id) or rejected(
        instance, candidate, CHECKS, facts.id
    )
