"""Mixes: weights are shares of tokens, exact in whole parts; what cannot be meant is refused with its field."""

from typing import Any

import pytest

from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import mix
from slipway.trainer.config.mix import Mix

pytestmark = pytest.mark.pure


def of(**fields: Any) -> Mix:
    return codec.build(Mix, {"weights": {"web": 3, "code": 1}, **fields}, "mix")


def test_weights_are_the_smallest_whole_numbers_of_their_proportion() -> None:
    assert mix.parts({"web": 0.8, "code": 0.2}) == mix.parts({"web": 8, "code": 2}) == {"code": 1, "web": 4}


def test_weights_that_no_whole_parts_have_are_rounded_by_the_largest_remainder() -> None:
    assert mix.parts({"a": 1, "b": 1, "c": 1}) == {"a": 3334, "b": 3333, "c": 3333}


def test_the_order_in_which_datasets_are_written_makes_no_difference() -> None:
    assert list(mix.parts({"web": 3, "code": 1}).items()) == list(mix.parts({"code": 1, "web": 3}).items())


def test_what_the_first_steps_read_is_distinguished_from_what_comes_later() -> None:
    later = {"after_step": 10, "weights": {"web": 1, "books": 1}}
    assert of().until(10) == of(phases=[later]).until(10)
    assert of().until(11) != of(phases=[later]).until(11)


def test_a_dataset_may_come_in_a_later_phase_alone() -> None:
    assert of(phases=[{"after_step": 10, "weights": {"books": 1}}]).names == ["books", "code", "web"]


@pytest.mark.parametrize(
    ("fields", "field", "expected"),
    [
        (
            {"weights": {"web": 1, "code": 0}},
            "mix.weights.code",
            "expected a number above 0; a dataset that is left out",
        ),
        ({"weights": {"web": 1, "code": -2}}, "mix.weights.code", "expected a number above 0"),
        ({"weights": {"web": 1}}, "mix.weights", "expected two datasets or more"),
        ({"weights": {}}, "mix.weights", "expected a weight for each dataset"),
        ({"weights": {"web": 1, "code": 1e-9}}, "mix.weights.code", "expected 0.0001 or more: 1/10000 of the sum"),
        ({"passes_at_most": 0}, "mix.passes_at_most", "expected a number above 0"),
        ({"phases": [{"after_step": 0, "weights": {"web": 1}}]}, "mix.phases.0.after_step", "expected a number above"),
        (
            {"phases": [{"after_step": 9, "weights": {"web": 1}}, {"after_step": 5, "weights": {"code": 1}}]},
            "mix.phases",
            "expected each after_step to be above the one before",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_field(fields: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(Invalid, match=expected) as refused:
        of(**fields)
    assert refused.value.field == field


def test_a_phase_that_never_comes_is_refused() -> None:
    mix_config = of(phases=[{"after_step": 10, "weights": {"web": 1}}])
    mix.check_comes(mix_config, 11)
    with pytest.raises(Invalid, match=r"below run.steps \(10\): the phase after step 10 never"):
        mix.check_comes(mix_config, 10)
