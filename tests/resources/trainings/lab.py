"""A small platform in a folder: real snapshot, real fleet, real launcher, and trainings of some seconds."""

import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.growth import GROWTHS, GrowthWatch
from slipway.resources.trainings.job import Paths, job_name
from slipway.resources.trainings.quotas import Quotas
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.resources.trainings.watch import WATCH, ProgressWatch
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.base.paths import CODE
from slipway.trainer.record import ledger
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import until

BRIEF, ENDLESS = 20, 1_000_000
"""Steps: over at once; until it is stopped."""
BY = "test"


def numbers(steps: int, every: int = 50) -> dict[str, Any]:
    """The configuration of a decoder of a few thousand parameters: 400 steps a second."""
    return {
        "model": {"layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 64},
        "batch": {"sequences": 4, "length": 16, "micro": 4},
        "optimizer": {"learning_rate": 1e-2},
        "run": {"steps": steps},
        "checkpoint": {"every": every},
    }


class Lab:
    """The platform."""

    no_progress_seconds = hang_seconds = 60.0

    def __init__(self, root: Path, backup: str = "") -> None:
        self.root, self.durable, self._backup = root, root / "durable", backup
        self.fleet = EmbeddedFleet(root / "nodes", ("node-0", "node-1"), reboot_seconds=60)
        self.launcher = LocalLauncher(root / "jobs", CODE, self.fleet)
        self.trainings = Trainings(self.durable / "trainings")
        self.snapshot = make_snapshot(self.durable).sha256

    def control(
        self,
        launcher: Launcher | None = None,
        clock: Callable[[], float] | None = None,
        watch: ProgressWatch = WATCH,
        growths: GrowthWatch = GROWTHS,
        quotas: Quotas | None = None,
    ) -> TrainingControl:
        make_control = functools.partial(
            TrainingControl,
            launcher or self.launcher,
            self.fleet,
            self.paths,
            "a revision",
            watch=watch,
            growths=growths,
            quotas=quotas,
        )
        return make_control(clock=clock) if clock else make_control()

    @property
    def paths(self) -> Paths:
        return Paths(self.durable, str(self.root / "nodes" / "{node}" / "nvme"), self._backup)

    def start_training(
        self, configuration: Mapping[str, Any], snapshot: str = "", nodes: int = 1, failures: int = 3
    ) -> TrainingStore:
        """A training that should run."""
        # No checkpoint by the clock; a script makes its own.
        operation = {} if "script" in configuration else {"storage": {"nvme": {"minutes": 0, "last": 1}}}
        run_policy = RunPolicy(
            1,
            nodes,
            1,
            no_progress_seconds=self.no_progress_seconds,
            failures_without_checkpoint=failures,
            hang_seconds=self.hang_seconds,
            operation=operation,
        )
        store = self.trainings.propose(
            Specification("tiny", configuration, snapshot or self.snapshot, "0" * 64), run_policy
        )
        store.want("run", BY, "the test wants it")
        return store

    def job(self, store: TrainingStore, incarnation: int = 1) -> str:
        return job_name(store.id, incarnation)

    def advance(self, store: TrainingStore, *awaited: Action) -> list[Action]:
        """Advance until one of `awaited` (by default: nothing is left to do); the actions, repetitions left out."""
        return advance(self.control(), store, *awaited)

    def started(self, store: TrainingStore) -> None:
        """Advance until the training's newest incarnation is submitted."""
        self.advance(store, Action.SUBMIT)

    def stopped(self, store: TrainingStore) -> list[Action]:
        """Want the training stopped and advance to its end."""
        store.want("stop", BY, "the test is over")
        return self.advance(store)


def advance(control: TrainingControl, store: TrainingStore, *awaited: Action) -> list[Action]:
    actions: list[Action] = []

    def arrived() -> bool:
        action = control.advance(store, BY)
        if not actions or actions[-1] is not action:
            actions.append(action)
        return action in (awaited or (Action.DONE,))

    until(arrived, f"{store.id} to be advanced")
    return actions


def happened(store: TrainingStore, name: str) -> list[JournalEvent]:
    """The events of that name in the ledger."""
    return [event for event in ledger.read(store.folder) if event["event"] == name]


def until_committed(store: TrainingStore, count: int = 1) -> None:
    until(lambda: len(store.commits()) >= count, f"{count} checkpoints of {store.id}")


def until_paced(store: TrainingStore, ranks: int = 1) -> None:
    """Until each rank knows how long its steps take, so that it is in one of them.

    A rank that is stopped while a step waits for a checkpoint is a storage stall, with a deadline of its own: a test
    that stops one saves no checkpoint.
    """

    def all_do() -> bool:
        beats = store.read().beats
        return len(beats) == ranks and all(beat.longest for beat in beats)

    until(all_do, f"the pace of {ranks} ranks")


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Make all calls at one moment, each in a thread of its own; what each returned or raised."""
    barrier = threading.Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def make(index: int) -> None:
        barrier.wait()
        try:
            results[index] = calls[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=make, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
