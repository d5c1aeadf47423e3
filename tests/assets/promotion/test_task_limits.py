"""What the policy says of answers to generation tasks."""

import json

import numpy as np
import pytest

from slipway.assets.promotion import policy_checks as checks
from slipway.assets.promotion.comparison import Values
from slipway.assets.promotion.policy_checks import TaskRivals
from slipway.recipes.gate import GateSection, TaskLimit

pytestmark = pytest.mark.pure


def right(count: int, of: int = 100) -> Values:
    return np.array([1.0] * count + [0.0] * (of - count))


def policy(**limits: TaskLimit) -> GateSection:
    return GateSection(tasks=limits)


def test_a_task_without_a_limit_is_shown_and_holds_nothing_back():
    outcome = checks.check_tasks(GateSection(), {"adding": TaskRivals({"exact_match": right(3)})}, 0)
    assert outcome.passed and outcome.figures["tasks"]["adding"]["mean"] == 0.03


def test_a_mean_below_the_floor_is_reported_with_both_numbers():
    outcome = checks.check_tasks(policy(adding=TaskLimit(at_least=0.5)), {"adding": TaskRivals({"acc": right(40)})}, 0)
    assert not outcome.passed and outcome.figures["broken"] == ["adding: acc is 0.4, expected at least 0.5"]


def test_answers_that_may_be_worse_than_the_champions_by_the_margin_do_not_pass():
    limited = policy(adding=TaskLimit(margin=0.1))
    equal = TaskRivals({"acc": right(60)}, {"acc": right(60)})
    lower = TaskRivals({"acc": right(55)}, {"acc": right(60)})
    assert checks.check_tasks(limited, {"adding": equal}, 0).passed
    outcome = checks.check_tasks(limited, {"adding": lower}, 0)
    assert not outcome.passed and "the champion's 0.6: up to 0.1" in outcome.figures["broken"][0]
    assert json.dumps(outcome.figures)


def test_scores_between_right_and_wrong_are_compared_by_the_bootstrap():
    draw = np.random.default_rng(2)
    champion = draw.uniform(0.2, 0.8, 200)
    better = TaskRivals({"f1": champion + 0.05}, {"f1": champion})
    worse = TaskRivals({"f1": champion - draw.uniform(0.05, 0.15, 200)}, {"f1": champion})
    limited = policy(summing=TaskLimit(margin=0.05))
    assert checks.check_tasks(limited, {"summing": better}, 0).passed
    assert not checks.check_tasks(limited, {"summing": worse}, 0).passed


def test_a_metric_that_the_task_lacks_is_reported_with_those_that_it_has():
    limited = policy(adding=TaskLimit(metric="f1", at_least=0.1))
    outcome = checks.check_tasks(limited, {"adding": TaskRivals({"acc": right(1), "em": right(1)})}, 0)
    assert outcome.figures["broken"] == ["adding: found the metrics acc, em, expected f1"]
