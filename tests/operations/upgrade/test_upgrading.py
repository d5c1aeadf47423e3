"""Upgrade: what 0.1 wrote is read by this release, can be taken back, and survives a kill at every write."""

import functools
import json
import shutil
from pathlib import Path

import pytest

from slipway.assets.sweeps.store import SweepStore
from slipway.operations.upgrade import upgrading
from slipway.resources import state
from slipway.resources.trainings.store import Trainings, trials_below
from slipway.trainer.checkpoint.disk import manifest
from slipway.trainer.data import shards
from tests.kills import killed_at
from tests.operations.upgrade.frozen import SWEEP, TRAINING, contents, home_of_0_1

LOG = f"sweeps/{SWEEP}/events.journal"


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    """The durable tier that 0.1 left."""
    return home_of_0_1(tmp_path) / "durable"


def undone(durable: Path) -> upgrading.UpgradePlan:
    return upgrading.undo(durable, "ada")


def upgraded(durable: Path) -> upgrading.UpgradePlan:
    return upgrading.upgrade(durable, "ada", lambda: "")


def kept(durable: Path) -> dict[str, bytes]:
    """What lies there, but for the records of upgrades."""
    return {path: data for path, data in contents(durable).items() if not path.startswith(upgrading.FOLDER)}


def test_a_plan_names_what_changes_and_changes_nothing(durable: Path):
    before = contents(durable)
    plan = upgrading.plan(durable, "ada")
    assert [(change.path, change.formats) for change in plan.changes] == [(LOG, "slipway.sweep-log/1 to /2")]
    assert (plan.was, plan.to, dict(plan.problems)) == (1, state.STATE, {})
    assert contents(durable) == before


def test_a_home_of_0_1_is_refused_until_it_is_upgraded(durable: Path):
    with pytest.raises(ValueError, match=r"found what Slipway 0\.1 wrote, with 1 files to migrate.*: slipway upgrade"):
        upgrading.ready(durable)
    upgraded(durable)
    upgrading.ready(durable)


def test_after_an_upgrade_everything_that_0_1_wrote_is_read(durable: Path):
    upgraded(durable)
    sweep = SweepStore(durable / "sweeps" / SWEEP).state()
    assert sweep is not None and sweep.closed is not None and sweep.closed.best_trial == 1
    assert sweep.rungs == (10,) and sweep.budget.trials == 3
    assert [trial.state for trial in sweep.trials.values()] == ["completed", "completed", "stopped"]
    stores = [
        root.store(name) for root in trials_below(durable).values() for name in (f"{SWEEP}.{n}" for n in range(3))
    ]
    stores.append(Trainings(durable / "trainings").store(TRAINING))
    ends = [ended.outcome for store in stores if (ended := store.read().ended)]
    assert ends == ["succeeded", "succeeded", "stopped", "succeeded"]
    for commit in stores[-1].commits():
        assert commit.step in (20, 40, 60)
    folder = next((durable / "checkpoints" / TRAINING).iterdir())
    assert manifest.decode((folder / manifest.MANIFEST).read_bytes()).files
    [snapshot] = (durable / "snapshots").iterdir()
    assert shards.read_manifest(durable, snapshot.stem).splits


def test_a_second_upgrade_has_nothing_to_do(durable: Path):
    upgraded(durable)
    before = contents(durable)
    assert upgraded(durable).changes == ()
    assert contents(durable) == before


def test_an_upgrade_that_is_taken_back_leaves_every_byte_as_it_was(durable: Path):
    before = kept(durable)
    upgraded(durable)
    assert kept(durable) != before
    undone(durable)
    assert kept(durable) == before
    with pytest.raises(ValueError, match="found no upgrade, expected one that can be taken back"):
        upgrading.undo(durable, "ada")


def test_what_was_added_since_the_upgrade_is_not_taken_back(durable: Path):
    upgraded(durable)
    with (durable / LOG).open("ab") as log:
        log.write(b"more\n")
    before = contents(durable)
    with pytest.raises(ValueError, match=rf"{LOG}: found a file that was changed since the upgrade"):
        upgrading.undo(durable, "ada")
    assert contents(durable) == before


def test_a_file_that_makes_no_sense_stays_as_it_is_and_is_named(durable: Path):
    lines = (durable / LOG).read_bytes().splitlines(keepends=True)
    (durable / LOG).write_bytes(b"".join([lines[0], *lines[3:]]))  # trials that nobody asked for
    before = (durable / LOG).read_bytes()
    made = upgraded(durable)
    assert list(made.problems) == [LOG] and made.changes == ()
    assert (durable / LOG).read_bytes() == before


@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "undo"])
def test_a_kill_at_any_write_leaves_what_the_next_one_finishes(back: bool, tmp_path: Path):
    """The outcome is one of two whole states, whoever comes next."""
    frozen = home_of_0_1(tmp_path / "frozen") / "durable"

    def fresh(name: str) -> Path:
        (tmp_path / name / LOG).parent.mkdir(parents=True)
        shutil.copyfile(frozen / LOG, tmp_path / name / LOG)
        return tmp_path / name

    before, done = (frozen / LOG).read_bytes(), fresh("done")
    upgraded(done)
    after = (done / LOG).read_bytes()
    for write in range(100):
        durable = fresh(str(write))
        if back:
            upgraded(durable)
        killed = killed_at(write, functools.partial(undone if back else upgraded, durable))
        upgrading.finish(durable)
        now = kept(durable)
        assert (now.pop(LOG), now.pop(state.FILE, None) is not None, now) in [(before, False, {}), (after, True, {})]
        upgraded(durable)
        assert (durable / LOG).read_bytes() == after
        if not killed:
            break
    assert 2 < write < 99


def test_a_tier_of_a_newer_release_is_refused_with_one_message(durable: Path):
    (durable / state.FILE).write_text(json.dumps({"state": 7, "version": "0.9", "later": {"fields": []}}))
    for act in (upgrading.ready, upgraded, lambda at: upgrading.plan(at, "ada")):
        with pytest.raises(ValueError, match=r"found state 7, which Slipway 0\.9 wrote, expected 2 or older"):
            act(durable)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"state": "x", "version": 1}', b"\xff", b"[" * 100_000])
def test_a_mark_that_says_nothing_is_refused_by_name(data: bytes, tmp_path: Path):
    (tmp_path / state.FILE).write_bytes(data)
    with pytest.raises(ValueError, match=r"state\.json: found no state"):
        state.refuse_newer(tmp_path)


def test_a_new_tier_gets_the_mark_of_this_release(tmp_path: Path):
    upgrading.ready(tmp_path)
    mark = state.state_of(tmp_path)
    assert mark is not None and (mark.state, mark.version) == (state.STATE, state.RELEASES[state.STATE])
