"""The agreement of the ranks on a state in memory: only one of which every part is there counts, the newest first."""

from slipway.trainer.checkpoint.memory.slots import complete

OLD, NEW, NEXT = (0, 10), (0, 11), (1, 9)


def test_the_newest_state_that_all_ranks_hold_comes_first() -> None:
    assert complete([[(OLD, 0, 2), (NEW, 0, 2)], [(NEW, 1, 2), (OLD, 1, 2)]]) == [NEW, OLD]


def test_a_state_that_one_rank_has_not_sealed_does_not_count() -> None:
    assert complete([[(OLD, 0, 2), (NEW, 0, 2)], [(OLD, 1, 2)]]) == [OLD]


def test_ranks_may_have_changed_places() -> None:
    assert complete([[(OLD, 1, 2)], [(OLD, 0, 2)]]) == [OLD]


def test_a_new_rank_may_hold_nothing() -> None:
    assert complete([[(OLD, 0, 1)], []]) == [OLD]


def test_the_parts_of_a_lost_node_leave_nothing_whole() -> None:
    assert complete([[(OLD, 0, 2), (NEW, 0, 2)]]) == []


def test_a_later_generation_comes_before_later_steps_of_an_earlier_one() -> None:
    """It went on from what it found good: what the earlier one has beyond that was not."""
    assert complete([[(NEW, 0, 1), (NEXT, 0, 1)]]) == [NEXT, NEW]
