"""Rank figures: each rank of several records what differs between them."""

import functools
import itertools
from pathlib import Path

from slipway.trainer.metrics import rank_figures
from slipway.trainer.metrics.rank_figures import RankFigures
from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.recorder import RankRecorder

USAGE = {"cpu_cores": 0.5, "cpu_wait": 0.1, "host_memory": 1000}


def recorded(store: Path) -> list[tuple[int, int, dict[str, float]]]:
    """(rank, step, figures) of each event."""
    events = [event for event in ledger.read(store) if event["event"] == rank_figures.EVENT]
    return sorted((event["rank"], event["step"], event["figures"]) for event in events)


def test_each_rank_records_the_means_of_its_own_steps(tmp_path: Path):
    for rank in (0, 1):
        with RankRecorder(tmp_path, Token(1), rank) as recorder:
            figures = RankFigures(recorder, 2)
            figures.add(1, {"forward": 1.0, "data": 0.5}, USAGE)
            figures.add(2, {"forward": 2.0 + rank, "checkpoint": 7.0}, USAGE)
            figures.tell()
            figures.tell()  # nothing was done since
    own = {"steps": 2, "data_seconds": 0.25, "cpu_cores": 0.5, "host_memory": 1000}
    assert recorded(tmp_path) == [(0, 2, {**own, "forward_seconds": 1.5}), (1, 2, {**own, "forward_seconds": 2.0})]


def test_a_rank_alone_has_nothing_that_differs(tmp_path: Path):
    with RankRecorder(tmp_path, Token(1), 0) as recorder:
        figures = RankFigures(recorder, 1)
        figures.add(1, {"forward": 1.0}, USAGE)
        figures.tell()
    assert recorded(tmp_path) == []


def test_the_more_ranks_the_more_seldom_each_records(tmp_path: Path):
    for rank, size in ((1, 8), (2, 256)):
        seconds = itertools.count()  # one begins, and each step looks once
        with RankRecorder(tmp_path, Token(1), rank) as recorder:
            figures = RankFigures(recorder, size, functools.partial(next, seconds))
            for step in range(1, 1000):
                figures.add(step, {"forward": 1.0}, {})
    counts = {rank: sum(recording_rank == rank for recording_rank, _, _ in recorded(tmp_path)) for rank in (1, 2)}
    assert 80 < counts[1] < 100 and counts[2] == 3
