"""A night of faults, written by those who write the records: the stores of trainings, the tiers, nodes and gates."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.fleet.health.register import NodeRegister
from slipway.resources.fleet.health.standing import NodeRecord, Standing
from slipway.resources.home import Home
from slipway.resources.trainings import incidents
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.record import causes, fence, ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.incidents import IncidentRecord
from tests.cli import homes

BACKUP, DURABLE = "backup", "durable"


@dataclass
class SeededNight:
    """A home, and the beginning of the night in it."""

    home: Home
    since: float = field(default_factory=lambda: time.time() - 3600)

    @property
    def durable(self) -> Path:
        return self.home.durable

    def interrupted(self, recipe: str, kind: str, reason: str, goes_on: bool = True) -> TrainingStore:
        """A training whose first start failed for this cause at step 50; the next one did a step, or it is given up."""
        store = homes.running(self.home, recipe, 50)
        failed(store, kind, reason)
        if goes_on:
            go_on(store)
        else:
            store.want("stop", "job watch", f"1 of 1 failed starts; {reason}", by_platform=True)
        return store

    def of_ten_faults(self) -> None:
        """Ten faults, two of which need a person; and what is no fault: a stop, a restart, a finished training."""
        self.interrupted("killed", causes.KILLED, "node-1: rank 1 was killed by signal 9")
        self.interrupted("lost", causes.DISRUPTED, "node-1 died")
        self.interrupted("memory", causes.ANSWERED, "node-0: rank 0 ran out of memory: 2 sequences from now on")
        self.interrupted("hanging", causes.HUNG, "no rank made progress for 60 s: rank 1 waits in all_reduce")
        self.interrupted("network", causes.NETWORK, "rank 0: all_reduce failed: connection reset by peer")
        self.interrupted("broken", causes.CONFIGURATION, "model: found 3 heads, expected an even number", False)
        self.survived("spiking")
        self.damaged_checkpoint("damaged")
        self.tier_that_came_back("copying")
        self.node(Standing.REPAIR, "GPU 3: Xid 79, fallen off the bus")
        homes.ended(self.home, "finished", "succeeded", "all steps done", 100)
        by_hand = homes.running(self.home, "stopped", 50)
        by_hand.want("stop", "ada by hand", "enough")
        by_hand.record_exit(1, "stopped", "asked to stop", "ada by hand", homes.NODES, kind=causes.STOP_REQUESTED)
        grown = homes.running(self.home, "grown", 50)
        grown.record_exit(1, "stopped", "2 nodes instead of 1", "job watch", homes.NODES, kind=causes.GROWN)
        go_on(grown)

    def survived(self, recipe: str) -> None:
        store = homes.running(self.home, recipe, 50)
        reason = "the loss of step 51 is 31, far above 2.5"
        skipped = IncidentRecord(
            str(Token(1)), causes.SPIKE, reason, "skipped the batch", "trainer", time.time(), 51, survived=True
        )
        assert store.note_incident(skipped)

    def damaged_checkpoint(self, recipe: str) -> fence.Commit:
        """A training whose newest checkpoint had a flipped bit on its only tier."""
        store = homes.running(self.home, recipe, 50, 100)
        commit = store.commits()[-1]
        assert replicas.set_aside(store.folder, commit, {DURABLE: "weights: the hash of block 3 differs"})
        return commit

    def tier_that_came_back(self, recipe: str, comes_back: bool = True) -> None:
        """The backup took no copy of one checkpoint, and then that of the next one."""
        store = homes.running(self.home, recipe, 50)
        [first] = store.commits()
        replicas.note_fault(store.folder, first.name, BACKUP, replicas.NOT_COPIED, "s3://bucket: connection refused")
        later = fence.Commit(60, Token(1), "checkpoints/x", "0" * 64, at=time.time() + 1)
        fence.commit(store.folder, later)
        if comes_back:
            assert replicas.record(store.folder, later, BACKUP, 1000)

    def node(self, standing: Standing, why: str, by_hand: bool = False, applied: bool = True, name: str = "n7") -> None:
        now = time.time()
        record = NodeRecord(
            name, 1, standing, Standing.DIAGNOSING, "preflight", why, now, by_hand=by_hand, applied=applied
        )
        assert NodeRegister(self.durable).add(record)


def failed(store: TrainingStore, kind: str, reason: str, incarnation: int = 1) -> None:
    """An incarnation failed, and its incident is on record."""
    store.record_exit(incarnation, "failed", reason, "job watch", homes.NODES, kind == causes.DISRUPTED, kind)
    ended = store.exit()
    assert ended is not None and incidents.note_failure(store, ended)


def go_on(store: TrainingStore, incarnation: int = 2, from_step: int = 48) -> None:
    """The next incarnation restores and does a step."""
    assert store.claim(incarnation, ("node-0",), f"incarnation {incarnation - 1} ended", "job watch")
    token = Token(incarnation)
    ledger.note(store.folder, token, "rank-0", "restored", step=from_step, commit="x", seconds=0.1)
    ledger.note(store.folder, token, "rank-0", "step", step=from_step + 1, loss=2.0, seconds=1.0)
