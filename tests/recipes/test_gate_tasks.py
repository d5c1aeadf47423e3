"""Limits for generation tasks are checked against the suite that the training names."""

from typing import Any

import pytest

from slipway.recipes.load import load
from tests.recipes.conftest import TRAINING, Folder

pytestmark = pytest.mark.pure
SUITE = "suites/held.yaml"


def judged(folder: Folder, tasks: str, generation: str = "generation: {tasks: [adding, gsm8k], examples: 20}\n") -> int:
    """Give the sample training a suite and limits for tasks; returns the line of the limits' own task."""
    (folder.path / "suites").mkdir(exist_ok=True)
    folder.write(SUITE, f"slipway: suite/1\ndataset: python-stdlib\n{generation}")
    text = (folder.path / TRAINING).read_text()
    folder.write(TRAINING, f"{text}\nsuite: held\ngate:\n  tasks:\n    {tasks}\n")
    return len(text.splitlines()) + 5


def test_tasks_of_the_suite_may_have_limits(folder: Folder):
    judged(folder, "adding: {at_least: 0.2, margin: 0.05}")
    recipes: Any = load(folder.path, {})
    assert recipes.trainings["tiny-decoder"].gate.tasks["adding"].margin == 0.05
    assert recipes.suites["held"].generation.tasks == ("adding", "gsm8k")


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [("[adding, adding]", "each task once"), ('["../adding"]', "names of tasks: letters, digits")],
)
def test_tasks_are_named_once_and_by_names(folder: Folder, tasks: str, expected: str):
    judged(folder, "adding: {at_least: 0.2}", generation=f"generation: {{tasks: {tasks}}}\n")
    [problem, *_] = folder.problems()
    assert problem.startswith(f"{SUITE}:3: generation.tasks: found ") and f"expected {expected}" in problem


def test_a_limit_for_a_task_that_the_suite_lacks_is_refused_with_those_that_it_has(folder: Folder):
    line = judged(folder, "copying: {at_least: 0.2}")
    expected = "one of generation.tasks of the training's suite: adding, gsm8k"
    assert folder.problems() == [f"{TRAINING}:{line}: gate.tasks.copying: found the task copying, expected {expected}"]


def test_a_suite_without_tasks_has_none_to_limit(folder: Folder):
    line = judged(folder, "adding: {at_least: 0.2}", generation="")
    expected = "one of generation.tasks of the training's suite: it has none"
    assert folder.problems() == [f"{TRAINING}:{line}: gate.tasks.adding: found the task adding, expected {expected}"]


def test_generation_tasks_are_no_part_of_what_a_suite_is(folder: Folder):
    judged(folder, "adding: {at_least: 0.2}")
    suite = load(folder.path, {}).suites["held"]
    assert suite.content() == suite.model_copy(update={"generation": None}).content()
