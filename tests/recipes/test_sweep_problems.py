"""What is wrong with a sweep's space, constraints, goal or sampler is told with its line and field."""

import pytest

from slipway.recipes.load import load
from tests.recipes.cases import cases
from tests.recipes.conftest import SWEEP, Folder

pytestmark = pytest.mark.pure

SEARCH_CASES = r"""
sampler: tpe -> sampler: cma-es
    -2 space.optimizer.beta2: found a choice, expected numbers with the sampler cma-es: all others draw choices too

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9, 0.95], when: {optimizer.warmup_steps: [50]}}
    space.optimizer.beta2.when.optimizer.warmup_steps: found 50, expected values that optimizer.warmup_steps may have
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)

sampler: tpe -> constraints: [optimizer.beta2 ** 2 < 1]\nsampler: tpe
    constraints.0: found "optimizer.beta2 ** 2", expected comparisons of numbers, texts and fields such as
        batch.micro <= batch.sequences, with + - * / // % and parentheses, joined by and, or, not

sampler: tpe -> constraints: [optimizer.beta2 < 0]\nsampler: tpe
    constraints: found none of 10,000 draws fits the constraints: optimizer.beta2 < 0, expected constraints that some
        trials fit

trial: # what -> goal: {metric: bleu, at_most: 1}\ntrial: # what
    goal.metric: found "bleu", expected a metric that every trial reports (validation_loss)

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9, 0.95, 0.99], when: {optimizer.kind: [muon]}}
    space.optimizer.beta2.when: found a condition that never holds, expected "adamw", which optimizer.kind has in every
        trial, or optimizer.kind in the space

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9], when: {optimizer.beta2: [0.9]}}
    space.optimizer.beta2.when: found a condition on itself, expected conditions that begin at a parameter without one

sampler: tpe -> constraints: [optimizer.beta2 < 1, optimizer.beta2 < 'a']\nsampler: tpe
    constraints.1: found "optimizer.beta2 < 'a'" with 0.95 beside "a", expected numbers beside numbers, and texts beside
        texts

sampler: tpe -> constraints: [optimizer.kind * 99999999999 == 'a' or optimizer.beta2 < 1]\nsampler: tpe
    constraints.0: found "optimizer.kind * 99999999999 == 'a' or optimizer.beta2 < 1" with "adamw" beside + - * / // %,
        expected numbers beside numbers, and texts beside texts

sampler: tpe -> constraints: [optimizer.beta3 < 1]\nsampler: tpe
    constraints.0: found optimizer.beta3, an unknown parameter (did you mean beta2?), expected one of optimizer.kind,
        optimizer.learning_rate, optimizer.schedule, optimizer.warmup_steps, optimizer.final_fraction,
        optimizer.decay_fraction, optimizer.beta1, optimizer.beta2, optimizer.momentum, optimizer.weight_decay,
        optimizer.clip

{loguniform: [3e-4, 1e-2]} -> {loguniform: [1e-320, 1e-2]}
    space.optimizer.learning_rate.loguniform: found [1e-320, 0.01], expected numbers from 1e-30 to 1e+30

{loguniform: [3e-4, 1e-2]} -> {uniform: [-1e308, 1e308]}
    space.optimizer.learning_rate.uniform: found [-1e+308, 1e+308], expected numbers from -1e+30 to 1e+30

{loguniform: [3e-4, 1e-2]} -> {uniform: [0.1, .inf]}
    space.optimizer.learning_rate.uniform.1: found ".inf", expected a number

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9, 0.95, 0.9]}
    space.optimizer.beta2.choice: found 0.9 more than once, expected each value once

{choice: [0.9, 0.95, 0.99]} -> {uniform: [0.9, 0.99], step: 1e-9}
    space.optimizer.beta2.step: found 1e-09, expected 9e-07 or more, for 100,000 steps at most

{loguniform: [3e-4, 1e-2]} -> {loguniform: [3e-4, 1e-2], step: 2e-4}
    space.optimizer.learning_rate.step: found 0.0002, expected a number that 0.0003, the lower end, is a multiple of

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9], step: 0.1}
    space.optimizer.beta2.step: found 0.1, expected none beside a choice

{choice: [0.9, 0.95, 0.99]} -> {choice: [0.9, 0.95]}\n  run: {choice: [{precision: bf16}, {steps: 5}]}
    +1 space.run: found a parameter that the rungs decide, expected a parameter other than run.steps, validation.every

kind: stopping -> kind: bayes
    scheduler.kind: found "bayes", expected one of 'none', 'promotion', 'stopping', 'hyperband', 'median', 'population'
"""
CASES = cases(SWEEP, SEARCH_CASES)


@pytest.mark.parametrize(("file", "old", "new", "down", "problem"), CASES, ids=[case[2] for case in CASES])
def test_a_search_that_cannot_be_made_is_refused_with_its_line_and_field(
    folder: Folder, file: str, old: str, new: str, down: int, problem: str
):
    line = folder.edit(file, old, new)
    assert folder.problems() == [f"{file}:{line + down}: {problem}"]


def test_a_grid_over_intervals_is_refused_for_each_of_them(folder: Folder):
    folder.edit(SWEEP, "sampler: tpe", "sampler: grid")
    refused = "found an interval of numbers, expected a choice, whole numbers, or a step with the sampler grid"
    assert folder.problems() == [
        f"{SWEEP}:10: space.optimizer.learning_rate: {refused}",
        f"{SWEEP}:12: space.optimizer.weight_decay: {refused}",
    ]


CONDITION = "{choice: [0.9, 0.95, 0.99]}", "{uniform: [0.9, 0.99], when: {optimizer.warmup_steps: [5]}}"
POPULATION = "kind: population\n  every: 20"
RUNGS = "kind: stopping\n  rungs: [20, 40, 80] # steps; the last is run.steps of a trial\n  eta: 2"


@pytest.mark.parametrize("sampler", ["gp", "cma-es"])
def test_a_sampler_that_cannot_do_conditions_or_constraints_names_the_parameter(folder: Folder, sampler: str):
    line = folder.edit(SWEEP, *CONDITION)
    sampled = folder.edit(SWEEP, "sampler: tpe", f"sampler: {sampler}\nconstraints: [optimizer.warmup_steps < 9]")
    of_all = f"with the sampler {sampler}: random, grid, quasi-random and tpe"
    assert folder.problems() == [
        f"{SWEEP}:{line}: space.optimizer.beta2.when: found a parameter that exists only under a condition, expected "
        f"no condition {of_all} have them",
        f"{SWEEP}:{sampled + 1}: constraints.0: found a constraint on optimizer.warmup_steps, expected "
        f"none {of_all} keep to constraints",
    ]


def test_parameters_whose_conditions_go_in_a_circle_are_named_and_no_others(folder: Folder):
    outside = "{choice: [0.9], when: {optimizer.clip: [1.0]}}"
    one = "  optimizer.clip: {choice: [1.0], when: {run.seed: [1]}}"
    other = "  run.seed: {choice: [1], when: {optimizer.clip: [1.0]}}"
    line = folder.edit(SWEEP, CONDITION[0], f"{outside}\n{one}\n{other}")
    assert folder.problems() == [
        f"{SWEEP}:{line + 1}: space.optimizer.clip.when: found conditions in a circle: optimizer.clip, run.seed, "
        "expected conditions that begin at a parameter without one"
    ]


def test_whole_numbers_that_a_gaussian_process_cannot_list_are_refused(folder: Folder):
    line = folder.edit(SWEEP, "{randint: [0, 20]}", "{randint: [0, 100000000]}")
    folder.edit(SWEEP, "sampler: tpe", "sampler: gp")
    assert folder.problems() == [
        f"{SWEEP}:{line}: space.optimizer.warmup_steps.randint: found [0, 100000000], expected at most 100,000 values "
        "with the sampler gp, which lists them, or a step"
    ]


def test_a_section_with_a_field_that_a_copy_cannot_change_is_refused_for_a_population(folder: Folder):
    text = (folder.path / SWEEP).read_text()
    begin, end = text.index("  optimizer.learning_rate:"), text.index("sampler:")
    space = "  optimizer: {choice: [{weight_decay: 0.2}, {kind: muon}]}"
    folder.write(SWEEP, f"{text[:begin]}{space}\n{text[end:].replace(RUNGS, POPULATION)}")
    line = text[:begin].count("\n") + 1
    assert folder.problems() == [
        f"{SWEEP}:{line}: space.optimizer: found a parameter that a copy cannot change: the checkpoint has the "
        "optimiser's state of the former value, expected another scheduler"
    ]


def test_conditions_that_never_hold_together_are_refused(folder: Folder):
    both = "{choice: [0.8], when: {optimizer.beta2: [0.9], optimizer.warmup_steps: [6]}}"
    conditional = "{choice: [0.9], when: {optimizer.warmup_steps: [5]}}"
    line = folder.edit(SWEEP, CONDITION[0], f"{conditional}\n  optimizer.beta1: {both}")
    assert folder.problems() == [
        f"{SWEEP}:{line + 1}: space.optimizer.beta1.when: found conditions that never hold together, expected a value "
        "of optimizer.warmup_steps with which all of them hold"
    ]


def test_an_empty_space_is_refused(folder: Folder):
    text = (folder.path / SWEEP).read_text()
    begin, end = text.index("space:"), text.index("sampler:")
    folder.write(SWEEP, f"{text[:begin]}space: {{}}\n\n{text[end:]}")
    line = text[:begin].count("\n") + 1
    assert folder.problems() == [f"{SWEEP}:{line}: space: found {{}}, expected 1 or more"]


@pytest.mark.parametrize(
    ("scheduler", "every", "problem"),
    [
        (
            "kind: none",
            "30",
            "trial.validation.every: found 30, expected a divisor of run.steps of a trial (80), where trials are "
            "compared",
        ),
        (
            "kind: population\n  every: 20",
            "40",
            "scheduler.every: found 20, expected a multiple of validation.every of a trial (40)",
        ),
        (
            "kind: population\n  quantile: 0.6\n  every: 20",
            "20",
            "scheduler.quantile: found 0.6, expected 0.5 or less",
        ),
        (
            "kind: population\n  every: 60",
            "20",
            "scheduler.every: found 60, expected a divisor of run.steps of a trial (80) that is below it",
        ),
        (
            "kind: median\n  rungs: [20, 80]",
            "40",
            "scheduler.rungs.0: found 20, expected a multiple of validation.every of a trial (40)",
        ),
    ],
)
def test_a_step_of_comparison_without_a_validation_is_refused(folder: Folder, scheduler: str, every: str, problem: str):
    line = folder.edit(SWEEP, RUNGS, scheduler)
    validated = folder.edit(SWEEP, "validation.every: 20", f"validation.every: {every}")
    at = validated if problem.startswith("trial.") else line + 1
    assert folder.problems() == [f"{SWEEP}:{at}: {problem}"]


def test_a_section_and_a_field_of_it_are_not_both_searched(folder: Folder):
    both = "{choice: [0.9, 0.95]}\n  layout: {choice: [{activations: keep}, {compile: true}]}\n"
    line = folder.edit(SWEEP, CONDITION[0], f"{both}  layout.activations: {{choice: [keep, recompute]}}")
    assert folder.problems() == [
        f"{SWEEP}:{line + 2}: space.layout.activations: found a field of layout, which is searched too, expected only "
        "one of the two"
    ]


LAYOUTS = "layout: {choice: [{compile: true}, {activations: selective}]}"


def test_a_condition_on_a_field_of_a_section_that_is_searched_is_accepted(folder: Folder):
    conditional = "{uniform: [0.9, 0.99], when: {layout.activations: [selective]}}"
    folder.edit(SWEEP, CONDITION[0], f"{conditional}\n  {LAYOUTS}")
    assert load(folder.path, {}).sweeps


def test_a_condition_on_a_value_that_no_section_of_the_space_has_is_refused(folder: Folder):
    conditional = "{uniform: [0.9, 0.99], when: {layout.activations: [recompute]}}"
    line = folder.edit(SWEEP, CONDITION[0], f"{conditional}\n  {LAYOUTS}")
    assert folder.problems() == [
        f'{SWEEP}:{line}: space.optimizer.beta2.when.layout.activations: found "recompute", expected values that '
        'layout.activations may have ("keep", "selective")'
    ]


def test_a_condition_on_one_of_very_many_whole_numbers_is_accepted(folder: Folder):
    folder.edit(SWEEP, "{randint: [0, 20]}", "{randint: [0, 1000000000]}")
    folder.edit(SWEEP, *CONDITION)
    assert load(folder.path, {}).sweeps


@pytest.mark.parametrize("domain", ["{randint: [0, 1000000000]}", "{uniform: [0, 1], step: 0.00001}"])
def test_a_grid_that_is_too_large_to_be_listed_is_refused(folder: Folder, domain: str):
    text = (folder.path / SWEEP).read_text()
    begin, end = text.index("  optimizer.learning_rate:"), text.index("sampler:")
    folder.write(SWEEP, f"{text[:begin]}  optimizer.clip: {domain}\n{text[end:].replace('tpe', 'grid', 1)}")
    folder.edit(SWEEP, domain, domain.replace("[0,", "[1,").replace("uniform: [1, 1]", "uniform: [1, 2]"))
    [problem] = folder.problems()
    assert "found grid, with more than 100,000 combinations, expected at most 100,000" in problem
