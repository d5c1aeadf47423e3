"""Every scheduler of sweeps, through Dagster, with trials that are real processes: they pause, go on and branch."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.assets import keys
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.events import Event, Paused, Proposed, Resumed, Started
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trials import trials_of
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.record import causes, fence
from tests.sensors.platform import SEARCH, Platform

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

STEPS, TRIALS = 40, 4
TRIAL = {"run.steps": STEPS, "validation.every": 10, "validation.sequences": 4, "checkpoint.every": STEPS}
RUNGS = {"rungs": [10, 20, STEPS], "eta": 2}


def searched(platform: Platform, scheduler: Mapping[str, Any], **changed: Any) -> tuple[SweepStore, SweepState]:
    """The sweep with this scheduler, once a run of Dagster has brought it to its end."""
    more = platform.with_sweep(**{"scheduler": dict(scheduler), "trial": TRIAL, "trials": TRIALS, **changed})
    assert more.materialize([keys.key(SEARCH, "sweep")]).success
    subject = current_subject(more.recipes.sweeps[SEARCH], more.recipe, more.tiers, more.tracking)
    store = open_sweep(subject, more.tiers)
    sweep = store.state()
    assert sweep is not None and sweep.closed is not None and sweep.closed.outcome == "complete"
    return store, sweep


def of(store: SweepStore, kind: type[Event]) -> list[Any]:
    return [event for event in store.read() if isinstance(event, kind)]


def trial(store: SweepStore, number: int) -> TrainingStore:
    return trials_of(store).store(f"{store.sweep}.{number}")


def exits(training: TrainingStore) -> list[str]:
    """The kinds of the ends of a trial's incarnations, in their order."""
    claim = training.newest_claim()
    assert claim is not None
    past_exits = (fence.past_exit(training.folder, number + 1) for number in range(claim.token.incarnation))
    return [ended.kind for ended in past_exits if ended is not None]


def must_have_trained_each_step_once(store: SweepStore, sweep: SweepState) -> None:
    """A trial that paused went on from its checkpoint: no step was done again, and none was left out."""
    for number, known in sweep.trials.items():
        steps = [event["step"] for event in trial(store, number).events() if event["event"] == "step"]
        assert steps == list(range(known.first_step + 1, steps[-1] + 1))
        assert steps[-1] >= sweep.reached(known)


def test_without_a_scheduler_every_trial_trains_at_full_length(platform: Platform):
    store, sweep = searched(platform, {"kind": "none"})
    assert {trial_record.state for trial_record in sweep.trials.values()} == {"completed"} and len(
        sweep.trials
    ) == TRIALS
    assert not of(store, Paused)
    must_have_trained_each_step_once(store, sweep)


@pytest.mark.parametrize("kind", ["stopping", "median"])
def test_trials_are_stopped_while_they_run(platform: Platform, kind: str):
    section = {"kind": kind, **(RUNGS if kind == "stopping" else {"rungs": RUNGS["rungs"], "startup": 1})}
    store, sweep = searched(platform, section)
    assert {trial_record.state for trial_record in sweep.trials.values()} <= {"completed", "stopped"}
    assert not of(store, Paused)
    must_have_trained_each_step_once(store, sweep)


@pytest.mark.parametrize("kind", ["promotion", "hyperband"])
def test_trials_pause_at_rungs_and_the_best_of_them_go_on(platform: Platform, kind: str):
    store, sweep = searched(platform, {"kind": kind, **RUNGS})
    paused, resumed = of(store, Paused), of(store, Resumed)
    assert paused and resumed and "completed" in {trial_record.state for trial_record in sweep.trials.values()}
    assert sweep.compute_saved > 0
    for event in paused:
        assert event.step in [commit.step for commit in trial(store, event.trial).commits()]
    # Where a trial waits, its job is over, unless it goes on at once in the same process.
    starts_by_trial = Counter(event.trial for event in of(store, Proposed))
    assert starts_by_trial == Counter(range(TRIALS))
    for number, known in sweep.trials.items():
        kinds = exits(trial(store, number))
        assert set(kinds) <= {causes.PAUSED, causes.DONE, causes.STOP_REQUESTED} and known.attempt == 0
    must_have_trained_each_step_once(store, sweep)


def test_a_child_of_population_based_training_begins_with_its_parents_very_weights(platform: Platform):
    store, sweep = searched(platform, {"kind": "population", "every": 10})
    children = [trial_record for trial_record in sweep.trials.values() if trial_record.parent is not None]
    assert children
    for child in children:
        assert child.parent is not None
        own, parent = trial(store, child.number), trial(store, child.parent)
        branch = own.specification().branch
        assert branch is not None and (branch.training, branch.step) == (parent.id, child.first_step)
        commit = next(candidate for candidate in parent.commits() if candidate.step == child.first_step)
        assert branch.manifest == commit.manifest
        [restored, *_] = [event for event in own.events() if event["event"] == "restored"]
        assert (restored["step"], restored["commit"]) == (child.first_step, commit.name)
        checkpoint_contents = contents.open_unverified(platform.home.durable / commit.folder, commit.manifest)
        assert checkpoint_contents.progress().step == child.first_step
    must_have_trained_each_step_once(store, sweep)
    starts = Counter(event.trial for event in of(store, Started))
    assert set(starts) == set(sweep.trials)
