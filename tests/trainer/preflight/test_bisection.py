"""Bisection: the nodes that spoil the network are found in as many rounds as halvings lead to one node."""

import pytest

from slipway.trainer.preflight.bisection import BisectionState, NodeGroup, after, begin, is_good, next_round

pytestmark = pytest.mark.pure


def bisect(nodes: int, bad: set[str], good: tuple[str, ...] = ()) -> tuple[BisectionState, int]:
    """The state at the end, and how many rounds it took; a group is good when no bad node is in it."""
    state, rounds = begin([f"n{number}" for number in range(nodes)], good), 0
    while groups := next_round(state):
        taken = [node for group in groups for node in group.nodes]
        assert len(taken) == len(set(taken)), "the groups of a round are measured at once"
        state, rounds = after(state, {group: not bad & set(group.nodes) for group in groups}), rounds + 1
    return state, rounds


@pytest.mark.parametrize(("nodes", "rounds"), [(4, 2), (8, 3), (32, 5)])
def test_one_bad_node_among_many_is_found_in_as_many_rounds_as_halvings(nodes: int, rounds: int):
    for number in range(nodes):
        state, taken = bisect(nodes, {f"n{number}"})
        assert (state.bad, taken, state.unresolved) == ((f"n{number}",), rounds, ())


@pytest.mark.parametrize("bad", [{"n0", "n1"}, {"n0", "n7"}, {"n1", "n2", "n6"}])
def test_several_bad_nodes_are_all_found(bad: set[str]):
    state, _ = bisect(8, bad)
    assert set(state.bad) == bad and len(state.good) == 8 - len(bad) and not state.unresolved


@pytest.mark.parametrize("nodes", [2, 3, 5, 6, 7])
def test_numbers_that_are_no_power_of_two_are_no_problem(nodes: int):
    for number in range(nodes):
        state, _ = bisect(nodes, {f"n{number}"}, good=("k0",))
        assert state.bad == (f"n{number}",) and not state.unresolved


def test_good_nodes_are_cleared_by_one_round():
    state, rounds = bisect(32, set())
    assert (state.bad, rounds, len(state.good)) == ((), 1, 32)


def test_of_two_nodes_without_a_good_third_nothing_can_be_said():
    state, _ = bisect(2, {"n0"})
    assert state.bad == () and state.unresolved == ("n0", "n1")


def test_a_node_that_is_named_twice_is_refused():
    with pytest.raises(ValueError, match="found n0 twice"):
        begin(["n0", "n1"], ["n0"])


def test_a_group_is_good_when_it_has_half_of_the_fastest_or_of_what_is_expected():
    assert is_good(5.0, 10.0) and not is_good(4.9, 10.0) and not is_good(None, 0.0)
    assert is_good(10.0, 100.0, expected=20.0) and not is_good(9.0, 9.0, expected=20.0)


def test_a_lone_node_is_measured_with_a_good_one():
    state = BisectionState(untested=(("n2",), ("n3",)), good=("n0",))
    assert next_round(state) == [NodeGroup(("n2",), "n0")], "each good node is in one group"


@pytest.mark.parametrize(("suspects", "good"), [((), ()), (("n0",), ()), ((), ("n0",))])
def test_fewer_than_two_nodes_have_nobody_to_exchange_with(suspects: tuple[str, ...], good: tuple[str, ...]):
    with pytest.raises(ValueError, match=r"found (?:n0|none) alone, expected two at least, or one and a good one"):
        begin(suspects, good)
