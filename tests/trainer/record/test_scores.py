"""Scores: the sums of each example, and how sure the model was of those that count for it."""

from dataclasses import dataclass

import pytest

from slipway.trainer.record import scores

pytestmark = pytest.mark.pure


@dataclass(frozen=True)
class Part:
    """The sums over a part of an example, in two parts of the probability."""

    loss: float
    right: int
    predicted: int
    confidence: tuple[tuple[int, float, int], ...]


PARTS = [
    Part(1.0, 1, 2, ((2, 0.5, 1), (0, 0.0, 0))),
    Part(2.0, 0, 1, ((0, 0.0, 0), (1, 0.9, 0))),
    Part(4.0, 2, 2, ((0, 0.0, 0), (2, 1.8, 2))),
]


def test_an_example_has_the_sums_of_its_parts():
    example_scores = scores.of_examples([0, 0, 1], PARTS, 1.5)
    assert (example_scores.losses, example_scores.predicted, example_scores.right) == ((3.0, 4.0), (3, 2), (1, 2))
    assert example_scores.confidence[0] == (2, 0.5, 1) and example_scores.confidence[1] == pytest.approx((3, 2.7, 2))


def test_what_is_no_example_of_the_calibration_does_not_count_for_it():
    example_scores = scores.of_examples([0, 0, 1], PARTS, 1.5, calibrated=1)
    assert example_scores.losses == (3.0, 4.0) and example_scores.confidence == ((2, 0.5, 1), (1, 0.9, 0))


def test_where_ranks_share_the_vocabulary_nothing_is_known_of_it():
    assert scores.of_examples([0], [Part(1.0, 0, 1, ())], 1.0).confidence == ()
