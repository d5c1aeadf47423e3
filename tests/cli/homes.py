"""A home as trainings leave it, written through the doors that they use, without running any."""

from pathlib import Path

from slipway.resources.home import Home
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.record import fence, ledger

STEPS = 100
NODES = ("node-0", "node-1")
SNAPSHOT = "0" * 64


def home(root: Path) -> Home:
    """An empty home at a folder."""
    return Home(root)


def offered(at: Home, recipe: str, snapshot: str = SNAPSHOT) -> TrainingStore:
    """A training that nobody has wanted; another snapshot makes another training of a recipe."""
    numbers = {"run": {"steps": STEPS}}
    return _trainings(at).propose(Specification(recipe, numbers, snapshot, "1" * 64), RunPolicy(1, 2, 1, 60.0, 3))


def started(at: Home, recipe: str, snapshot: str = SNAPSHOT) -> TrainingStore:
    """A training that has not been claimed yet."""
    store = offered(at, recipe, snapshot)
    _trainings(at).start(store, "ada", "the test wants it")
    return store


def running(at: Home, recipe: str, *steps: int, snapshot: str = SNAPSHOT) -> TrainingStore:
    """A training that is claimed, with a real checkpoint at each of these steps."""
    store = started(at, recipe, snapshot)
    assert store.claim(1, NODES, "first start", "ada")
    for step in steps:
        folder = f"checkpoints/{store.id}/{step:09d}.000001.0000"
        manifest = publication.write(at.durable / folder, "test/1", {"weights": bytes(step), "progress": b"{}"})
        fence.commit(store.folder, fence.Commit(step, fence.Token(1), folder, manifest, at=1_700_000_000.0 + step))
        ledger.note(store.folder, fence.Token(1), "rank-0", "step", step=step, loss=2.5, seconds=0.1)
    return store


def ended(at: Home, recipe: str, outcome: str, reason: str, *steps: int) -> TrainingStore:
    """One that has ended so, and is wanted no more unless it has succeeded."""
    store = running(at, recipe, *steps)
    store.record_exit(1, outcome, reason, "ada", NODES[:1])
    if outcome != "succeeded":
        store.want("stop", "ada", reason, by_platform=outcome == "failed")
    return store


def _trainings(at: Home) -> Trainings:
    return Trainings(at.durable / "trainings")
