"""The job's store, as a supervisor uses it: records by key, and counters.

It is the rendezvous store that the launcher hosts; `slipway.trainer.elastic.generations` lists the keys. Every method
raises StoreGone if the store does not answer: without it no generation can begin, and the job ends.
"""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

from slipway.trainer.base import codec
from slipway.trainer.elastic import gloo_connections

Record = TypeVar("Record")
CONNECT_SECONDS = 10.0
"""The time of one attempt to connect: the process handles signals between two attempts."""
ANSWER_SECONDS = 60
"""The longest time for one answer of the store."""


class StoreGone(Exception):
    """The store of the job cannot be reached."""


class JobStore:
    """Records in a store of torch.distributed."""

    def __init__(self, store: Any) -> None:
        self._store = store

    @staticmethod
    def connected(host: str, port: int, seconds: float) -> "JobStore":
        """The store at this address, which may still be starting; tries for `seconds`. Raises StoreGone."""
        from torch._C._distributed_c10d import TCPStore

        with _answering():
            before = gloo_connections.sockets()
            store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))
            store.set_timeout(timedelta(seconds=ANSWER_SECONDS))
            # The timeout is for `wait` alone: without this limit, a hung store would block all other calls for ever.
            gloo_connections.limit_answers(gloo_connections.sockets() - before, ANSWER_SECONDS)
            return JobStore(store)

    @staticmethod
    def alone() -> "JobStore":
        """A store in the memory of this process, for a job of one rank."""
        from torch._C._distributed_c10d import HashStore

        return JobStore(HashStore())

    def has(self, key: str) -> bool:
        with _answering():
            return bool(self._store.check([key]))

    def read(self, key: str, kind: type[Record]) -> Record | None:
        """The record under a key; None if there is none."""
        if not self.has(key):
            return None
        with _answering():
            return codec.decode(kind, self._store.get(key), key)

    def write(self, key: str, record: Any) -> None:
        with _answering():
            self._store.set(key, codec.encode(record))

    def remove(self, key: str) -> None:
        with _answering():
            self._store.delete_key(key)

    def write_first(self, key: str, record: Record) -> Record:
        """Write a record unless there is one; returns the one that stands."""
        with _answering():
            stands = self._store.compare_set(key, "", codec.encode(record).decode())
            return codec.decode(type(record), stands, key)

    def number(self, key: str) -> int:
        """The next number under a key, from 0."""
        with _answering():
            return int(self._store.add(key, 1)) - 1

    def count(self, key: str) -> int:
        """How many numbers `number` has given under a key."""
        with _answering():
            return int(self._store.add(key, 0))


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # DistNetworkError, DistStoreError
        raise StoreGone(f"the job's rendezvous store does not answer: {str(error).splitlines()[0]}") from None
