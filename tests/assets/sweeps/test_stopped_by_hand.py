"""A trial that a person stops has ended: it is no failure, and nothing starts it again."""

from pathlib import Path

import pytest

from slipway.assets.sweeps.actions import Continue, Start
from slipway.assets.sweeps.events import Ended
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trial import Trial
from slipway.assets.sweeps.trials import BY, SweepTrials
from slipway.recipes.load import load
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.job import Paths
from slipway.trainer.base.paths import CODE
from tests.assets.sweeps.simulation import begun

SAMPLES = Path(__file__).parents[2] / "recipes" / "samples"
STOPPED = Ended(trial=0, outcome="stopped", reason="stopped by ada by hand: it diverges")


@pytest.fixture
def control(tmp_path: Path) -> TrainingControl:
    fleet = EmbeddedFleet(tmp_path / "nodes", ("node-0",), reboot_seconds=60)
    return TrainingControl(
        LocalLauncher(tmp_path / "jobs", CODE, fleet), fleet, Paths(tmp_path, f"{tmp_path}/{{node}}")
    )


def searched(folder: Path) -> SweepTrials:
    """The trials of an open sweep in a folder."""
    recipes = load(SAMPLES, {})
    store = SweepStore(folder / "sweeps" / "search-1")
    store.create({"a": "sweep"})
    store.open(*begun())
    subject = SearchSubject(recipes.sweeps["tiny-decoder"], recipes.trainings["tiny-decoder"], "", "")
    return SweepTrials(store, subject, 5)


@pytest.fixture
def trials(tmp_path: Path) -> SweepTrials:
    """The trials of a sweep, of which the first is proposed and wanted."""
    trials = searched(tmp_path)
    own, recipe = trials.store(0), trials.subject.trial({})
    policy = trials.subject.trial_terms(recipe, trials.sweep.sweep, 0, {})
    trials.root.propose(trials.subject.trial_specification(recipe), policy, id=own.id, by=BY)
    own.want("run", BY, "attempt 1")
    return trials


def trial() -> Trial:
    return Trial(0, {}, until=40)


def test_while_it_runs(trials: SweepTrials, control: TrainingControl):
    own = trials.store(0)
    assert own.claim(1, ("node-0",), "first start", BY)
    own.want("stop", "ada by hand", "it diverges")
    own.record_exit(1, "stopped", "cancelled", "ada by hand")
    assert trials.watch(trial(), 40, ("node-0",), control) == [STOPPED]


def test_while_it_waits_at_a_rung(trials: SweepTrials):
    assert trials.ended_by_hand(trial()) is None
    trials.store(0).want("stop", "ada by hand", "it diverges")
    assert trials.ended_by_hand(trial()) == STOPPED


@pytest.mark.parametrize("due", [Start(0, 1, {}, 40), Continue(0, 0, 10, 40)])
def test_before_it_starts_or_goes_on(trials: SweepTrials, control: TrainingControl, due: Start | Continue):
    trials.store(0).want("stop", "ada by hand", "it diverges")
    assert trials.start(due, ("node-0",), control) == [STOPPED]
    assert not trials.store(0).read().should_run


def test_what_the_sweep_itself_stops_may_go_on(trials: SweepTrials):
    trials.store(0).want("stop", BY, "the sweep is paused")
    assert trials.ended_by_hand(trial()) is None


def test_a_trial_that_the_platform_gave_up_was_stopped_by_nobody(trials: SweepTrials):
    trials.store(0).want("stop", "job watch", "2 failures of class program in a row", by_platform=True)
    assert trials.ended_by_hand(trial()) is None
