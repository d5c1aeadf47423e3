"""The result of population-based training is a schedule of parameters: one training that follows it does the same."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.assets.sweeps.full_scale import led_to
from slipway.assets.sweeps.lineage import schedule
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState, Trial, fold
from slipway.assets.sweeps.trials import changed_fields
from slipway.recipes.domain import Domain
from slipway.recipes.load import load
from slipway.recipes.schedulers import PopulationScheduler
from slipway.recipes.strict import validate
from slipway.recipes.training import ModelRecipe, with_parameters
from tests.assets.sweeps.simulation import Curve, begun, continued, log_of, opened

pytestmark = pytest.mark.pure

SAMPLES = Path(__file__).parents[2] / "recipes" / "samples"
RATE, DECAY = "optimizer.learning_rate", "optimizer.weight_decay"


def trained(weights: float, parameters: Mapping[str, Any], first: int, last: int) -> float:
    """Weights after some steps: each step moves them by an amount that its parameters and its number decide."""
    for step in range(first + 1, last + 1):
        weights += float(parameters[RATE]) * (1 - float(parameters[DECAY]) * weights) / step
    return weights


def by_branches(sweep: SweepState, trial: Trial, step: int) -> float:
    """The weights of a trial's commit of a step, as its processes made them: it continues its parent's commit."""
    begin = 0.0
    if trial.parent is not None:
        begin = by_branches(sweep, sweep.trials[trial.parent], trial.first_step)
    return trained(begin, trial.parameters, trial.first_step, step)


def replayed(sweep: SweepState, trial: Trial) -> float:
    """The weights of one training that begins with the first parameters and changes at the steps of the schedule."""
    stretches = schedule(sweep, trial)
    ends = [*(stretch.first_step for stretch in stretches[1:]), sweep.plan.steps]
    weights = 0.0
    for part, end in zip(stretches, ends, strict=True):
        weights = trained(weights, part.parameters, part.first_step, end)
    return weights


@pytest.fixture
def sweep() -> SweepState:
    """A population whose best trials have ancestors."""
    state = fold(log_of(*begun(scheduler={"kind": "population", "every": 3}, trials=6, parallel=6, seed=4), rewarding))
    assert any(trial.parent is not None for trial in state.trials.values())
    return state


def rewarding(parameters: Mapping[str, Any], step: int) -> float:
    """The higher the rate the better, so that copies go on from copies."""
    return 1 / (1 + float(parameters[RATE])) + 1 / step


def test_a_trial_that_continues_nobody_has_its_own_parameters_from_the_first_step_on(sweep: SweepState):
    [only] = schedule(sweep, sweep.trials[0])
    assert (only.first_step, only.trial, only.parameters) == (0, 0, sweep.trials[0].parameters)


def test_each_stretch_begins_where_the_trial_continued_a_commit(sweep: SweepState):
    for trial in sweep.trials.values():
        stretches = schedule(sweep, trial)
        assert stretches[0].first_step == 0 and sweep.trials[stretches[0].trial].parent is None
        assert stretches[-1].trial == trial.number
        for before, after in itertools.pairwise(stretches):
            child = sweep.trials[after.trial]
            assert (child.parent, child.first_step) == (before.trial, after.first_step)
            assert before.first_step < after.first_step


def test_one_training_that_follows_the_schedule_ends_with_the_weights_of_the_trial(sweep: SweepState):
    assert sweep.best is not None and sweep.best.parent is not None
    for trial in sweep.trials.values():
        assert replayed(sweep, trial) == by_branches(sweep, trial, sweep.plan.steps)


def completed(
    space: Mapping[str, Any], curve: Curve = rewarding, /, **parameters: Any
) -> tuple[SearchSubject, SweepState]:
    """A population over these parameters of the sample's training, complete, and what it searched."""
    recipes = load(SAMPLES, {})
    scheduler = PopulationScheduler(kind="population", every=3)
    domains = {name: validate(Domain, dict(domain)) for name, domain in space.items()}
    searched = recipes.sweeps["tiny-decoder"].model_copy(update={"scheduler": scheduler, "space": domains})
    training: ModelRecipe = recipes.trainings["tiny-decoder"]
    plan = opened(scheduler={"kind": "population", "every": 3}, space=space, written=parameters, seed=4)
    state = fold([plan, begun(trials=6, parallel=6)[1]])
    log = list(continued(state, curve))
    return SearchSubject(searched, training, "a" * 64, "b" * 64), state.after(*log)


def test_a_section_that_a_copy_draws_changes_each_field_in_which_it_differs_from_its_parent():
    """The parent's section sets one field and the copy's another, so that the first is the recipe's again."""
    subject, _ = completed({RATE: {"loguniform": [1e-4, 1e-2]}}, **{RATE: 1e-3})
    written = subject.training.optimizer
    parent, copy = (
        with_parameters(subject.training, {"optimizer": section}).numbers()
        for section in ({"learning_rate": 0.01}, {"weight_decay": 0.5})
    )
    fields = changed_fields(["optimizer", "layout", "run.seed"], parent, copy)
    assert fields == {RATE: written.learning_rate, DECAY: 0.5}


def test_the_schedule_of_a_section_is_replayed_by_its_fields():
    sections = [
        {"learning_rate": index / 100, **({} if index % 2 else {"weight_decay": 0.5})} for index in range(1, 20)
    ]

    def rewarding_later(parameters: Mapping[str, Any], step: int) -> float:
        return 1 / (1 + float(parameters["optimizer"]["learning_rate"])) + 1 / step

    subject, sweep = completed({"optimizer": {"choice": sections}}, rewarding_later, optimizer=sections[0])
    assert sweep.best is not None and sweep.best.parent is not None
    training = led_to(subject, sweep)
    assert training is not None and training.changes and "cannot be replayed" not in training.why
    assert all(name in (RATE, DECAY) for _, values in training.changes for name in values)


def test_the_training_at_full_scale_changes_its_parameters_at_the_same_shares_of_its_steps():
    subject, sweep = completed({RATE: {"loguniform": [1e-4, 1e-2]}}, **{RATE: 1e-3})
    best, training = sweep.best, led_to(subject, sweep)
    assert best is not None and training is not None
    stretches, steps = schedule(sweep, best), subject.training.run.steps
    assert len(stretches) > 1
    assert training.recipe.optimizer.learning_rate == stretches[0].parameters[RATE]
    expected = [(round(stretch.first_step / 9 * steps), dict(stretch.parameters)) for stretch in stretches[1:]]
    assert list(training.changes) == expected
    assert training.cause == f"the schedule of {sweep.plan.sweep}.{best.number}"
