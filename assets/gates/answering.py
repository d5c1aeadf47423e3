"""Answering: candidate and champion answer a suite's generation tasks, one and the same examples for both.

What was answered before counts, where its examples are there. If the two were asked something else (a task or the
harness became another one between the two), both are asked anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipway.assets.gates.paired import Values
from slipway.assets.gates.task_limits import TaskRivals
from slipway.assets.generating import Generating
from slipway.assets.suites.generation import answered, questions
from slipway.assets.suites.generation.answered import AnsweredExample, TaskFigures
from slipway.recipes.suite import GenerationSection
from slipway.resources.mlflow.registry import Version

Rows = Sequence[AnsweredExample]


class Incomparable(ValueError):
    """The champion cannot answer, or the two were asked other examples even when both were asked anew."""


@dataclass(frozen=True)
class TaskAnswers:
    """The answers of candidate and champion."""

    rivals: Mapping[str, TaskRivals]
    """By task."""
    hashes: Mapping[str, str]
    """Of what was compared."""
    questions: Mapping[str, Mapping[str, str]]
    """What was asked, by task and BLAKE3."""


def of_rivals(
    generating: Generating, section: GenerationSection, candidate: Version, champion: Version | None
) -> TaskAnswers:
    """The answers to the tasks of a suite.

    Raises Incomparable, ValueError for a candidate that cannot be served, and dg.Failure.
    """
    durable = generating.measuring.tiers.durable_path
    for anew in (False, True):
        own = generating.of_suite(candidate, section, anew)
        theirs = _of_champion(generating, section, champion, anew) if champion else {}
        rows = {task: answered.examples(durable, each) for task, each in own.items()}
        others = {task: answered.examples(durable, each) for task, each in theirs.items()}
        if all(_asked(rows[task]) == _asked(others[task]) for task in others):
            found = {
                task: TaskRivals(_values(rows[task]), _values(others[task]) if task in others else None)
                for task in rows
            }
            asked = {task: questions.of(each) for task, each in rows.items()}
            return TaskAnswers(found, {**_hashes("candidate", own), **_hashes("champion", theirs)}, asked)
    raise Incomparable("the generation tasks ask other examples each time: see that a task draws them by a fixed seed")


def _of_champion(
    generating: Generating, section: GenerationSection, champion: Version, anew: bool
) -> dict[str, TaskFigures]:
    try:
        return generating.of_suite(champion, section, anew)
    except ValueError as error:
        raise Incomparable(f"its answers to generation tasks: {error}") from None


def _asked(rows: Rows) -> dict[int, tuple[str, str]]:
    """What was asked and expected, by example."""
    return {row.example: (row.prompt, row.expected) for row in rows}


def _values(rows: Rows) -> dict[str, Values]:
    """The values of each metric in the order of the examples; examples that a metric lacks are none of it."""
    metrics = sorted({row.metric for row in rows})
    ordered = sorted(rows, key=lambda row: row.example)
    return {name: np.array([row.value for row in ordered if row.metric == name], np.float64) for name in metrics}


def _hashes(whose: str, figures: dict[str, TaskFigures]) -> dict[str, str]:
    return {f"{whose}_answers_{task}": each.table for task, each in figures.items()}
