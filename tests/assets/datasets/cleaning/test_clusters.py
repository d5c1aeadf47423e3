"""Clusters: the same as a search through the graph gives, in whatever order and groups connections come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning import clusters
from slipway.assets.datasets.cleaning.clusters import Clusters

pytestmark = pytest.mark.pure

ROWS = [3, 5, 8, 13, 21, 34, 55, 89, 144, 233]
CONNECTIONS = st.lists(st.tuples(st.sampled_from(ROWS), st.sampled_from(ROWS)), max_size=30)


def by_search(connections: list[tuple[int, int]]) -> dict[int, int]:
    """The smallest row that can be reached from each row."""
    found = dict[int, int]()
    for row in ROWS:
        reached = {row}
        for _ in ROWS:
            reached |= {end for pair in connections if reached & set(pair) for end in pair}
        found[row] = min(reached)
    return found


def firsts(of: Clusters) -> dict[int, int]:
    return {row: first for rows, smallest in of.firsts() for row, first in zip(rows, smallest, strict=True)}


@given(CONNECTIONS, st.integers(1, 30))
def test_a_cluster_is_what_can_be_reached(connections: list[tuple[int, int]], at_once: int):
    found = Clusters(np.array(ROWS))
    for begin in range(0, len(connections), at_once):
        some = connections[begin : begin + at_once]
        found.connect(*(np.array(ends) for ends in zip(*some, strict=True)))
        firsts(found)  # looking between two groups changes nothing
    assert firsts(found) == by_search(connections)


def test_a_chain_over_all_rows_is_one_cluster(monkeypatch):
    monkeypatch.setattr(clusters, "ROWS_AT_ONCE", 64)
    rows = np.arange(10_000)
    for upwards in (1, -1):
        found = Clusters(rows)
        for at in np.array_split(rows[1:][::upwards], 100):
            found.connect(at, at - 1)
        assert set(firsts(found).values()) == {0}


@given(CONNECTIONS)
def test_equal_pairs_are_one(connections: list[tuple[int, int]]):
    ours, others = (np.array([pair[end] for pair in connections], np.int64) for end in (0, 1))
    assert list(zip(*Clusters(np.array(ROWS)).distinct(ours, others), strict=True)) == sorted(set(connections))
