"""Choosing: which nodes take part when some are lost, by the layout; and who then has which samples."""

from typing import Any

import pytest

from slipway.trainer.base import codec
from slipway.trainer.config import layout
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import incident_records
from slipway.trainer.elastic.generations import Arrival, Members
from slipway.trainer.elastic.rendezvous import chosen
from slipway.trainer.loading import order
from tests.trainer.conftest import settings

pytestmark = pytest.mark.pure

HSDP: dict[str, Any] = {"shard": "hybrid", "shard_ranks": 2}


def config(sequences: int = 8, **of_layout: Any) -> Config:
    placement = {"store": "/store", "durable": "/durable", "nvme": "/nvme"}
    sections = settings(layout=of_layout, batch={"sequences": sequences})
    return codec.build(Config, {"training": "tiny", "snapshot": "0" * 64, **sections, "placement": placement})


def nodes(names: str, ranks: int = 1) -> tuple[Arrival, ...]:
    return tuple(Arrival(name, -1, ranks, "127.0.0.1") for name in names)


def members(names: str, ranks: int = 1) -> Members:
    return Members(1, 0, nodes(names, ranks), 0.0)


def nodes_chosen(names: str, before: str, most: int = 8, **of_layout: Any) -> str:
    node_choice = chosen(nodes(names), members(before) if before else None, most, config(**of_layout))
    return "".join(arrival.node for arrival in node_choice)


def test_of_replicas_on_one_node_each_all_that_are_left_go_on() -> None:
    assert nodes_chosen("acd", before="abcd") == "acd"


def test_the_rest_of_a_replica_that_lost_a_node_waits_and_the_whole_ones_go_on() -> None:
    assert nodes_chosen("acd", before="abcd", **HSDP) == "cd"
    assert nodes_chosen("abc", before="abcd", **HSDP) == "ab"


def test_replicas_that_both_lost_a_node_go_on_as_one() -> None:
    assert nodes_chosen("bd", before="abcd", **HSDP) == "bd"


def test_nodes_that_are_back_take_part_when_their_number_is_whole_again() -> None:
    assert nodes_chosen("abcd", before="cd", **HSDP) == "abcd"
    assert nodes_chosen("acd", before="cd", **HSDP) == "cd"


def test_no_more_take_part_than_the_job_may_have() -> None:
    assert nodes_chosen("abcd", before="", most=3) == "abc"


def test_where_the_layout_fits_no_number_of_nodes_all_take_part_and_the_ranks_say_why_it_does_not() -> None:
    assert nodes_chosen("abc", before="abcd", tensor=3) == "abc"


def test_a_batch_of_fewer_sequences_than_ranks_bounds_the_nodes() -> None:
    assert layout.fitting(config(sequences=3), 1, 5) == 3


def test_each_sample_of_a_batch_is_on_one_data_parallel_rank_whatever_their_number() -> None:
    for ranks in range(1, 8):
        spans = order.spans(7, layout.check(config(sequences=7), ranks, 1))
        assert [sample for first, end in spans for sample in range(first, end)] == list(range(7))


def test_an_incident_says_who_has_whose_samples() -> None:
    sentence = incident_records.divided(config(), members("abcd", 2), members("acd", 2))
    assert sentence == (
        "; of the 8 samples of each step: a 0 to 1, c 2 to 4, d 5 to 7 (before: a 0 to 1, b 2 to 3, c 4 to 5, d 6 to 7)"
    )


def test_an_incident_that_costs_no_node_says_nothing_of_samples() -> None:
    assert incident_records.divided(config(), members("ab"), members("ab")) == ""


def test_of_many_nodes_only_the_number_is_said() -> None:
    many = "abcdefghi"
    sentence = incident_records.divided(config(sequences=32), members(many), members(many[1:]))
    assert sentence.endswith("(before: 9 nodes, in the order of their ranks)")
