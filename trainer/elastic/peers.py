"""Peers: what the ranks of one start agree on beside their exchanges: to end a section of work that one cannot finish.

A rank that runs out of memory in the middle of a step leaves the others waiting in an exchange that will not end. It
says so in the store. Each rank has a thread that waits for this word, on a connection of its own. When every rank is
in the section of work that the word names, all of them end their exchanges at once: then whatever they waited for
raises an error, and they go on from the state before the section, with new process groups.

No rank ends an exchange of an earlier section: a rank that is behind finishes it first, as nothing is cut off before
the last one has answered. A section must end with an exchange between all ranks: a rank that comes out of it
knows that no other rank can still give the word for it.
"""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from slipway.trainer.node.world import Interrupted

ENDED = "ended"
"""The word of a rank to its own thread, when there is no more work."""
CLOSE_SECONDS = 5.0


class Peers:
    """One rank's view of the others."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        seconds: float,
        end_exchanges: Callable[[], None],
        rejoin: Callable[[], None],
    ) -> None:
        """Start to listen. No rank waits for another for longer than `seconds`.

        `end_exchanges` makes what waits in an exchange fail, and is called by another thread; `rejoin` makes new
        process groups.
        """
        self._rank, self._size = rank, size
        self._end_exchanges, self._rejoin = end_exchanges, rejoin
        self._store = PrefixStore("peers", store)
        connected: Any = store
        self._listening = PrefixStore("peers", connected.clone())
        self._seconds = timedelta(seconds=seconds)
        self._state = threading.Condition()
        self._round = self._section = self._named = 0
        self._inside = self._settled = self._closed = self._abandoned = False
        self._why = ""
        self._failure: Exception | None = None
        """What ended the thread, which no rank may wait for any more."""
        self._thread = threading.Thread(target=self._listen, name="peers", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def section(self, reason: Callable[[BaseException], str | None]) -> Iterator[None]:
        """One section of work, which all ranks go through in the same order.

        `reason` says of an error of this rank's own why all ranks are to leave the section for it; None, if they are
        not. Raises Interrupted, on every rank, when one did; any other error passes.
        """
        with self._state:
            self._section += 1
            self._inside = True
            self._state.notify_all()
        why: str | None = None
        try:
            yield
        except Exception as error:
            failure = reason(error)
            if failure is None and not self._is_named():
                raise
            _release_frames(error)
            if failure is not None:
                self._interrupt(failure)
            why = self._settle()
        else:
            # The exchanges of a GPU do not raise when they are ended: what they gave is worth nothing.
            why = self._settle() if self._is_named() else None
        finally:
            with self._state:
                self._inside = False
        if why is not None:
            raise Interrupted(why)

    def rejoin(self) -> None:
        """Make the process groups anew; all ranks call it after the section in which they were interrupted."""
        with self._state:
            self._named, self._settled, self._why = 0, False, ""
        self._rejoin()

    def abandon(self) -> None:
        """Wait for no answer of another rank any more: the ranks no longer train together."""
        with self._state:
            self._abandoned = True
            self._state.notify_all()

    def close(self) -> None:
        """Listen no more. What the others say is of no interest now, nor is it an error when they are gone."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        with contextlib.suppress(RuntimeError):
            self._store.set(self._word(self._rank), ENDED)
        self._thread.join(CLOSE_SECONDS)

    def _is_named(self) -> bool:
        with self._state:
            return self._named == self._section

    def _interrupt(self, why: str) -> None:
        """Give the word for this section to every rank's thread, unless it is given already."""
        with self._state:
            if self._named == self._section:
                return
            word = f"{self._section} rank {self._rank}: {why}"
            for rank in range(self._size):
                self._store.set(self._word(rank), word)

    def _settle(self) -> str:
        """Wait until all exchanges are ended; returns why.

        Raises TimeoutError when a rank does not answer, and RuntimeError when the exchanges cannot be ended.
        """
        with self._state:
            self._state.wait_for(
                lambda: self._settled or self._abandoned or self._failure is not None, self._seconds.total_seconds()
            )
            if self._failure is not None:
                raise RuntimeError(f"the exchanges of a step could not be ended: {self._failure}") from self._failure
            if not self._settled:
                raise TimeoutError("a rank did not answer while all were to leave a step")
            return self._why

    def _listen(self) -> None:
        try:
            self._answer()
        except Exception as error:
            with self._state:
                self._failure = error
                self._state.notify_all()

    def _answer(self) -> None:
        """Leave a section each time that a rank gives the word for it, until there is no more work."""
        with contextlib.suppress(RuntimeError):  # the store is gone: so are the peers
            while (message := self._message()) != ENDED:
                named, _, why = message.partition(" ")
                if not self._heard(int(named), why):
                    return
                self._wait_for_all()
                self._end_exchanges()
                with self._state:
                    self._round += 1
                    self._settled = True
                    self._state.notify_all()

    def _message(self) -> str:
        """The next word to this rank."""
        word = self._word(self._rank)
        while True:
            begun = time.monotonic()
            try:
                self._listening.wait([word], self._seconds)
                return self._listening.get(word).decode()
            except RuntimeError:
                if time.monotonic() - begun < self._seconds.total_seconds() / 2:
                    raise  # not a time-out

    def _heard(self, section: int, why: str) -> bool:
        """Note the word, and wait until this rank is in the section that it names; False when it will never be."""
        with self._state:
            self._named, self._why = section, why
            self._state.notify_all()
            self._state.wait_for(lambda: (self._section == section and self._inside) or self._closed)
            return not self._closed

    def _wait_for_all(self) -> None:
        """Wait until every rank is in the section."""
        if self._listening.add(f"{self._round}/inside", 1) == self._size:
            self._listening.set(f"{self._round}/all", "")
        self._listening.wait([f"{self._round}/all"], self._seconds)

    def _word(self, rank: int) -> str:
        return f"{self._round}/{rank}"


def _release_frames(error: BaseException) -> None:
    """Let go of what the frames that failed refer to: to leave a step takes memory, of which it may have taken all."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
