"""Schedule: runs several actors in one process, one file-system operation at a time, in an order drawn from a seed.

An actor is a function in a thread of its own. It stops before each operation on the watched folders, and the schedule
decides who goes on, and who is killed there: a killed actor does nothing more, not even clean up, as after `kill -9`.
Python's audit events say which operation comes, so that the code under test is the real one on real files.
"""

import os
import random
import sys
import threading
from collections.abc import Callable, Set
from dataclasses import dataclass, field

PATIENCE_SECONDS = 280.0
BURSTS = (1, 1, 1, 2, 3, 8, 20)
"""For how many operations an actor goes on before the next one is chosen."""
PATH_OF = {"open": 0, "os.link": 1, "os.rename": 1, "os.scandir": 0, "os.mkdir": 0, "os.remove": 0}
"""The operations before which an actor stops, with the place of the path among the event's arguments."""
_pauses: dict[int, Callable[[str], None]] = {}
"""What an actor's thread does before an operation on a path."""


class Killed(BaseException):
    """This actor was killed."""


@dataclass(eq=False)
class Actor:
    """A function that is run in turns with others."""

    name: str
    call: Callable[[], object]
    on_end: Callable[[], object]
    """What follows when it ends in any way."""
    may_be_killed: bool = True
    killed: bool = False
    ended: bool = False
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Schedule:
    """The actors of one interleaving."""

    def __init__(self, seed: int, folder_names: Set[str], kills: float) -> None:
        """`folder_names` are names of folders; `kills` is the share of turns that kill."""
        self.chance = random.Random(seed)
        self._folder_names, self.kills = folder_names, kills
        self._turn = threading.Semaphore(0)
        self._live: list[Actor] = []
        self._faults: list[BaseException] = []

    def spawn(
        self, name: str, call: Callable[[], object], on_end: Callable[[], object] = int, may_be_killed: bool = True
    ) -> Actor:
        """Add an actor, which begins at a later turn."""
        actor = Actor(name, call, on_end, may_be_killed)
        self._live.append(actor)
        threading.Thread(target=self._perform, args=(actor,), name=name, daemon=True).start()
        return actor

    def kill(self, actor: Actor) -> None:
        """Kill an actor before its next operation."""
        actor.killed = True

    def run(self) -> None:
        """Run until all actors have ended. Raises what an actor raised."""
        while self._live:
            actor = self.chance.choice(self._live)
            if actor.may_be_killed and self.chance.random() < self.kills:
                self.kill(actor)
            for _ in range(self.chance.choice(BURSTS)):
                if not actor.ended:
                    self._resume(actor)
            if self._faults:
                raise self._faults[0]

    def _resume(self, actor: Actor) -> None:
        actor.go.release()
        assert self._turn.acquire(timeout=PATIENCE_SECONDS), f"{actor.name} hangs"

    def _perform(self, actor: Actor) -> None:
        actor.go.acquire()
        _pauses[threading.get_ident()] = lambda path: self._pause(actor, path)
        try:
            if not actor.killed:
                actor.call()
        except Killed:
            pass
        except BaseException as fault:
            self._faults.append(fault)
        finally:
            del _pauses[threading.get_ident()]
            actor.ended = True
            self._live.remove(actor)
            actor.on_end()
            self._turn.release()

    def _pause(self, actor: Actor, path: str) -> None:
        *_, folder, name = ("", "", *path.split("/"))
        stops = not name.startswith(".") and not self._folder_names.isdisjoint((folder, name))
        if stops and not actor.killed:
            self._turn.release()
            actor.go.acquire()
        if actor.killed:
            raise Killed


def _before(event: str, arguments: tuple[object, ...]) -> None:
    if event in PATH_OF and (pause := _pauses.get(threading.get_ident())):
        path = arguments[PATH_OF[event]]
        if isinstance(path, str | os.PathLike):
            pause(os.fspath(path))


sys.addaudithook(_before)
