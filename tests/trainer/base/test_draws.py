"""Draws: a function of seed and place alone, and uniform."""

import numpy as np
import pytest

from slipway.trainer.base.draws import uniforms

pytestmark = pytest.mark.pure

POSITIONS = np.arange(4000, dtype=np.uint64)


def test_a_sample_draws_the_same_numbers_beside_any_other_samples() -> None:
    together = uniforms(3, POSITIONS, 4)
    assert np.array_equal(together[7:9], uniforms(3, POSITIONS[7:9], 4))
    assert np.array_equal(together[:, :2], uniforms(3, POSITIONS, 2))


def test_no_two_numbers_of_places_and_seeds_are_equal() -> None:
    drawn = np.stack([uniforms(seed, POSITIONS, 4) for seed in (0, 1, 2**63 - 1)])
    assert len(np.unique(drawn)) == drawn.size


def test_draws_are_uniform_and_independent_of_their_neighbours() -> None:
    drawn = uniforms(0, POSITIONS, 4)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert np.histogram(drawn, 10, (0, 1))[0] / drawn.size == pytest.approx(0.1, abs=0.01)
    for one, other in ((drawn[:-1, 0], drawn[1:, 0]), (drawn[:, 0], drawn[:, 1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
