"""Slots: which nodes have room for one more trial, and what is said about more trials than the fleet can hold."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from slipway.assets.sweeps.slots import Slots, faults
from slipway.recipes.load import load
from slipway.recipes.training import NodesSection, PlacementSection
from slipway.resources.fleet.protocol import Node
from tests.recipes.conftest import SAMPLES, SWEEP, copied


@dataclass(frozen=True)
class Nodes:
    """A fleet of these nodes."""

    names: tuple[str, ...]
    scheduled: bool = False
    lost: tuple[str, ...] = ()

    def nodes(self) -> list[Node]:
        return [Node(name, ready=name not in self.lost) for name in self.names]


def slots(fleet: Nodes, nodes: int = 1, ranks: int = 1, cores: int = 2) -> Slots:
    placement = PlacementSection(nodes=NodesSection(min=nodes, max=nodes), ranks_per_node=ranks)
    return Slots(fleet, placement, cores)


def test_a_node_has_a_slot_for_as_many_trials_as_it_has_cores_for_their_ranks():
    assert slots(Nodes(("a", "b")), cores=8).most == 8
    assert slots(Nodes(("a", "b")), ranks=2, cores=8).most == 4
    assert slots(Nodes(("a", "b")), ranks=8, cores=2).most == 2


def test_a_trial_on_two_nodes_takes_a_slot_of_each():
    trial_slots = slots(Nodes(("a", "b", "c")), nodes=2, cores=3)
    assert trial_slots.most == 1
    assert trial_slots.free([]) == ("a", "b", "c")
    assert trial_slots.free([("a", "b")]) == ()


def test_a_node_that_is_full_or_not_ready_has_no_room():
    fleet = Nodes(("a", "b", "c"), lost=("c",))
    assert slots(fleet).free([("a",)]) == ("b",)
    assert slots(fleet, cores=6).free([("a",), ("a",), ("b",)]) == ("b",)


def test_where_a_scheduler_has_the_queue_every_ready_node_is_offered_and_nothing_is_too_many():
    trial_slots = slots(Nodes(("a", "b", "c"), scheduled=True, lost=("c",)))
    assert trial_slots.free([("a",), ("b",)]) == ("a", "b")
    assert trial_slots.too_many(1000) == ""


def test_more_trials_than_the_fleet_can_ever_hold_are_reported_and_wait():
    trial_slots = slots(Nodes(("a", "b"), lost=("b",)))
    assert trial_slots.too_many(2) == ""
    assert trial_slots.too_many(8) == (
        "parallel: found 8, but the fleet's 2 nodes hold 2 trials at a time, 1 on a node; the others wait for a slot"
    )


def test_a_trial_that_needs_more_nodes_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"placement\.nodes\.min: found 3, expected at most 2, the nodes of the fleet"):
        slots(Nodes(("a", "b")), nodes=3).check()


def test_more_trials_or_nodes_than_an_embedded_fleet_can_ever_hold_are_refused_with_line_and_field(tmp_path: Path):
    folder = copied(tmp_path)

    def problems(fleet: Nodes, cores: int) -> list[str]:
        return folder.problems(further=lambda recipes: faults(fleet, recipes, cores))

    line = folder.edit(SWEEP, "parallel: 2", "parallel: 2 ")
    capacity = "the fleet's 1 nodes hold 1 trials at a time, 1 on a node"
    assert problems(Nodes(("a",)), cores=1) == [
        f"{SWEEP}:{line}: parallel: found 2, expected at most 1 here: {capacity}"
    ]
    seed = folder.edit(SWEEP, "seed: 0", "seed: 0\nplacement: {nodes: {min: 2, max: 2}}")
    nodes = "placement.nodes.min: found 2, expected at most 1, the nodes of the fleet"
    assert problems(Nodes(("a",)), cores=4) == [f"{SWEEP}:{seed + 1}: {nodes}"]


def test_where_the_fleet_holds_all_or_a_scheduler_has_a_queue_nothing_is_refused():
    recipes = load(SAMPLES, {})
    assert not list(faults(Nodes(("a", "b")), recipes, cores=2))
    assert not list(faults(Nodes(("a",), scheduled=True), recipes, cores=1))
