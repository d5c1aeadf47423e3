"""A training for faults: two nodes of a small platform, and a thread that does what the sensors do in a tick."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipway.operations.chaos import course
from slipway.operations.chaos.course import Injection
from slipway.operations.chaos.faults import FAULTS
from slipway.operations.chaos.report import ChaosReport, judged
from slipway.operations.chaos.schedule import PlannedFault
from slipway.operations.chaos.target import JobTarget
from slipway.resources.errors import Unavailable
from slipway.resources.home import Home
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import incidents
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import until
from tests.resources.trainings.lab import BY, ENDLESS, Lab, happened, numbers

TICK_SECONDS = 1.0
SEEN_SECONDS, GOES_ON_SECONDS = 150.0, 300.0
UNNOTICED_SECONDS = 15.0
"""How long a fault that a training must not notice is waited for."""
TOKENS = 100_000
"""Of a shard: far more than the model has weights."""
AWAY_SECONDS = 5.0
"""A node that was killed is back after so long, and the training grows back onto it."""


class Stand:
    """One training, and faults that are done to it one after the other."""

    def __init__(self, root: Path, backup: str = "") -> None:
        """`backup`: the tier to which each checkpoint goes too."""
        self.lab, self.home = Lab(root, backup), Home(root, backup)
        # A training that knows all its data by heart has a loss near zero, which jumps without any fault.
        self.lab.snapshot = make_snapshot(self.lab.durable, tokens=TOKENS, followers=4).sha256
        self.store = self._start_training(ENDLESS, backup)
        self.injections: list[Injection] = []

    def _start_training(self, steps: int, backup: str) -> TrainingStore:
        sections = numbers(steps, every=40)
        often = {"backup": {"minutes": 0.05, "last": 5}, "cost_share": 1.0} if backup else {}
        sections["optimizer"] = {"learning_rate": 3e-3}
        sections["batch"] = {"sequences": 16, "length": 64, "micro": 8}
        policy = RunPolicy(
            1,
            2,
            1,
            no_progress_seconds=120.0,
            failures_without_checkpoint=9,
            hang_seconds=8.0,
            operation={
                "storage": {"nvme": {"minutes": 0, "last": 1}, **often},
                "recovery": {"drills": True},
                "observation": {"compare_steps": 20},
            },
        )
        store = self.lab.trainings.propose(Specification("tiny", sections, self.lab.snapshot, "0" * 64), policy)
        store.want("run", BY, "the test wants it")
        return store

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Meanwhile, do what the sensors job watch and node failures do; the training is stopped in the end."""
        over = threading.Event()
        thread = threading.Thread(target=self._tick, args=(over,))
        thread.start()
        try:
            yield
        finally:
            self.store.want("stop", BY, "the test is over")
            until(lambda: self.store.exit() is not None, "the training to stop")
            over.set()
            thread.join()

    def bring(self, fault: str) -> ChaosReport:
        """Do a fault once the training makes steps; what is found of it, once an incident is there."""
        until(self._targets, "the training to make steps", GOES_ON_SECONDS)
        record = self.lab.root / "chaos" / f"{len(self.injections)}.jsonl"
        done = list(course.bring_about([PlannedFault(0.0, fault, 0.5)], self._targets, record))
        assert done, f"{fault} found no target"
        self.injections += done
        deadline = time.monotonic() + (SEEN_SECONDS if FAULTS[fault].kinds else UNNOTICED_SECONDS)
        while True:
            folder = self.store.folder
            records = [incidents.read(folder, id) for id in incidents.names(folder)]
            report = judged(done, {self.store.id: records}, {})
            if (report.results[0].right and FAULTS[fault].kinds) or time.monotonic() > deadline:
                return report
            time.sleep(0.2)

    def goes_on(self, steps: int = 50) -> int:
        """Wait until it makes new steps after the last fault; the step that is reached."""
        before = self.step
        until(lambda: self.step >= before + steps, "the training to go on", GOES_ON_SECONDS)
        for node in self.lab.fleet.names:
            self.lab.fleet.restore(node)
        return self.step

    @property
    def step(self) -> int:
        return max((event["step"] for event in happened(self.store, "step")), default=0)

    def losses(self) -> dict[int, float]:
        """The loss of each step that was done; of one that was done again, the last."""
        return {event["step"]: event["loss"] for event in happened(self.store, "step")}

    def _targets(self) -> list[JobTarget]:
        facts = self.store.read()
        job = self.lab.launcher.poll(self.lab.job(self.store, max(1, facts.incarnation)))
        runs = facts.running and facts.begun and facts.commits and job.state is JobState.RUNNING
        # After a node was lost the other one trains alone, until the lost one has come back to the generation.
        return [JobTarget(facts, self.home)] if runs and len({beat.node for beat in facts.beats}) == 2 else []

    def _tick(self, over: threading.Event) -> None:
        control = self.lab.control()
        while not over.wait(TICK_SECONDS):
            try:
                fleet, facts = self.lab.fleet.nodes(), self.store.read()
                nodes = {node.name: node for node in fleet}
                if facts.should_run and (fault := control.fault(facts, nodes)):
                    control.supersede(self.store, facts, fault, BY)
                elif facts.should_run:
                    control.grow(self.store, facts, nodes, BY)
                control.advance(self.store, BY)
            except (Unavailable, OSError) as error:
                print(f"tick: {error}", flush=True)
