"""The course of chaos: faults one after the other, each done to a training that runs then, each written down first.

The record is a file with a JSON line a fault, under `chaos/` on the durable tier: what was done stays known when the
machine that does it dies too.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from operations.chaos.faults import FAULTS, SLOW_SECONDS, JobTarget
from operations.chaos.schedule import PlannedFault

STOPPED_SECONDS, RUNNING_SECONDS = 0.4, 0.1
"""A slow rank in turn."""


@dataclass(frozen=True)
class Injection:
    """A fault that was done."""

    fault: str
    training: str
    incarnation: int
    what: str
    node: str
    at: float
    """Seconds since the epoch."""
    step: int
    """The last step then, as far as heartbeats show it."""


def bring_about(
    planned: Sequence[PlannedFault],
    targets: Callable[[], Sequence[JobTarget]],
    record: Path,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Injection]:
    """Do each fault at its time to one of the trainings that run then; one without a target is left out.

    record: the file to append each injection to. Raises OSError when it cannot be written: nothing is done unseen.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    begun = clock()
    for each in planned:
        sleep(max(0.0, begun + each.at - clock()))
        if done := _done(each, targets()):
            with record.open("a") as file:
                print(json.dumps(asdict(done)), file=file)
            yield done


def read(record: Path) -> list[Injection]:
    """The injections of a record. Raises OSError and ValueError."""
    return [Injection(**json.loads(line)) for line in record.read_text().splitlines()]


def _done(planned: PlannedFault, targets: Iterable[JobTarget]) -> Injection | None:
    """Do it to the first of the targets, in an order that its draw gives, that it can be done to."""
    order = sorted(targets, key=lambda target: target.facts.id)
    random.Random(planned.draw).shuffle(order)
    for target in order:
        at, facts = time.time(), target.facts
        if found := FAULTS[planned.fault].act(target, planned.draw):
            _slow_down(found.slow)
            step = max((beat.step for beat in facts.beats), default=0)
            return Injection(planned.fault, facts.id, facts.incarnation, found.what, found.node, at, step)
    return None


def _slow_down(pids: Sequence[int]) -> None:
    """Stop and continue the processes in turn for `SLOW_SECONDS`; they run in the end."""
    end = time.monotonic() + SLOW_SECONDS if pids else 0.0
    try:
        while time.monotonic() < end:
            _send(pids, signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            _send(pids, signal.SIGCONT)
            time.sleep(RUNNING_SECONDS)
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
