"""Whether low rungs rank trials as high ones do, and what the report says where they do not."""

import pytest

from slipway.assets.sweeps.events import Event, Proposed, Reported
from slipway.assets.sweeps.ranking import ENOUGH, agreement, spearman, warning
from slipway.assets.sweeps.state import SweepState, fold
from tests.assets.sweeps.simulation import begun

pytestmark = pytest.mark.pure


def ranked(*values: tuple[float | None, ...]) -> SweepState:
    """A sweep whose trials reported these values at the rungs 1 and 3 and at their last step, as far as they came."""
    log: list[Event] = []
    for number, of_trial in enumerate(values):
        log.append(Proposed(trial=number, parameters={}, until=9))
        steps = zip((1, 3, 9), of_trial, strict=False)
        log += [Reported(trial=number, step=step, value=value) for step, value in steps]
    return fold([*begun(), *log])


def test_ranks_and_not_values_are_correlated():
    assert spearman([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)


def test_equal_values_share_the_mean_of_their_ranks():
    assert spearman([1, 1, 2, 2], [1, 2, 3, 4]) == pytest.approx(0.894, abs=1e-3)


def test_where_all_values_of_a_rung_are_equal_nothing_is_known():
    assert spearman([1, 1, 1], [1, 2, 3]) == 0


def test_each_rung_is_compared_with_the_next_one_over_the_trials_that_have_values_at_both():
    came_to_the_end = [(float(number), float(number), float(-number)) for number in range(ENOUGH)]
    sweep = ranked(*came_to_the_end, (0.5,), (None, 7.0), (9.0, 9.0))
    first, second = agreement(sweep)
    assert (first.lower, first.higher, first.trials) == (1, 3, ENOUGH + 1)
    assert first.correlation == pytest.approx(1)
    assert (second.lower, second.higher, second.trials) == (3, 9, ENOUGH)
    assert second.correlation == pytest.approx(-1)


def test_too_few_trials_say_nothing():
    sweep = ranked(*[(float(number), float(-number)) for number in range(ENOUGH - 1)])
    assert agreement(sweep) == () and warning(sweep) is None


def test_a_rung_that_ranks_unlike_the_next_one_is_named():
    message = warning(ranked(*[(float(number), float(-number)) for number in range(ENOUGH)]))
    assert message is not None
    assert message.startswith(
        f"step 1 hardly ranks trials as step 3 does (rank correlation -1.00 over the {ENOUGH} trials that went on)"
    )


def test_rungs_that_agree_are_not_spoken_of():
    assert warning(ranked(*[(float(number), float(number) ** 3) for number in range(ENOUGH)])) is None
