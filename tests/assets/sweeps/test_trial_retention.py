"""Once a sweep is over, the best trials' newest checkpoints are on the backup, whatever step they came to."""

from pathlib import Path

import pytest

from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.events import Decided, Ended, Event, Paused, Proposed, Reported, Started
from slipway.assets.sweeps.state import SweepState, fold
from slipway.assets.sweeps.trial_retention import keep_the_best
from slipway.assets.sweeps.trials import BY, SweepTrials
from slipway.resources.trainings.job import Paths
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.tiers.tier import BACKUP
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit, Token
from tests.assets.sweeps.simulation import begun
from tests.assets.sweeps.test_stopped_by_hand import searched

FILES = {"model": b"weights", "progress.json": b'{"step": 3}'}


def stopped_at(number: int, step: int, value: float) -> list[Event]:
    return [
        Proposed(trial=number, parameters={}, until=9),
        Started(trial=number, job="", nodes=()),
        Reported(trial=number, step=step, value=value),
        Paused(trial=number, step=step),
        Decided(trial=number, step=step, verdict="stop"),
        Ended(trial=number, outcome="stopped"),
    ]


@pytest.fixture
def trials(tmp_path: Path) -> SweepTrials:
    """Three trials, each with a checkpoint of step 1, and all but the last with one of step 3."""
    trials = searched(tmp_path)
    for number in range(3):
        store = trials.store(number)
        recipe = trials.subject.trial({})
        policy = trials.subject.trial_terms(recipe, trials.sweep.sweep, number, {})
        trials.root.propose(trials.subject.trial_specification(recipe), policy, id=store.id, by=BY)
        assert store.claim(1, ("node-0",), "first start", BY)
        for step in (1, 3)[: 1 if number == 2 else 2]:
            folder = f"checkpoints/{store.id}/{step:09d}.000001.0000"
            manifest = publication.write(tmp_path / folder, "layout/1", FILES)
            fence.commit(store.folder, Commit(step, Token(1), folder, manifest))
    return trials


@pytest.fixture
def sweep() -> SweepState:
    """Nobody came to the last step: a person stopped the sweep. Trial 1 is the best."""
    log = [*begun(scheduler={"kind": "promotion", "rungs": [1, 3, 9], "eta": 3})]
    sweep = fold([*log, *stopped_at(0, 3, 2.0), *stopped_at(1, 3, 1.0), *stopped_at(2, 1, 0.5)])
    return sweep.after(closing(sweep, "stopped", "enough"))


def backed_up(trials: SweepTrials, number: int) -> list[int]:
    return [commit.step for commit in trials.store(number).read().commits_on(BACKUP)]


def test_the_newest_checkpoints_of_the_best_two_are_copied_and_the_others_are_let_go(
    trials: SweepTrials, sweep: SweepState, tmp_path: Path
):
    backup = tmp_path / "backup"
    backup.mkdir()
    for _ in range(2):  # again changes nothing
        keep_the_best(sweep, trials, Paths(tmp_path, "", str(backup)))
    assert [backed_up(trials, number) for number in range(3)] == [[3], [3], []]
    newest = trials.store(1).read().commits[-1]
    assert (backup / newest.folder / "model").read_bytes() == b"weights"
    let_go = [number for number in range(3) if (trials.store(number).folder / files.LET_GO).exists()]
    assert let_go == [2]


def test_a_backup_that_is_away_is_said_and_asked_again_later(
    trials: SweepTrials, sweep: SweepState, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    backup = tmp_path / "backup"
    backup.write_bytes(b"no folder")
    keep_the_best(sweep, trials, Paths(tmp_path, "", str(backup)))
    assert "its checkpoint is not on the backup" in caplog.text and backed_up(trials, 1) == []
    backup.unlink()
    backup.mkdir()
    keep_the_best(sweep, trials, Paths(tmp_path, "", str(backup)))
    assert backed_up(trials, 1) == [3]


def test_without_a_backup_nothing_is_copied(trials: SweepTrials, sweep: SweepState, tmp_path: Path):
    keep_the_best(sweep, trials, Paths(tmp_path, ""))
    assert backed_up(trials, 1) == []
