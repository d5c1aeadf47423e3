"""Groups: the process groups of all ranks, which can be ended in the middle of an exchange and made again.

Ranks use gloo on CPU and NCCL on GPU. NCCL aborts its communicators. gloo cannot, so that its connections are shut down
(`trainer.node.links`). New groups meet in the same store, which the job or, without a supervisor, rank 0 hosts.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from trainer.node import generations
from trainer.node.links import Links
from trainer.node.peers import Peers

Connect = Callable[[Store | None], dist.ProcessGroup | None]
"""Makes the process groups of all ranks; they meet in the given store, or in the one that the environment names.
Returns the group for what is no tensor, where that is not the default one."""


class Groups:
    """The process groups of one rank."""

    def __init__(self, connect: Connect, rank: int, size: int, seconds: float) -> None:
        """Join the others. No rank waits for another for longer than `seconds`."""
        self._connect, self._links, self._times = connect, Links(), 0
        with self._links.opening():
            self.objects = connect(generations.rank_store(seconds=seconds))
        known: Any = dist.distributed_c10d
        self._store = known._get_default_store()
        self._links.store_port = self._store._underlying_non_prefix_store.port
        self.peers = Peers(self._store, rank, size, seconds, self._end_exchanges, self._rejoin)

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Make further groups inside; else their exchanges cannot be ended."""
        with self._links.opening():
            yield

    def leave(self) -> None:
        """Leave all groups."""
        self.peers.close()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _end_exchanges(self) -> None:
        if dist.get_backend() == "nccl":
            known: Any = dist.distributed_c10d
            known._abort_process_group()
        else:
            self._links.shut_down()

    def _rejoin(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        self._times += 1
        with self._links.opening():
            self.objects = self._connect(PrefixStore(f"again/{self._times}", self._store))
