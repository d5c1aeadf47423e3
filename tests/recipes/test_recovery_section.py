"""The section `recovery` of a recipe: values that contradict one another are refused, with the field and the reason."""

from typing import Any

import pytest

from slipway.recipes.strict import RefusedValue, validate
from slipway.recipes.training import RecoverySection
from slipway.trainer.config.operation import Recovery

FIELDS = {"no_progress_seconds": 60, "failures_without_checkpoint": 3}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hang_seconds": 600}, "hang_seconds: found 600, expected no_progress_seconds (60) at most, as no step has"),
        ({"skips": 1000, "skip_steps": 10}, "skips: found 1000, expected skip_steps (10) at most: otherwise every"),
        ({"skip_steps": 2}, "skip_steps: found 2, expected skips (3) or more: otherwise every batch could be skipped"),
        (
            {"skips": 0, "policies": {"diverged": "skip"}},
            'policies.diverged: found "skip", expected another answer, as',
        ),
        (
            {"skips": 0, "policies": {"spike": "skip"}},
            'policies.spike: found "skip", expected another answer, as skips',
        ),
        ({"spike_sigmas": 0, "policies": {"spike": "stop"}}, 'policies.spike: found "stop", expected no policy, as'),
        (
            {"straggler_sigmas": 0, "policies": {"straggler": "tell"}},
            'policies.straggler: found "tell", expected no pol',
        ),
        ({"policies": {"hung": "skip"}}, 'policies.hung: found "skip", expected one of replace, retry, stop'),
        (
            {"policies": {"hungg": "stop"}},
            'policies.hungg: found "stop", expected the policy of another cause: of out_',
        ),
        (
            {"policies": {"configuration": "retry"}},
            'policies.configuration: found "retry", expected no policy, as stop',
        ),
        ({"grow": 1}, "grow: found 1, expected true or false"),
    ],
)
def test_what_contradicts_itself_is_refused_at_its_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedValue) as refused:
        validate(RecoverySection, {**FIELDS, **fields})
    assert str(refused.value).startswith(message)


def test_a_usual_value_that_another_one_makes_idle_is_no_contradiction() -> None:
    section = validate(RecoverySection, {**FIELDS, "no_progress_seconds": 5, "spike_sigmas": 0, "skips": 0})
    assert (section.hang_seconds, section.skips) == (10.0, 0)
    assert validate(RecoverySection, section.model_dump(mode="json")) == section


@pytest.mark.parametrize(
    ("survivors", "on_gpu", "stays"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"survivors": "by_device"}, True, True),
        ({"survivors": "stay"}, False, True),
        ({"survivors": "leave"}, True, False),
    ],
)
def test_ranks_that_are_well_stay_on_gpus_unless_the_recipe_says_otherwise(
    survivors: dict[str, str], on_gpu: bool, stays: bool
) -> None:
    section = validate(RecoverySection, {**FIELDS, **survivors})
    assert Recovery(survivors=section.survivors).stays(on_gpu) is stays
