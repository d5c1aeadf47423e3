"""The hand-over: from which step ranks go on that have lost one of them, and who gives its state to whom."""

import pytest

from slipway.trainer.config.layout import Mesh
from slipway.trainer.elastic.hand_over import HandOverPlan, HeldOffer, agreement, part

REPLICAS = Mesh(replicas=3)
HYBRID = Mesh(replicas=2, shards=2)
SHARDS = Mesh(shards=2)


def agreed(mesh: Mesh, *steps: int | None) -> HandOverPlan | None:
    """What ranks agree on that hold their part after these steps; None for a new rank."""
    parts = [part(rank, mesh) for rank in range(mesh.ranks)]
    return agreement([None if step is None else HeldOffer(step, parts[at]) for at, step in enumerate(steps)], parts)


def test_a_new_replica_gets_its_state_from_another_one() -> None:
    assert agreed(REPLICAS, 7, None, 7) == HandOverPlan(7, {1: 0})


def test_replicas_that_hold_the_state_take_turns_in_giving_it() -> None:
    assert agreed(Mesh(replicas=4), 7, None, 7, None) == HandOverPlan(7, {1: 0, 3: 2})


def test_a_replica_that_had_not_finished_its_update_gets_the_newer_state() -> None:
    assert agreed(REPLICAS, None, 7, 8) == HandOverPlan(8, {0: 2, 1: 2})


def test_a_new_rank_of_a_hybrid_layout_gets_its_shard_from_the_other_group() -> None:
    assert agreed(HYBRID, 7, None, 7, 7) == HandOverPlan(7, {1: 3})


def test_a_step_counts_only_where_every_shard_of_it_is_held() -> None:
    assert agreed(HYBRID, 8, 7, 7, None) == HandOverPlan(7, {0: 2, 3: 1})


@pytest.mark.parametrize("steps", [(7, None), (7, 8), (None, None)])
def test_without_a_replica_of_a_shard_nothing_is_handed_over(steps: tuple[int | None, ...]) -> None:
    assert agreed(SHARDS, *steps) is None


def test_shards_that_are_all_there_go_on_from_where_they_are() -> None:
    assert agreed(SHARDS, 7, 7) == HandOverPlan(7, {})


def test_ranks_that_are_fewer_go_on_from_what_replicas_hold() -> None:
    before = [part(rank, HYBRID) for rank in (0, 3)]
    next_parts = [part(rank, SHARDS) for rank in range(2)]
    assert agreement([HeldOffer(7, rank_part) for rank_part in before], next_parts) == HandOverPlan(7, {})
