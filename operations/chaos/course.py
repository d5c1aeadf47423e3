"""The course of chaos: faults one after the other, each done to a training that runs then, each written down first.

The record is a file with a JSON line a fault, under `chaos/` on the durable tier: what was done stays known when the
machine that does it dies too.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slipway.operations.chaos.cluster import ClusterTarget
from slipway.operations.chaos.faults import FAULTS
from slipway.operations.chaos.schedule import PlannedFault
from slipway.operations.chaos.target import Done, JobTarget
from slipway.trainer.base import codec, regular_file


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
    targets: Callable[[], Sequence[JobTarget | ClusterTarget]],
    record: Path,
) -> Iterator[Injection]:
    """Do each fault at its time to one of the trainings that run then; one without a target is left out.

    What lasts goes on beside what comes next, and is over in the end. record: the file to append each injection to.
    Raises OSError when it cannot be written: nothing is done unseen.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    lasting = list[tuple[threading.Thread, threading.Event]]()
    try:
        for planned_fault in planned:
            time.sleep(max(0.0, begun + planned_fault.at - time.monotonic()))
            for injection, done in _done(planned_fault, targets()):
                with record.open("a") as file:
                    print(json.dumps(asdict(injection)), file=file)
                if done.goes_on:
                    lasting.append(_going_on(done.goes_on))
                yield injection
        for thread, _ in lasting:
            thread.join()
    finally:
        for thread, over in lasting:
            over.set()
            thread.join()


def read(record: Path) -> list[Injection]:
    """The injections of a record. Raises OSError, and UndecodableRecord with the line."""
    lines = enumerate(regular_file.read(record).splitlines(), start=1)
    return [codec.decode(Injection, line, f"{record}, line {number}") for number, line in lines]


def _done(planned: PlannedFault, targets: Iterable[JobTarget | ClusterTarget]) -> Iterator[tuple[Injection, Done]]:
    """Do it to the first of the targets, in an order that its draw gives, that it can be done to."""
    order = sorted(targets, key=lambda target: target.facts.id)
    random.Random(planned.draw).shuffle(order)
    for target in order:
        at = time.time()
        facts = target.facts
        if done := FAULTS[planned.fault].do(target, planned.draw):
            step = max((beat.step for beat in facts.beats), default=0)
            yield Injection(planned.fault, facts.id, facts.incarnation, done.what, done.node, at, step), done
            return


def _going_on(rest: Callable[[threading.Event], None]) -> tuple[threading.Thread, threading.Event]:
    """Do the rest of a fault in a thread, which ends when the event is set."""
    over = threading.Event()
    thread = threading.Thread(target=rest, args=(over,), name="chaos", daemon=True)
    thread.start()
    return thread, over
