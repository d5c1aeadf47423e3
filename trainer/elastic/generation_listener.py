"""A rank's stay in one generation: it hears when the generation is over, leaves its exchanges, and joins the next one.

A rank that dies leaves the others waiting in exchanges that will not end. Whoever notices it (the supervisor of a node,
or a rank whose exchange failed) writes `End` (`slipway.trainer.elastic.generations`). Each rank that stays has a thread
that waits for it, on a connection of its own. The thread ends the exchanges of its rank, which come out of them with an
error, and with it out of the generation. The process keeps its imports, its device's context and the state of the
training.

Further keys of a generation: ``left/<rank>`` says that a rank has come out of all exchanges; a supervisor that waits in
vain for it ends the rank. ``ranks/here`` counts the ranks that have come, and ``ranks/met`` is there when all have, or
when the generation is over before.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from slipway.trainer.base import codec
from slipway.trainer.elastic import generations
from slipway.trainer.elastic.generations import End, Members, key

FOLLOW_SECONDS = 1.0
"""For how long a rank whose exchange failed waits for who knows why, before it says so itself."""
HEARD_SECONDS = 60.0
"""For how long a rank whose exchange failed waits until its own thread has ended all the others."""
POLL_SECONDS = 0.02
LOOK_SECONDS = 0.05
RANKS_PER_SECOND = 8000.0
"""So many ranks at most look into the store in a second."""
EXIT_CODE = 1
"""In the `End` that a rank writes itself: that of a rank that failed."""
KIND = "network"
"""The cause in the `End` that a rank writes itself, of `slipway.trainer.record.causes`."""

IsBroken = Callable[[BaseException], bool]
"""Whether an error says that an exchange failed."""


class GenerationEnded(Exception):
    """The ranks no longer train together; says why. This process joins the next generation."""


class GenerationListener:
    """One rank's part in its generation."""

    def __init__(self, job: Store, generation: int, rank: int, size: int, end_exchanges: Callable[[], None]) -> None:
        """Listen for the end. `end_exchanges`, which another thread calls, makes what waits in an exchange fail."""
        self._job, self.generation, self._rank, self._size = job, generation, rank, size
        self._end_exchanges = end_exchanges
        self._heard = threading.Condition()
        self._end: End | None = None
        self._has_left = False
        self._line = another(job)
        self._wake, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._listen, name="stay", daemon=True)
        self._thread.start()

    @property
    def ranks(self) -> PrefixStore:
        """Where the process groups of this generation meet: on a connection that ends with its exchanges."""
        return PrefixStore(key(self.generation, "ranks"), another(self._job))

    def check(self) -> None:
        """Raises GenerationEnded when this rank has heard so."""
        if self._end is not None and self._end.stay:
            raise GenerationEnded(self._end.reason)

    def meet(self, seconds: float) -> None:
        """Wait until all ranks are here. Raises GenerationEnded, and RuntimeError when they do not come in time."""
        arrived_key, met_key = key(self.generation, "ranks", "here"), key(self.generation, "ranks", "met")
        if self._job.add(arrived_key, 1) == self._size:
            self._job.set(met_key, "")
        self._job.wait([met_key], timedelta(seconds=seconds))
        if self._job.check([key(self.generation, "end")]):
            self._wait_for_the_end(HEARD_SECONDS)
            self.check()

    @contextlib.contextmanager
    def exchanging(self, is_broken: IsBroken) -> Iterator[None]:
        """Work with exchanges between ranks; whatever is raised after the generation's end becomes GenerationEnded.

        It follows from that end: another thread takes the groups away, in the middle of whatever this one does. When an
        exchange failed by itself, this rank says so to all: what it has lost, the others would wait for. Any other
        error passes, and so does every error where the generation's end leaves no rank in its process.
        """
        try:
            yield
        except Exception as error:
            if self._end is None:
                if not is_broken(error):
                    raise
                self._wait_for_the_end(FOLLOW_SECONDS)
                if self._end is None:
                    self._announce(error)
            self._wait_for_the_end(HEARD_SECONDS)
            if self._end is None or not self._end.stay:
                raise
            raise GenerationEnded(self._end.reason) from None

    def next(self, seconds: float, node: str, environment: MutableMapping[str, str] = os.environ) -> None:
        """Leave, and wait for the next generation; the environment then has the place of this rank there.

        Raises RuntimeError when none begins in time, or when this node is not among its members.
        """
        self._job.set(key(self.generation, "left", self._rank), "")
        members = self._members(time.monotonic() + seconds)
        following = members.generation
        if not members.has(node):
            raise RuntimeError(f"node {node} has no place in generation {following}")
        rank = members.first_rank(node) + int(environment.get("LOCAL_RANK", "0"))
        variables = {generations.VARIABLE: following, "RANK": rank, "WORLD_SIZE": members.world}
        variables["GROUP_WORLD_SIZE"] = len(members.nodes)
        environment.update({name: str(value) for name, value in variables.items()})
        environment["GROUP_RANK"] = str(members.number(node))

    def _members(self, deadline: float) -> Members:
        """Those of the next generation that begins."""
        following = self.generation + 1
        while time.monotonic() < deadline:
            if self._job.check([key(following, "members")]):
                return codec.decode(Members, self._job.get(key(following, "members")), "members")
            if self._job.check([key(following, "end")]):
                end = codec.decode(End, self._job.get(key(following, "end")), "end")
                if end.final:
                    raise RuntimeError(end.reason)
                following += 1
            time.sleep(POLL_SECONDS)
        raise RuntimeError(f"no generation after {self.generation} has begun in time")

    def leave(self, seconds: float) -> None:
        """Wait for the end that a rank is about to announce. Raises GenerationEnded, RuntimeError when none comes."""
        self._wait_for_the_end(seconds)
        self.check()
        raise RuntimeError(f"generation {self.generation} was to end, and has not ended in {seconds:.0f} s")

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        self._wake.set()
        self._thread.join(HEARD_SECONDS)

    def _announce(self, error: BaseException) -> None:
        """Say that the generation is over, unless somebody has."""
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        node = os.environ.get("SLIPWAY_NODE", "local")
        reason = f"an exchange of rank {self._rank} failed: {first_line}"
        end = End(node, KIND, reason, False, EXIT_CODE, time.time(), (self._rank,), (node,), stay=True)
        self._job.compare_set(key(self.generation, "end"), "", codec.encode(end).decode())

    def _wait_for_the_end(self, seconds: float) -> None:
        """Wait until this rank has heard of the end, and all its exchanges have ended; for so long at most."""
        with self._heard:
            self._heard.wait_for(lambda: self._has_left, seconds)

    def _listen(self) -> None:
        end = key(self.generation, "end")
        with contextlib.suppress(RuntimeError):  # the store is gone
            while not self._line.check([end]):
                self._wake.wait(max(LOOK_SECONDS, self._size / RANKS_PER_SECOND))
                if self._closed:
                    return
            # First the word, then the end of the exchanges: whoever sees what an exchange gave that was ended, sees
            # the word too. The exchanges of a GPU do not raise when they are ended.
            self._end = codec.decode(End, self._line.get(end), "end")
            self._end_exchanges()
            self._line.set(key(self.generation, "ranks", "met"), "")
            with self._heard:
                self._has_left = True
                self._heard.notify_all()


def another(store: Store) -> Store:
    """A further connection to the same store: a thread that waits on one keeps all others on it waiting."""
    connected: Any = store
    clone: Store = connected.clone()
    return clone
