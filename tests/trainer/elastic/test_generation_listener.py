"""A rank's stay in a generation: two ranks, here threads, over a real store."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import TCPStore

from slipway.trainer.base import codec
from slipway.trainer.elastic.generation_listener import GenerationEnded, GenerationListener, another
from slipway.trainer.elastic.generations import Arrival, End, Members, key
from tests.conftest import until

SECONDS = 60.0
NODES = (Arrival("a", 0, 1, ""), Arrival("b", 1, 1, ""))


class Rank:
    """One rank, and an exchange that waits until it is ended."""

    def __init__(self, job: TCPStore, rank: int) -> None:
        self.ended = threading.Event()
        self.listener = GenerationListener(another(job), 0, rank, 2, self.ended.set)

    def exchange(self, fails: str = "") -> None:
        with self.listener.exchanging(lambda error: "gloo" in str(error)):
            if not fails:
                assert self.ended.wait(SECONDS)
            raise RuntimeError(fails or "gloo: connection closed by peer")


@pytest.fixture
def job() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=SECONDS))


@pytest.fixture
def ranks(job: TCPStore) -> Iterator[tuple[Rank, Rank]]:
    joined = Rank(job, 0), Rank(job, 1)
    yield joined
    for rank in joined:
        rank.listener.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def say_that_it_is_over(job: TCPStore, generation: int = 0, survivors_stay: bool = True) -> None:
    end = End("c", "killed", "rank 2 was killed", final=not survivors_stay, code=137, at=0.0, ranks_stay=survivors_stay)
    job.set(key(generation, "end"), codec.encode(end).decode())


def test_every_rank_comes_out_of_its_exchange_when_the_generation_is_over(
    job: TCPStore, ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    waiting: list[Future[None]] = [threads.submit(rank.exchange) for rank in ranks]
    say_that_it_is_over(job)
    for exchange in waiting:
        with pytest.raises(GenerationEnded, match="rank 2 was killed"):
            exchange.result(SECONDS)


def test_an_exchange_that_fails_on_one_rank_alone_ends_the_generation_for_all(
    ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    waiting = threads.submit(ranks[0].exchange)
    failing = threads.submit(ranks[1].exchange, "gloo: connection reset")
    for exchange in (waiting, failing):
        with pytest.raises(GenerationEnded, match="an exchange of rank 1 failed: gloo: connection reset"):
            exchange.result(SECONDS)


def test_an_error_that_is_none_of_an_exchange_ends_its_rank_alone(ranks: tuple[Rank, Rank]) -> None:
    with pytest.raises(RuntimeError, match="a defect"):
        ranks[0].exchange("a defect")
    ranks[1].listener.check()


def test_where_no_rank_may_stay_the_error_of_the_exchange_ends_the_process(
    job: TCPStore, ranks: tuple[Rank, Rank]
) -> None:
    say_that_it_is_over(job, survivors_stay=False)
    with pytest.raises(RuntimeError, match="connection closed"):
        ranks[0].exchange()


def test_a_rank_that_is_not_in_an_exchange_hears_it_too(job: TCPStore, ranks: tuple[Rank, Rank]) -> None:
    ranks[0].listener.check()
    say_that_it_is_over(job)
    until(ranks[0].ended.is_set, "the word", SECONDS)
    with pytest.raises(GenerationEnded):
        ranks[0].listener.check()


def test_ranks_that_wait_for_one_that_is_lost_before_it_comes_leave_the_meeting(
    job: TCPStore, ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    rendezvous = threads.submit(ranks[0].listener.meet, SECONDS)
    say_that_it_is_over(job)
    with pytest.raises(GenerationEnded):
        rendezvous.result(SECONDS)


def test_a_rank_finds_its_place_in_the_next_generation_that_begins(job: TCPStore, ranks: tuple[Rank, Rank]) -> None:
    say_that_it_is_over(job, generation=1)
    job.set(key(2, "members"), codec.encode(Members(1, 2, NODES[1:], at=0.0)).decode())
    environment = {"LOCAL_RANK": "0"}
    ranks[1].listener.next(SECONDS, "b", environment)
    assert job.check([key(0, "left", 1)])
    assert environment == {
        "LOCAL_RANK": "0",
        "SLIPWAY_GENERATION": "2",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "GROUP_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
    }


def test_a_rank_of_a_node_that_takes_no_part_ends(job: TCPStore, ranks: tuple[Rank, Rank]) -> None:
    job.set(key(1, "members"), codec.encode(Members(1, 1, NODES[1:], at=0.0)).decode())
    with pytest.raises(RuntimeError, match="node a has no place in generation 1"):
        ranks[0].listener.next(SECONDS, "a", {})
