"""Suspects: the rank for which the others wait is named, by what is most certain first."""

import pytest

from slipway.trainer.diagnosis.folder import DiagnosisManifest
from slipway.trainer.diagnosis.ranks import RankSeen
from slipway.trainer.diagnosis.suspects import Suspect, suspects
from slipway.trainer.record.heartbeat import Beat

pytestmark = pytest.mark.pure


def manifests(*ranks: RankSeen) -> list[DiagnosisManifest]:
    """What the nodes found, each with one rank."""
    return [DiagnosisManifest(f"node-{rank.rank}", 0.0, 0.1, "a test", (rank,), {}) for rank in ranks]


def waiting(rank: int, exchange: str = "all_reduce") -> RankSeen:
    return RankSeen(rank, 100 + rank, "waiting", f"{exchange or 'read'} (x.py:1)", exchange)


def beat(rank: int, step: int) -> Beat:
    return Beat(rank, "training", step, 0.0, 0.0)


def test_a_rank_that_cannot_run_is_suspected_before_one_that_is_in_no_exchange():
    suspected = suspects(manifests(waiting(0), RankSeen(1, 101, "stopped"), waiting(2, "")), [])
    assert suspected == [Suspect(1, "node-1", "it was stopped")]


def test_a_rank_that_waits_for_a_disk_is_suspected_with_the_place_in_the_kernel():
    suspected = suspects(
        manifests(waiting(0), RankSeen(1, 101, "waiting for a disk or a driver", kernel="ceph_read")), []
    )
    assert suspected == [Suspect(1, "node-1", "it was waiting for a disk or a driver, in the kernel's ceph_read")]


def test_a_rank_that_did_not_enter_the_exchange_of_the_others_is_suspected():
    [suspect] = suspects(manifests(waiting(0), waiting(1, ""), waiting(2)), [])
    assert (suspect.rank, suspect.node) == (1, "node-1")
    assert suspect.why == "it did not enter all_reduce, in which 2 ranks wait; it was in read (x.py:1)"


def test_a_rank_whose_node_did_not_answer_is_suspected_when_all_others_wait():
    [suspect] = suspects(manifests(waiting(0), waiting(1)), [beat(0, 7), beat(1, 7), beat(2, 7)])
    assert (suspect.rank, suspect.node) == (2, "")


def test_a_rank_that_is_behind_is_suspected_when_all_wait():
    [suspect] = suspects(manifests(waiting(0), waiting(1)), [beat(0, 7), beat(1, 6)])
    assert (suspect.rank, suspect.why) == (1, "it was training after step 6, the farthest rank after step 7")


def test_nobody_is_suspected_when_all_wait_in_one_exchange():
    assert suspects(manifests(waiting(0), waiting(1)), [beat(0, 7), beat(1, 7)]) == []


def test_nobody_is_suspected_when_no_node_answered():
    assert suspects([], [beat(0, 7), beat(1, 7)]) == []
