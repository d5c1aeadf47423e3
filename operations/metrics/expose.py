"""Expose: the samples that follow from what one scrape has read. Pure."""

from collections import Counter

from slipway.operations.metrics import catalog as of
from slipway.operations.metrics.facts import STATES, DagsterReading, PlatformFacts, TrainingReading
from slipway.trainer.base.exposition import Exposition
from slipway.trainer.record.accounting import buckets

MAX_ENDED_SERIES = 100
"""So many trainings that are over have series of their own, the newest ones; all are counted."""
ACTIVE = ("waiting", "running")
NODE_STATES = ("ready", "closed", "lost")


def samples(facts: PlatformFacts) -> Exposition:
    """All samples of one scrape."""
    into = Exposition()
    _trainings(into, facts)
    for duty, number in facts.duties.items():
        into.add(of.DUTIES, number, duty)
    _fleet(into, facts)
    _sweeps(into, facts)
    for served in facts.served:
        into.add(of.SERVED, served.version, served.model)
        into.add(of.SWITCHING, served.switching, served.model)
    for tier in facts.tiers:
        into.add(of.TIER_SIZE, tier.size, tier.name)
        into.add(of.TIER_FREE, tier.free, tier.name)
        into.add(of.TIER_LATENCY, tier.look_seconds, tier.name)
    if facts.dagster is not None:
        _dagster(into, facts.dagster)
    for subject in facts.unreadable:
        into.add(of.UNREADABLE, 1, subject)
    into.add(of.SCRAPE, facts.seconds)
    into.add(of.READ, facts.read)
    return into


def _trainings(into: Exposition, facts: PlatformFacts) -> None:
    states = Counter(reading.state for reading in facts.trainings)
    for state in STATES:
        into.add(of.TRAININGS, states[state], state)
    active = [reading for reading in facts.trainings if reading.state in ACTIVE]
    over = sorted(
        (reading for reading in facts.trainings if reading.state not in ACTIVE), key=lambda reading: -reading.since
    )
    for reading in (*active, *over[:MAX_ENDED_SERIES]):
        _training(into, reading, facts.at)


def _training(into: Exposition, one: TrainingReading, now: float) -> None:
    into.add(of.TRAINING, 1, one.id, one.recipe)
    for metric, value in (
        (of.SHOULD_RUN, one.should_run), (of.RUNNING, one.state == "running"), (of.INCARNATION, one.incarnation),
        (of.STEP, one.step), (of.STEPS, one.steps), (of.NODES_OF, one.nodes), (of.STILL, one.still),
        (of.WAITING, one.waiting), (of.STAGED, one.staged), (of.GOODPUT, one.goodput), (of.MFU, one.mfu),
        (of.FAILURES, one.failures), (of.FAILURES_IN_A_ROW, one.failures_in_a_row), (of.GIVEN_UP, one.given_up),
        (of.CHECKPOINT_STEP, one.checkpoint_step), (of.CHECKPOINTS_DAMAGED, one.damaged),
    ):  # fmt: skip
        into.add(metric, value, one.id)
    for bucket in buckets.TITLES:
        into.add(of.SPENT, one.spent.get(bucket, 0.0) if one.spent else None, one.id, bucket)
    for definition, share in one.ettr.items():
        into.add(of.ETTR, share, one.id, definition)
    for kind, number in one.incidents.items():
        into.add(of.INCIDENTS, number, one.id, kind)
    for tier, number in one.checkpoints.items():
        into.add(of.CHECKPOINTS, number, one.id, tier)
    for tier, at in one.newest.items() if one.state == "running" else ():
        into.add(of.CHECKPOINT_AGE, max(0.0, now - at), one.id, tier)


def _fleet(into: Exposition, facts: PlatformFacts) -> None:
    states = Counter(reading.state for reading in facts.nodes)
    for state in NODE_STATES if "fleet" not in facts.unreadable else ():
        into.add(of.NODES, states[state], state)
    for node in facts.nodes:
        into.add(of.NODE_READY, node.state == "ready", node.name)
        into.add(of.NODE_STANDING, 1, node.name, node.standing)
        into.add(of.NODE_EVIDENCE, node.evidence, node.name)


def _sweeps(into: Exposition, facts: PlatformFacts) -> None:
    states = Counter(reading.state for reading in facts.sweeps)
    for state in dict.fromkeys(("open", "paused", *states)):
        into.add(of.SWEEPS, states[state], state)
    for sweep in facts.sweeps:
        into.add(of.BEST, sweep.best, sweep.id)
        for state, number in sweep.trials.items():
            into.add(of.TRIALS, number, sweep.id, state)


def _dagster(into: Exposition, dagster: DagsterReading) -> None:
    for sensor in dagster.sensors:
        into.add(of.SENSOR_ON, sensor.on, sensor.name)
        into.add(of.TICK_AGE, sensor.age, sensor.name)
        into.add(of.TICK_SECONDS, sensor.seconds, sensor.name)
        into.add(of.TICK_FAILED, sensor.failed, sensor.name)
    for daemon, age in dagster.daemons.items():
        into.add(of.DAEMON_AGE, age, daemon)
    for status, number in dagster.runs.items():
        into.add(of.RUNS, number, status)
    into.add(of.RUN_QUEUE, dagster.queued)
    into.add(of.RECORDS, dagster.records)
    into.add(of.LAG, dagster.lag)
