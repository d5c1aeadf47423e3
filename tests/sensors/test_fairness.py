"""Many teams: a flood of one team's trainings holds up neither another's recovery nor its start; counted in work."""

from collections import Counter

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings.store import TrainingStore
from slipway.sensors.support import fairness
from slipway.sensors.support.fairness import PendingStart, in_turn
from tests.accesses import accesses
from tests.sensors.platform import BY, Platform

FLOOD = 4


def test_teams_take_turns_and_in_a_team_the_longest_unseen_is_first():
    flood = [PendingStart(f"a-{n:03}", "a", 0) for n in range(100)]
    others = [PendingStart("b-1", "b", 0), PendingStart("b-2", "b", 0), PendingStart("c-1", "c", 3)]
    assert in_turn([*flood, *others], 6) == ["a-000", "b-1", "c-1", "a-001", "b-2", "a-002"]


def test_every_training_is_looked_at_though_none_of_the_flood_can_begin():
    looked = {f"a-{n:02}": 0 for n in range(9)} | {"b-0": 0}
    turns: list[str] = []
    for tick in range(1, 6):
        turn = in_turn([PendingStart(id, id[0], at) for id, at in looked.items()], 3)
        turns += turn
        looked |= dict.fromkeys(turn, tick)
    assert set(turns) == set(looked) and turns.count("b-0") == 5


def test_there_is_nothing_to_take_turns_about():
    assert in_turn([], 3) == []


@pytest.fixture
def submitted(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that a tick submits, in their order: the launcher's own folder has no order."""
    launcher = type(platform.compute.launcher())
    names: list[str] = []
    real = launcher.submit

    def noting(self: object, job: Job) -> None:
        names.append(job.name)
        real(self, job)  # type: ignore[arg-type]

    monkeypatch.setattr(launcher, "submit", noting)
    return names


def test_a_flood_costs_another_teams_recovery_some_reads_for_each_training_and_no_start(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    """What a tick does before it acts on the recovery, counted in files: the wall clock would tell of this machine."""
    flood = [platform.start_training(cause=f"flood {n}") for n in range(2 * FLOOD)]
    fallen = platform.start_training(cause="of another team")
    fallen.claim(1, ("node-0",), "a test", BY)
    fallen.record_exit(1, "lost", "its node died", BY)
    before: list[tuple[str, Counter[str]]] = []

    def noting(_: object, job: Job) -> None:
        before.append((job.name, Counter(accesses.paths)))
        raise Unavailable("the launcher takes nothing")

    monkeypatch.setattr(type(platform.compute.launcher()), "submit", noting)
    with accesses.below(platform.home.durable):
        platform.apply("job_watch")
    name, until_then = before[0]
    assert name == f"{fallen.id}-i2"

    def reads(store: TrainingStore) -> int:
        return sum(count for path, count in until_then.items() if path.startswith(f"{store.folder}/"))

    spent = [reads(store) for store in flood]
    assert max(spent) <= 6 < reads(fallen), spent
    assert len(before) > 1, "the flood is looked at afterwards"


@pytest.mark.nightly
def test_a_training_that_is_to_recover_comes_before_all_that_have_never_begun(
    platform: Platform, submitted: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fairness, "STARTS", 1)
    stores = [platform.start_training(cause=f"training {n}") for n in range(FLOOD + 1)]
    fallen = max(stores, key=lambda store: store.id)  # by its name alone, it would wait for all others
    fallen.claim(1, ("node-0",), "a test", BY)
    fallen.record_exit(1, "lost", "its node died", BY)
    platform.apply("job_watch")
    assert submitted[0] == f"{fallen.id}-i2"
    assert len(submitted) == 1 + fairness.STARTS
    platform.apply("job_watch")
    assert len({*submitted}) == len(submitted) == 1 + 2 * fairness.STARTS, "the others begin in later ticks"
    for store in platform.trainings.stores():
        if (ended := store.exit()) is None or ended.outcome != "succeeded":
            platform.stopped(store)


@pytest.mark.nightly
def test_a_training_that_is_to_recover_comes_before_all_that_are_resumed(
    platform: Platform, submitted: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fairness, "STARTS", 1)
    every = [platform.start_training(cause=f"training {n}") for n in range(FLOOD + 1)]
    fallen = max(every, key=lambda store: store.id)
    for store in every:
        store.claim(1, ("node-0",), "a test", BY)
    resumed = [store for store in every if store is not fallen]
    for store in resumed:
        store.want("stop", BY, "it is enough")
        store.record_exit(1, "stopped", "asked to stop", BY)
        platform.trainings.start(store, BY, "it goes on")
    fallen.record_exit(1, "lost", "its node died", BY)
    platform.apply("job_watch")
    assert submitted[0] == f"{fallen.id}-i2" and len(submitted) == 1 + fairness.STARTS
    platform.apply("job_watch")
    assert len({*submitted}) == len(submitted) == 1 + 2 * fairness.STARTS, "the others go on in later ticks"
    for store in platform.trainings.stores():
        if (ended := store.exit()) is None or ended.outcome != "succeeded":
            platform.stopped(store)
