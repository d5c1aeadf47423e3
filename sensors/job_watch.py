"""Job watch: brings every training to its end, and shows what happened to it.

Should be: what a training's store says is desired, and each end and each incident shown once.
Is: the training's facts, its job, and what Dagster's event log has.
Follows: a training whose newest run a person cancelled is stopped. The step that is due is taken. A live training gets
a run that shows it. Incidents and long waits become observations. When no run is left to show the result, the job watch
materialises it. An end counts as shown once the event log has it, so that no crash between two ticks loses one.
"""

from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterRunStatus

from slipway.assets import keys, results, subjects
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.event_log import observed, shown_partitions
from slipway.resources.launchers.protocol import JobState
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import PendingWork, Trainings, TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support import downtime, fairness, incidents, long_waits
from slipway.sensors.support.fairness import PendingStart
from slipway.sensors.support.observation_cache import SensorMemory, decisive, recalled
from slipway.sensors.support.runs import NewestRuns, request
from slipway.sensors.support.tick import Tick
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Exit

NAME = "job_watch"
BY = "job watch"


@dataclass
class Settled:
    """What the event log has of one training, as far as it was asked."""

    incidents: set[int] = field(default_factory=set)
    """The incarnations about which there is nothing to show, or nothing more."""
    long_waits: set[tuple[int, int]] = field(default_factory=set)
    begun: int = -1
    """The last of its lives in which it was seen to have begun; a life begins when it is wanted (again)."""
    looked: int = 0
    """While it has not begun: when it was looked at last, in ticks."""


@dg.sensor(
    name=NAME,
    asset_selection='key:"*/training"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="What should run, runs; results are shown once for each exit record.",
)
def job_watch(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    control = compute.control(tiers)
    memory = recalled(tick.instance, NAME, root.root)
    if memory.new:
        _enqueue_unshown(tick, root)
    pending_work = root.pending_work(WorkQueue.RUN)
    memory.keep_only(work.training for work in pending_work)
    if gone := downtime.seconds(root.root):
        tick.for_each(pending_work, _subject, lambda work: root.store(work.training).note_away(gone, BY))
    runs = NewestRuns(tick.instance, keys.TRAINING_TAG, [work.training for work in pending_work])
    due, later = _due(tick, pending_work, root, memory)
    tick.defer(later, _subject)
    tick.for_each(
        due,
        _subject,
        lambda work: _bring_to_its_end(tick, work, root.store(work.training), control, runs, memory),
    )
    return tick.result()


def _due(
    tick: Tick, pending_work: list[PendingWork], root: Trainings, memory: SensorMemory
) -> tuple[list[PendingWork], list[PendingWork]]:
    """Those that this tick looks at, and those that wait: trainings that have begun come first (`fairness`).

    One that was stopped and is wanted again has not begun in its new life: a thousand that are resumed are a thousand
    starts.
    """
    new = {}
    for work in pending_work:
        settled = memory.lasting_of(work.training, Settled())
        if settled.begun != work.desired_generation and _has_begun(root.store(work.training)):
            settled.begun = work.desired_generation
        if settled.begun != work.desired_generation:
            new[work.training] = PendingStart(work.training, tick.team(_subject(work)), settled.looked)
    turn = fairness.in_turn(list(new.values()), fairness.STARTS)
    for id in turn:
        memory.lasting_of(id, Settled()).looked = 1 + max(start.last_look for start in new.values())
    by_id = {work.training: work for work in pending_work}
    begun = [work for work in pending_work if work.training not in new]
    return begun + [by_id[id] for id in turn], [by_id[id] for id in new.keys() - set(turn)]


def _has_begun(store: TrainingStore) -> bool:
    """Whether a training has a claim since it was wanted, or one that has not ended; or need not begin.

    One whose records cannot be read counts too, so that the look tells why.
    """
    try:
        claim = store.newest_claim()
        desired = store.desired()
        if claim is None or desired is None or desired.want != "run" or desired.incarnation is None:
            return claim is not None
        return claim.token.incarnation > desired.incarnation or store.exit() is None
    except (OSError, ValueError):
        return True


def _subject(work: PendingWork) -> subjects.Subject:
    return subjects.training(work.training)


def _enqueue_unshown(tick: Tick, root: Trainings) -> None:
    """Enqueue the trainings that the event log lacks: an older event log may have been restored."""
    ids = root.ids()
    pending = set(root.pending(WorkQueue.RUN))
    recipes = {id: id.rpartition("-")[0] for id in ids}
    listed = {recipe: shown_partitions(tick.instance, keys.key(recipe, "training")) for recipe in set(recipes.values())}
    unlisted = [id for id in ids if id not in pending and id not in listed[recipes[id]]]

    def enqueue(id: str) -> None:
        if root.store(id).newest_claim() is not None:
            for queue in (WorkQueue.CHECKPOINTS, WorkQueue.RUN):
                root.open(id, queue)

    tick.for_each(unlisted, subjects.training, enqueue)


def _bring_to_its_end(
    tick: Tick,
    work: PendingWork,
    store: TrainingStore,
    control: TrainingControl,
    runs: NewestRuns,
    memory: SensorMemory,
) -> None:
    """Take the step that is due for one training, and show what is new."""
    settled = memory.lasting_of(work.training, Settled())
    if memory.is_quiet(store.id, decisive(store.folder)) and _goes_on(memory.entries.get(store.id), control, runs):
        return
    facts = _heed_cancellation(runs, store, store.read())
    action, facts = _advance(control, store, facts)
    _complete(store, facts, settled.incidents)
    waiting = control.overdue(facts)
    failures = incidents.unshown(tick, store, facts, control.launcher, settled.incidents)
    tick.events += failures
    tick.events += long_waits.unshown(tick.instance, facts, waiting, settled.long_waits) if waiting else []
    if action is Action.WAIT and facts.running and facts.begun and not failures:
        _remember(memory, facts, control, runs)
    if action is not Action.DONE:
        if facts.should_run and runs.may_request(store.id):
            _add_partition(tick.instance, facts)
            request = training_request(facts)
            tick.request(request.asset_selection or [], dict(request.tags))
    elif not failures and not _has_a_run(tick.instance, runs, store.id) and _end_is_shown(tick, facts):
        work.close(facts.desired_generation)


@dataclass(frozen=True)
class Going:
    """A training that ran at the last look, so that nothing but its end is waited for."""

    training: str
    job: str
    run: str
    """Dagster's run that shows it."""


def _has_a_run(instance: dg.DagsterInstance, runs: NewestRuns, training: str) -> bool:
    """Whether a run shows the training, or is about to. One in the queue waits until other trainings have ended."""
    newest = runs.newest(training)
    run = instance.get_run_by_id(newest.id) if newest is not None and newest.unfinished else None
    return run is not None and run.status is not DagsterRunStatus.QUEUED


def _remember(memory: SensorMemory, facts: TrainingFacts, control: TrainingControl, runs: NewestRuns) -> None:
    """Note that nothing is to be done for a training while its job runs, a run shows it, and no record changes."""
    job = job_name(facts.id, facts.incarnation)
    run = runs.newest(facts.id)
    going = Going(facts.id, job, run.id if run else "")
    if facts.should_run and facts.submitted(facts.incarnation) and _goes_on(going, control, runs):
        memory.entries[facts.id] = going
        memory.found_nothing(facts.id)


def _goes_on(going: Going | None, control: TrainingControl, runs: NewestRuns) -> bool:
    """Whether a training's job and the run that shows it go on as they did. Raises Unavailable."""
    run = runs.newest(going.training) if going else None
    if going is None or run is None or run.id != going.run or not run.unfinished:
        return False
    return control.launcher.poll(going.job).state is JobState.RUNNING


def training_request(facts: TrainingFacts) -> dg.RunRequest:
    """A run that shows this training, which is wanted already: it submits or adopts the job, and waits."""
    tags = {keys.TRAINING_TAG: facts.id, keys.SHOWS_TAG: facts.id, keys.LIFE_TAG: str(facts.desired_generation)}
    return request([keys.key(facts.specification.recipe, "training")], tags, facts.id)


def _add_partition(instance: dg.DagsterInstance, facts: TrainingFacts) -> None:
    """Give the training its partition: a training that was started from the command line has none yet."""
    keys.add_partition(instance, keys.training_partitions(facts.specification.recipe), facts.id)


def _heed_cancellation(runs: NewestRuns, store: TrainingStore, facts: TrainingFacts) -> TrainingFacts:
    """Want the training stopped when a person cancelled its newest run; the facts then.

    A run is of the life of the training that its tag says. One that was cancelled before the training was last wanted
    is of an earlier life: the order of lives says so, and no clock.
    """
    run = runs.newest(store.id) if facts.should_run else None
    if (
        run is None
        or run.status is not DagsterRunStatus.CANCELED
        or run.tags.get(keys.LIFE_TAG) != str(facts.desired_generation)
    ):
        return facts
    store.want("stop", identity.of_cancellation(run.tags, BY), f"run {run.id} was cancelled")
    return store.read()


def _complete(store: TrainingStore, facts: TrainingFacts, settled: set[int]) -> None:
    """Record the end of an incarnation that was superseded by a process that died before it did so."""
    unknown = [number + 1 for number in range(facts.incarnation - 1) if number + 1 not in settled]
    if not unknown:
        return
    ended = {int(name) for name in files.names(store.folder, files.EXITS)}
    unrecorded = [incarnation for incarnation in unknown if incarnation not in ended]
    claims = {claim.token.incarnation: claim for claim in fence.claims(store.folder)} if unrecorded else {}
    for incarnation in unrecorded:
        nodes = claims[incarnation].nodes if incarnation in claims else ()
        cause = claims[incarnation + 1].cause if incarnation + 1 in claims else "it was superseded"
        store.record_exit(incarnation, "failed", cause, BY, nodes, disrupted=True)


def _advance(control: TrainingControl, store: TrainingStore, facts: TrainingFacts) -> tuple[Action, TrainingFacts]:
    """Take the steps that are due, up to one that needs time; the last of them, and the facts after it."""
    while True:
        action = control.act(store, facts, BY)
        if action in (Action.WAIT, Action.DONE):
            return action, facts
        facts = store.read()
        if action not in (Action.CLAIM, Action.RECORD, Action.GIVE_UP):
            return action, facts


def _end_is_shown(tick: Tick, facts: TrainingFacts) -> bool:
    """Whether the event log has how the newest incarnation ended; what it lacks is shown. True where none has ended."""
    key = keys.key(facts.specification.recipe, "training")
    ended = facts.ended
    if ended is None:
        return True
    if facts.succeeded:
        with results.showing(tick.instance, facts) as due:
            if due:
                tick.instance.report_runless_asset_event(results.materialization(facts))
        return True
    is_logged = observed(tick.instance, key, facts.id, {"outcome": ended.outcome, "incarnation": ended.incarnation})
    if not is_logged:
        tick.events.append(_end(key, facts, ended))
    return is_logged


def _end(key: dg.AssetKey, facts: TrainingFacts, ended: Exit) -> dg.AssetObservation:
    """The observation of an end without success."""
    desired = facts.desired
    metadata: dict[str, str | int] = {
        "outcome": ended.outcome,
        "reason": ended.reason,
        "step": ended.step,
        "incarnation": ended.incarnation,
        **({"wanted": desired.want, "why": desired.why} if desired else {}),
    }
    return dg.AssetObservation(key, partition=facts.id, metadata=metadata)
