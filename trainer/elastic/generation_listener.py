"""The generation listener of a rank: it learns of the generation's end, aborts the collectives, and joins the next one.

When a rank dies, the others wait in collectives that will not end. The supervisor of a node, or a rank whose collective
failed, notices it and writes an `End` (`slipway.trainer.elastic.generations`). Each rank that stays has a thread that
waits for this key on its own connection. The thread aborts the collectives of its rank. The rank leaves them, and the
generation, with an error, and its process keeps its imports, its device's context and the state of the training.

Further keys of a generation: ``left/<rank>`` exists when a rank has left all collectives; a supervisor that waits for
it in vain kills the rank. ``ranks/here`` counts the ranks that have come, and ``ranks/met`` exists when all have come,
or when the generation has ended before.
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
"""The time that a rank whose collective failed waits for another announcement, before it announces the end itself."""
HEARD_SECONDS = 60.0
"""The time that a rank whose collective failed waits until its thread has aborted all other collectives."""
POLL_SECONDS = 0.02
LOOK_SECONDS = 0.05
RANKS_PER_SECOND = 8000.0
"""The most ranks that read the store in a second."""
EXIT_CODE = 1
"""The exit code in the `End` that a rank writes itself."""
KIND = "network"
"""The cause in the `End` that a rank writes itself, of `slipway.trainer.record.causes`."""

IsBroken = Callable[[BaseException], bool]
"""Whether an error means that a collective failed."""


class GenerationEnded(Exception):
    """The generation is over, for the reason in the message. This process joins the next one."""


class GenerationListener:
    """One rank's membership of its generation."""

    def __init__(self, job: Store, generation: int, rank: int, size: int, end_exchanges: Callable[[], None]) -> None:
        """Listen for the end. Another thread calls `end_exchanges`, which aborts all collectives of this process."""
        # This rank and its generation.
        self._job = job
        self.generation = generation
        self._rank = rank
        self._size = size
        self._end_exchanges = end_exchanges

        # What the thread has learnt.
        self._heard = threading.Condition()
        self._end: End | None = None
        self._has_left = False
        """Whether the generation is over, and all collectives are aborted."""

        # The thread, with a connection of its own.
        self._line = another(job)
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="stay", daemon=True)
        self._thread.start()

    @property
    def ranks(self) -> PrefixStore:
        """The store of this generation's process groups, on a connection that ends with its collectives."""
        return PrefixStore(key(self.generation, "ranks"), another(self._job))

    def check(self) -> None:
        """Raises GenerationEnded if the generation is over and this rank stays."""
        if self._end is not None and self._end.ranks_stay:
            raise GenerationEnded(self._end.reason)

    def meet(self, seconds: float) -> None:
        """Wait until all ranks have come. Raises GenerationEnded, and RuntimeError if they do not come in time."""
        arrived_key = key(self.generation, "ranks", "here")
        met_key = key(self.generation, "ranks", "met")
        if self._job.add(arrived_key, 1) == self._size:
            self._job.set(met_key, "")
        self._job.wait([met_key], timedelta(seconds=seconds))
        if self._job.check([key(self.generation, "end")]):
            self._wait_for_the_end(HEARD_SECONDS)
            self.check()

    @contextlib.contextmanager
    def exchanging(self, is_broken: IsBroken) -> Iterator[None]:
        """The context of work with collectives: an error after the generation's end becomes GenerationEnded.

        The end causes such errors: the listener's thread removes the groups at any point of this thread's work. If a
        collective fails by itself, this rank announces the end, because the others would wait for it. Other errors
        pass, and so do all errors if no rank stays in its process.
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
            if self._end is None or not self._end.ranks_stay:
                raise
            raise GenerationEnded(self._end.reason) from None

    def next(self, seconds: float, node: str, environment: MutableMapping[str, str] = os.environ) -> None:
        """Leave, wait for the next generation, and write this rank's place in it to the environment.

        Raises RuntimeError if no generation begins in time, or if this node is not among its members.
        """
        self._job.set(key(self.generation, "left", self._rank), "")
        members = self._members(time.monotonic() + seconds)
        following = members.generation
        if not members.has(node):
            raise RuntimeError(f"node {node} has no place in generation {following}")
        rank = members.first_rank(node) + int(environment.get("LOCAL_RANK", "0"))
        variables = {
            generations.VARIABLE: following,
            "RANK": rank,
            "WORLD_SIZE": members.world,
            "GROUP_RANK": members.number(node),
            "GROUP_WORLD_SIZE": len(members.nodes),
        }
        environment.update({name: str(value) for name, value in variables.items()})

    def _members(self, deadline: float) -> Members:
        """The members of the next generation that begins."""
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
        """Wait for an end that a rank is about to announce. Raises GenerationEnded, or RuntimeError if none comes."""
        self._wait_for_the_end(seconds)
        self.check()
        raise RuntimeError(f"generation {self.generation} was to end, and has not ended in {seconds:.0f} s")

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()
        self._thread.join(HEARD_SECONDS)

    def _announce(self, error: BaseException) -> None:
        """Announce the end of the generation, unless somebody has."""
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        node = os.environ.get("SLIPWAY_NODE", "local")
        reason = f"an exchange of rank {self._rank} failed: {first_line}"
        end = End(node, KIND, reason, False, EXIT_CODE, time.time(), (self._rank,), (node,), ranks_stay=True)
        self._job.compare_set(key(self.generation, "end"), "", codec.encode(end).decode())

    def _wait_for_the_end(self, seconds: float) -> None:
        """Wait, for at most `seconds`, until the thread knows of the end and has aborted all collectives."""
        with self._heard:
            self._heard.wait_for(lambda: self._has_left, seconds)

    def _listen(self) -> None:
        end = key(self.generation, "end")
        with contextlib.suppress(RuntimeError):  # the store is gone
            while not self._line.check([end]):
                self._wake.wait(max(LOOK_SECONDS, self._size / RANKS_PER_SECOND))
                if self._closed:
                    return
            # Set `_end` before the collectives are aborted. An aborted collective of a GPU does not raise: the thread
            # that reads its result must then see `_end`.
            self._end = codec.decode(End, self._line.get(end), "end")
            self._end_exchanges()
            self._line.set(key(self.generation, "ranks", "met"), "")
            with self._heard:
                self._has_left = True
                self._heard.notify_all()


def another(store: Store) -> Store:
    """A further connection to the same store: a thread that waits on a connection blocks the others that use it."""
    connected: Any = store
    clone: Store = connected.clone()
    return clone
