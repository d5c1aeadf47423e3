"""Groups: the process groups of all ranks, which can be ended in the middle of an exchange and made again.

Ranks use gloo on CPU and NCCL on GPU. NCCL aborts its communicators. gloo cannot, so that its connections are shut down
(`slipway.trainer.node.links`). New groups meet in the same store, which the job or, without a supervisor, rank 0 hosts.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from slipway.trainer.node import generations
from slipway.trainer.node.links import Links
from slipway.trainer.node.peers import Peers
from slipway.trainer.node.stay import GenerationEnded, IsBroken, Stay

Connect = Callable[[Store | None, int, int], dist.ProcessGroup | None]
"""Makes the process groups of all ranks, of which this is the given one of so many. They meet in the given store, or in
the one that the environment names. Returns the group for what is no tensor, where that is not the default one."""


class Groups:
    """The process groups of one rank."""

    peers: Peers
    """What the ranks agree on beside their exchanges."""

    def __init__(self, connect: Connect, rank: int, size: int, seconds: float, stays: bool = False) -> None:
        """Join the others. No rank waits for another for longer than `seconds`.

        stays: whether this rank stays in its process when its generation is over, and joins the next one.
        """
        self._connect, self._links, self._times, self._seconds = connect, Links(), 0, seconds
        self.rank, self.size = rank, size
        self.objects: dist.ProcessGroup | None = None
        self._stay: Stay | None = None
        given = generations.rank_store(seconds=seconds)
        if given is None or not stays:
            self._open(given)
            return
        self._job = _job(given)
        self._join_generation()

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Make further groups inside; else their exchanges cannot be ended."""
        with self._links.opening():
            yield

    @contextlib.contextmanager
    def exchanging(self, is_broken: IsBroken) -> Iterator[None]:
        """Work with exchanges. Raises GenerationEnded when the generation is over and this rank stays; else nothing."""
        with self._stay.exchanging(is_broken) if self._stay else contextlib.nullcontext():
            yield

    @property
    def stays(self) -> bool:
        """Whether this rank stays when its generation is over."""
        return self._stay is not None

    def check(self) -> None:
        """Raises GenerationEnded when this rank has heard that the generation is over, and stays."""
        if self._stay:
            self._stay.check()

    def leave_generation(self, seconds: float) -> None:
        """Wait for the end of the generation, which is about to be announced. Raises GenerationEnded, RuntimeError."""
        assert self._stay is not None
        self._stay.leave(seconds)

    def join_next_generation(self) -> None:
        """Come out of a generation that is over, and join the next one; `rank` and `size` may be others then.

        Raises RuntimeError when none begins in time, or none has a place for this node.
        """
        while True:
            assert self._stay is not None
            self._close()
            self._stay.next(self._seconds, os.environ.get("SLIPWAY_NODE", "local"))
            with contextlib.suppress(GenerationEnded):  # another rank was lost before all had met
                self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
                return self._join_generation()

    def leave(self) -> None:
        """Leave all groups."""
        self._close()

    def _join_generation(self) -> None:
        generation = generations.given()
        assert generation is not None
        self._stay = Stay(self._job, generation, self.rank, self.size, self._end_all)
        self._stay.meet(self._seconds)
        with self._stay.exchanging(lambda error: isinstance(error, RuntimeError | TimeoutError)):
            self._open(self._stay.ranks)

    def _open(self, store: Store | None) -> None:
        with self._links.opening():
            self.objects = self._connect(store, self.rank, self.size)
        known: Any = dist.distributed_c10d
        self._store = known._get_default_store()
        self._links.store_port = _job(self._store).port
        self.peers = Peers(self._store, self.rank, self.size, self._seconds, self._end_exchanges, self._rejoin)

    def _close(self) -> None:
        """Leave all groups, and listen no more."""
        if self._stay:
            self._stay.close()
        if hasattr(self, "peers"):
            self.peers.close()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _end_all(self) -> None:
        """End all that this rank waits for, as its generation is over."""
        self._end_exchanges()
        if hasattr(self, "peers"):
            self.peers.abandon()

    def _end_exchanges(self) -> None:
        if dist.is_initialized() and dist.get_backend() == "nccl":
            known: Any = dist.distributed_c10d
            known._abort_process_group()
        self._links.shut_down()

    def _rejoin(self) -> None:
        self.check()
        if dist.is_initialized():
            dist.destroy_process_group()
        self._times += 1
        with self._links.opening():
            self.objects = self._connect(PrefixStore(f"again/{self._times}", self._store), self.rank, self.size)


def _job(store: Store) -> Any:
    """The store itself, without a prefix."""
    known: Any = store
    return known._underlying_non_prefix_store
