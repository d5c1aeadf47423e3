"""Checks of a sweep against its training: the trials' placement, rungs, space, constraints and sampler."""

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator, Set
from typing import Any

from slipway.recipes import constraints
from slipway.recipes.constraints import InvalidConstraint
from slipway.recipes.domain import MOST_STEPS, Domain
from slipway.recipes.problems import RecipeFault, dotted, format_value
from slipway.recipes.schedulers import NoScheduler, PopulationScheduler
from slipway.recipes.search_space import CircularConditions, ContradictorySpace, SearchSpace, fields_in
from slipway.recipes.strict import RefusedValue
from slipway.recipes.sweep import METRICS, SweepRecipe
from slipway.recipes.training import ModelRecipe, layout_faults, value_at, with_parameters
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import changing

FIXED = ("run.steps", "validation.every")
"""Parameters that the rungs of a sweep decide, so that no trial may draw them."""
DRAWS = 8
"""The number of trials that are drawn to check whether the training accepts them."""
LARGEST_GRID = 100_000
"""The most combinations of a grid, because the sweep lists and shuffles all of them."""
CONTEXTS = 100
"""The number of draws in which to look for one that fits a value, if the recipe's own values do not fit it."""


def sweep_faults(sweep: SweepRecipe, trainings: Set[str], training: ModelRecipe | None) -> Iterator[RecipeFault]:
    """The faults of a sweep, given the names of all trainings and the sweep's training (None if it is not usable)."""
    if sweep.training not in trainings:
        known = ", ".join(sorted(trainings)) or "there is none"
        yield RecipeFault(("training",), format_value(sweep.training), f"the name of a training recipe ({known})")
    if sweep.goal is not None and sweep.goal.metric not in METRICS:
        expected = f"a metric that every trial reports ({', '.join(METRICS)})"
        yield RecipeFault(("goal", "metric"), format_value(sweep.goal.metric), expected)
    if training is None:
        return
    alias = training.init.moving_alias if training.init is not None else None
    if alias:
        expected = "a training whose init names a version, because an alias may move while the sweep runs"
        yield RecipeFault(("training",), f"a training that starts from the alias {alias}", expected)
    try:
        trial = sweep.trial_of(training)
    except RefusedValue as refused:
        yield from (_fault_of_trial(fault, sweep) for fault in refused.faults)
        trial = training
    else:
        yield from _rung_faults(sweep, trial)
        if not any(layout_faults(training)):  # otherwise the training itself is reported
            yield from _placement_faults(sweep, trial)
    faults = [*_condition_faults(sweep, trial), *_constraint_faults(sweep, trial)]
    yield from faults
    if not faults:
        yield from _space_faults(sweep, trial)


def _fault_of_trial(fault: RecipeFault, sweep: SweepRecipe) -> RecipeFault:
    """A fault of the trial's training, placed at the parameter under `trial` that causes it."""
    parameter = dotted(fault.path)
    if parameter in sweep.trial:
        return RecipeFault(("trial", parameter), fault.actual, fault.expected)
    return RecipeFault(
        ("trial",), f"parameters that {parameter} ({fault.actual}) does not fit", f"{fault.expected} there"
    )


def _placement_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    """The faults of a trial's placement: ranks that do not fit its layout, and GPUs without a rank."""
    for fault in layout_faults(trial):
        actual = f"nodes and ranks that {dotted(fault.path)} ({fault.actual}) does not fit"
        yield RecipeFault(("placement",), actual, fault.expected)
    ranks = trial.placement.ranks_per_node
    for name, amount in (trial.placement.kubernetes.resources or {}).items():
        if sweep.placement.ranks_per_node is not None and name.endswith("/gpu") and amount != str(ranks):
            actual = f"{ranks} for pods with {name} {amount}"
            expected = f'a rank for each GPU; placement.kubernetes.resources gives a trial fewer: {name}: "{ranks}"'
            yield RecipeFault(("placement", "ranks_per_node"), actual, expected)


def _rung_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    steps = trial.run.steps
    every = trial.validation.every
    if every == 0:
        yield RecipeFault(
            ("trial", "validation.every"), "0", "a number that divides every rung, where trials are compared"
        )
        return
    match sweep.scheduler:
        case NoScheduler():
            if steps % every:
                expected = f"a divisor of run.steps of a trial ({steps}), where trials are compared"
                yield RecipeFault(("trial", "validation.every"), str(every), expected)
        case PopulationScheduler(every=interval):
            if steps % interval or interval == steps:
                expected = f"a divisor of run.steps of a trial ({steps}) that is below it"
                yield RecipeFault(("scheduler", "every"), str(interval), expected)
            if interval % every:
                expected = f"a multiple of validation.every of a trial ({every})"
                yield RecipeFault(("scheduler", "every"), str(interval), expected)
        case scheduler:
            if scheduler.rungs[-1] != steps:
                expected = f"the last to be run.steps of a trial ({steps})"
                yield RecipeFault(("scheduler", "rungs"), format_value(scheduler.rungs), expected)
            for index, rung in enumerate(scheduler.rungs):
                if rung % every:
                    expected = f"a multiple of validation.every of a trial ({every})"
                    yield RecipeFault(("scheduler", "rungs", index), str(rung), expected)


def _condition_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    """The faults of `when`: unknown parameters, values that a parameter never has, and circles."""
    space = SearchSpace(sweep.space, fixed=_recipes_values(trial, (o for d in sweep.space.values() for o in d.when)))
    try:
        space.order  # noqa: B018 - it raises
    except CircularConditions as error:
        actual = "a condition on itself" if len(error.circle) == 1 else str(error)
        yield RecipeFault(
            ("space", error.circle[0], "when"), actual, "conditions that begin at a parameter without one"
        )
        return
    for name, domain in sweep.space.items():
        for other, values in domain.when.items():
            path = ("space", name, "when", other)
            unknown = [] if other in sweep.space else list(_unknown_parameter(trial, other, path))
            if unknown:
                yield from unknown
                continue
            if space.decides(other) is None:
                continue  # `_never_faults` reports a condition that never holds
            possible = space.values_of(other)
            if possible is None:
                expected = "a parameter with choices, or whole numbers, or steps"
                yield RecipeFault(path, f"{other}, which has an interval of numbers", expected)
                continue
            strange = [value for value in values if value not in possible]
            if strange:
                expected = f"values that {other} may have ({', '.join(map(format_value, possible[:10]))})"
                yield RecipeFault(path, format_value(strange[0]), expected)


def _recipes_values(trial: ModelRecipe, names: Iterable[str]) -> dict[str, Any]:
    """The recipe's values of these fields, without the fields that it does not know."""
    return {name: value_at(trial, name) for name in names if not any(_unknown_parameter(trial, name, ()))}


def _unknown_parameter(trial: ModelRecipe, name: str, path: tuple[str | int, ...]) -> Iterator[RecipeFault]:
    try:
        value_at(trial, name)
    except RefusedValue as refused:
        yield RecipeFault(path, refused.faults[0].actual, refused.faults[0].expected)


def _constraint_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    for index, text in enumerate(sweep.constraints):
        path = ("constraints", index)
        try:
            constraint = constraints.parse(text)
        except InvalidConstraint as error:
            yield RecipeFault(path, format_value(str(error)), constraints.EXPECTED)
            continue
        outside = sorted(constraint.names - sweep.space.keys())
        unknown = [(name, fault) for name in outside for fault in _unknown_parameter(trial, name, path)]
        yield from (RecipeFault(path, f"{name}, {fault.actual}", fault.expected) for name, fault in unknown)
        if not unknown and not any(map(SearchSpace(sweep.space).decides, constraint.names)):
            yield RecipeFault(path, format_value(text), "a constraint that names a parameter of the space")


def _space_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    """The faults of each parameter's values, of the sampler, and of the trials that it would draw."""
    named = {name for text in sweep.constraints for name in constraints.parse(text).names}
    named |= {other for domain in sweep.space.values() for other in domain.when}
    fixed = _recipes_values(trial, sorted(named - sweep.space.keys()))
    space = SearchSpace(sweep.space, tuple(map(constraints.parse, sweep.constraints)), fixed)
    faults = [
        fault for name, domain in sweep.space.items() for fault in _domain_faults(name, domain, sweep, trial, space)
    ]
    faults += [*_never_faults(space), *_sampler_faults(sweep, space), *_comparison_faults(space)]
    yield from faults or _drawn_faults(sweep, trial, space)


def _comparison_faults(space: SearchSpace) -> Iterator[RecipeFault]:
    """The constraints that compare, or calculate with, values of the wrong type."""
    generator = random.Random(0)
    free = dataclasses.replace(space, constraints=())
    trials = [space.values(free.draw(generator)) for _ in range(CONTEXTS if space.constraints else 0)]
    for index, constraint in enumerate(space.constraints):
        try:
            for values in trials:
                constraint.check(values)
        except InvalidConstraint as error:
            actual = f"{format_value(constraint.text)} with {error}"
            expected = "numbers beside numbers, and texts beside texts"
            yield RecipeFault(("constraints", index), actual, expected)


def _never_faults(space: SearchSpace) -> Iterator[RecipeFault]:
    """The parameters that exist in no trial."""
    for name in space.order:
        for other, values in space.left_by_conditions(name).items():
            if values:
                continue
            actual = "conditions that never hold together"
            expected = f"a value of {other} with which all of them hold"
            if space.decides(other) is None:
                actual = "a condition that never holds"
                expected = (
                    f"{format_value(space.fixed[other])}, which {other} has in every trial, or {other} in the space"
                )
            yield RecipeFault(("space", name, "when"), actual, expected)


def _domain_faults(
    parameter: str, domain: Domain, sweep: SweepRecipe, trial: ModelRecipe, space: SearchSpace
) -> Iterator[RecipeFault]:
    """The faults of one parameter's domain: the ends or choices that a trial would not accept."""
    if any(fixed in _names_in(parameter, domain) for fixed in FIXED):
        yield RecipeFault(
            ("space", parameter), "a parameter that the rungs decide", f"a parameter other than {', '.join(FIXED)}"
        )
        return
    if parameter in sweep.trial:
        yield RecipeFault(("space", parameter), "a parameter that `trial` sets too", "it in only one of the two")
    section = next((candidate for candidate in sweep.space if parameter.startswith(f"{candidate}.")), None)
    if section:
        yield RecipeFault(("space", parameter), f"a field of {section}, which is searched too", "only one of the two")
    choices = domain.choice or ()
    for twice in [value for index, value in enumerate(choices) if value in choices[:index]]:
        yield RecipeFault(("space", parameter, "choice"), f"{format_value(twice)} more than once", "each value once")
    for index, value in enumerate(domain.ends()):
        if isinstance(sweep.scheduler, PopulationScheduler):
            reason = _not_in_a_copy(trial, parameter, value)
            if reason:
                actual = f"a parameter that a copy cannot change: {reason}"
                yield RecipeFault(("space", parameter), actual, "another scheduler")
                return
        fault = _refusal(trial, {parameter: value})
        if fault is None:
            continue
        if fault.actual.startswith("an unknown parameter"):
            yield RecipeFault(("space", parameter), fault.actual, fault.expected)
            return
        if not _fits_elsewhere(parameter, value, trial, space):
            yield RecipeFault(
                ("space", parameter, domain.kind, index), format_value(value), _expected(fault, parameter)
            )


def _names_in(parameter: str, domain: Domain) -> set[str]:
    """The parameter, and the fields of the sections among its choices."""
    return {name for value in domain.choice or (None,) for name, _ in fields_in(parameter, value)}


def _not_in_a_copy(trial: ModelRecipe, parameter: str, value: object) -> str:
    """The reason why a copy in population-based training cannot change this value: it continues a checkpoint."""
    sections = {**trial.numbers_alone(), **trial.operation()}
    fields = dict(fields_in(parameter, value))
    try:
        changing.check_continues(
            {name: field_value for name, field_value in fields.items() if name not in sections}, sections
        )
    except Invalid as fault:
        return str(fault).rpartition(": ")[2].removesuffix(f"; {changing.REMEDY}")
    return ""


def _refusal(trial: ModelRecipe, parameters: dict[str, object]) -> RecipeFault | None:
    """The fault of these parameters together with the training's layout; None if the training accepts them."""
    try:
        changed = with_parameters(trial, parameters)
    except RefusedValue as refused:
        return refused.faults[0]
    if not any(name.startswith("layout") for name in parameters):
        return None
    return next(layout_faults(changed), None)


def _fits_elsewhere(parameter: str, value: object, trial: ModelRecipe, space: SearchSpace) -> bool:
    """Whether a value fits the other values of some trial, although it does not fit the recipe's.

    Only constraints and conditions can keep such a value to the trials that it fits.
    """
    if not space.constraints and not any(domain.when for domain in space.domains.values()):
        return False
    generator = random.Random(0)
    for _ in range(CONTEXTS):
        try:
            drawn = {**space.draw(generator), parameter: value}
        except ContradictorySpace:
            return True  # `_drawn_faults` reports the contradiction
        if space.exists(parameter, drawn) and space.fits(drawn) and _refusal(trial, drawn) is None:
            return True
    return False


def _sampler_faults(sweep: SweepRecipe, space: SearchSpace) -> Iterator[RecipeFault]:
    """The faults of parameters and constraints that the sampler does not support."""
    sampler = sweep.sampler
    for name, domain in sweep.space.items():
        path = ("space", name)
        if sampler in ("gp", "cma-es") and domain.when:
            expected = f"no condition with the sampler {sampler}: random, grid, quasi-random and tpe have them"
            yield RecipeFault((*path, "when"), "a parameter that exists only under a condition", expected)
        if sampler == "cma-es" and domain.choice is not None:
            yield RecipeFault(path, "a choice", "numbers with the sampler cma-es: all others draw choices too")
        if sampler == "gp" and domain.kind == "randint" and len(domain.listed() or ()) > MOST_STEPS:
            expected = f"at most {MOST_STEPS:,} values with the sampler gp, which lists them, or a step"
            yield RecipeFault((*path, "randint"), format_value(domain.values), expected)
        if sampler == "grid" and domain.listed() is None:
            expected = "a choice, whole numbers, or a step with the sampler grid"
            yield RecipeFault(path, "an interval of numbers", expected)
    if sampler in ("gp", "cma-es") and sweep.constraints:
        actual = f"a constraint on {', '.join(sorted(space.constraints[0].names & sweep.space.keys()))}"
        expected = f"none with the sampler {sampler}: random, grid, quasi-random and tpe keep to constraints"
        yield RecipeFault(("constraints", 0), actual, expected)
    if sampler == "cma-es" and len(sweep.space) < 2:
        yield RecipeFault(("space",), "one parameter", "two or more with the sampler cma-es")


def _drawn_faults(sweep: SweepRecipe, trial: ModelRecipe, space: SearchSpace) -> Iterator[RecipeFault]:
    """The fault of a contradictory space, or of a trial that it may draw and the training refuses."""
    generator = random.Random(sweep.seed)
    for _ in range(DRAWS):
        try:
            drawn = space.draw(generator)
        except ContradictorySpace as error:
            yield RecipeFault(("constraints",), str(error), "constraints that some trials fit")
            return
        fault = _refusal(trial, drawn)
        if fault:
            actual = f"a space that may draw {format_value(drawn)}"
            yield RecipeFault(("space",), actual, f"{_expected(fault, '')}; `constraints` and `when` keep trials apart")
            return
    if sweep.sampler == "grid":
        yield from _grid_faults(sweep, space)


def _grid_faults(sweep: SweepRecipe, space: SearchSpace) -> Iterator[RecipeFault]:
    """The fault of a grid with too many combinations to list, or with fewer combinations than trials."""
    if next(itertools.islice(space.combinations(), LARGEST_GRID, None), None) is not None:
        actual = f"grid, with more than {LARGEST_GRID:,} combinations"
        yield RecipeFault(("sampler",), actual, f"at most {LARGEST_GRID:,} combinations, or random or quasi-random")
        return
    combinations = sum(1 for _ in space.grid())
    if sweep.trials > combinations + 1:
        expected = f"at most {combinations + 1}: the recipe as it is written, and the combinations of the grid"
        yield RecipeFault(("trials",), str(sweep.trials), expected)


def _expected(fault: RecipeFault, parameter: str) -> str:
    """The expected value of `parameter`, even if the fault names another field."""
    at = dotted(fault.path)
    if at == parameter:
        return fault.expected
    return f"a value that {at} ({fault.actual}) fits: {fault.expected} there"
