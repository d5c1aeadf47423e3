"""Peers: two ranks, here threads, that agree over a real store to leave a section of work together."""

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import TCPStore

from slipway.trainer.elastic.peers import Peers
from slipway.trainer.node.world import Interrupted

SECONDS = 60.0


class Exhausted(Exception):
    """What a rank cannot go on from."""


def reason(error: BaseException) -> str | None:
    return str(error) if isinstance(error, Exhausted) else None


class Rank:
    """One rank, and an exchange that waits until it is ended."""

    def __init__(self, store: TCPStore, number: int) -> None:
        self.ended, self.rejoined = threading.Event(), 0
        self.peers = Peers(store, number, 2, SECONDS, self.ended.set, self._rejoin)

    def _rejoin(self) -> None:
        self.rejoined += 1
        self.ended.clear()

    def wait_in_an_exchange(self) -> None:
        assert self.ended.wait(SECONDS)
        raise RuntimeError("connection closed by peer")

    def section(self, work: Callable[[], None]) -> str:
        """Why it was left; empty when it was finished."""
        try:
            with self.peers.section(reason):
                work()
        except Interrupted as why:
            return str(why)
        return ""


def run_out() -> None:
    raise Exhausted("no memory")


@pytest.fixture
def ranks() -> Iterator[tuple[Rank, Rank]]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=SECONDS))
    joined = Rank(store, 0), Rank(store, 1)
    yield joined
    for rank in joined:
        rank.peers.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_all_ranks_leave_a_section_that_one_cannot_finish_again_and_again(
    ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    one, other = ranks
    for _ in range(3):
        waiting = threads.submit(one.section, one.wait_in_an_exchange)
        failing = threads.submit(other.section, run_out)
        assert waiting.result(SECONDS) == failing.result(SECONDS) == "rank 1: no memory"
        one.peers.rejoin()
        other.peers.rejoin()
    assert (one.rejoined, other.rejoined) == (3, 3)


def test_both_ranks_may_fail_at_once(ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor) -> None:
    sections = [threads.submit(rank.section, run_out) for rank in ranks]
    assert all(section.result(SECONDS).endswith("no memory") for section in sections)


def test_a_rank_that_is_behind_finishes_its_earlier_section_first(
    ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    ahead, behind = ranks
    assert ahead.section(lambda: None) == ""
    ahead_leaves: list[Future[str]] = []

    def finish_late() -> None:
        ahead_leaves.append(threads.submit(ahead.section, run_out))
        with behind.peers._state:
            assert behind.peers._state.wait_for(lambda: behind.peers._named == 2, SECONDS), "it heard the word"

    assert behind.section(finish_late) == ""
    assert not behind.ended.is_set() and not ahead.ended.is_set(), "no exchange was ended meanwhile"
    assert behind.section(behind.wait_in_an_exchange) == ahead_leaves[0].result(SECONDS) == "rank 0: no memory"


def test_what_an_exchange_gave_that_was_ended_without_an_error_counts_for_nothing(
    ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    """As on a GPU, whose kernels end without an error."""
    one, other = ranks

    def wait_silently() -> None:
        assert one.ended.wait(SECONDS)

    silent = threads.submit(one.section, wait_silently)
    assert other.section(run_out) == silent.result(SECONDS) == "rank 1: no memory"


def test_any_other_error_passes(ranks: tuple[Rank, Rank]) -> None:
    with pytest.raises(ZeroDivisionError), ranks[0].peers.section(reason):
        _ = 1 / 0


class Activations:
    """What a step that fails has allocated."""


def test_the_memory_of_a_failed_step_is_free_before_the_exchanges_are_ended(
    ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    """To end them takes memory too."""
    one, other = ranks
    activations: list[weakref.ref[Activations]] = []
    freed: list[bool] = []

    def run_out_with_activations() -> None:
        held_by_this_frame = Activations()
        activations.append(weakref.ref(held_by_this_frame))
        try:
            raise MemoryError("no memory")
        except MemoryError:
            raise Exhausted("no memory") from None

    def end_exchanges() -> None:
        freed.append(activations[0]() is None)
        other.ended.set()

    other.peers._end_exchanges = end_exchanges
    waiting = threads.submit(one.section, one.wait_in_an_exchange)
    assert other.section(run_out_with_activations) == waiting.result(SECONDS) == "rank 1: no memory"
    assert freed == [True]


def test_a_rank_whose_exchanges_cannot_be_ended_fails_at_once_and_says_why(
    ranks: tuple[Rank, Rank], threads: ThreadPoolExecutor
) -> None:
    one, other = ranks

    def fail() -> None:
        raise OSError("the descriptors cannot be listed")

    other.peers._end_exchanges = fail
    waiting = threads.submit(one.section, one.wait_in_an_exchange)
    with pytest.raises(RuntimeError, match="could not be ended: the descriptors cannot be listed"):
        other.section(run_out)
    assert waiting.result(SECONDS) == "rank 1: no memory"
