"""Trainings from the command line: where they stand, and stopping one, with or without a running instance."""

import time

from deploy.embedded import CannotStart
from deploy.embedded.jobs import STOP_SECONDS
from resources.compute import EmbeddedCompute
from resources.compute import trainings as known_trainings
from resources.home import NODES, Home
from resources.tiers import Tiers
from resources.training_control import TrainingControl
from resources.training_decision import Action
from resources.training_store import Trainings, TrainingStore


def status(home: Home) -> int:
    """Print a line for each training and each trial."""
    control = _control(home)
    for root in _roots(home):
        for id in root.known():
            store = root.store(id)
            desired, ended = store.desired(), store.exit()
            begun = store.newest_claim() is not None
            now = ended.outcome if ended else control.status(store).state.value if begun else "not started"
            print(f"{id}: {now}, wanted: {desired.want if desired else 'not yet'}, checkpoint of step {_step(store)}")
    return 0


def stop(home: Home, id: str) -> int:
    """Want the training stopped, and see that it is. Raises ValueError for an unknown one."""
    store = _find(home, id)
    store.want("stop", "command line", "asked to stop")
    control = _control(home)
    deadline = time.monotonic() + STOP_SECONDS
    while control.advance(store, "command line") is not Action.DONE:
        if time.monotonic() > deadline:
            raise CannotStart(f"{id} has not ended after {STOP_SECONDS:.0f} s; see {home.jobs}")
        time.sleep(0.2)
    print(f"{id} is stopped at step {_step(store)}; materialise it to go on")
    return 0


def _step(store: TrainingStore) -> int:
    """The step of the newest checkpoint."""
    commits = store.commits()
    return commits[-1].step if commits else 0


def _find(home: Home, id: str) -> TrainingStore:
    for root in _roots(home):
        if id in root.known():
            return root.store(id)
    found = f"training {id}: found none of that id in {home.root}"
    raise ValueError(f"{found}, expected one that `python -m deploy.embedded status` shows")


def _roots(home: Home) -> list[Trainings]:
    """The trainings, and the trials of each sweep."""
    trials = sorted(home.durable.glob("sweeps/*/trials"))
    return [known_trainings(_tiers(home)), *(Trainings(path) for path in trials)]


def _tiers(home: Home) -> Tiers:
    return Tiers(durable=str(home.durable), nvme=home.nvme)


def _control(home: Home) -> TrainingControl:
    compute = EmbeddedCompute(jobs=str(home.jobs), nodes=str(home.nodes), names=list(NODES))
    return compute.control(_tiers(home))
