"""Standing: where a training stands, in words that are true while it runs."""

from pathlib import Path
from typing import Any

import pytest

from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.metric_series import CurveFold
from slipway.resources.trainings.records import Desired, RunPolicy, Specification
from slipway.resources.trainings.status import TrainingStatus, hang_after, status_of
from slipway.resources.trainings.watch import Sight
from slipway.trainer.base.quantities import duration
from slipway.trainer.record.claims import Claim, Token
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.heartbeat import RankPlace
from slipway.trainer.record.incarnation_exit import Exit

pytestmark = pytest.mark.pure
RUN_POLICY = RunPolicy(1, 2, 1, no_progress_seconds=120.0, failures_without_checkpoint=3)
RUN, STOP = Desired("run", "a person", "asked", 100.0, 0), Desired("stop", "a person", "asked", 200.0, 1)


def facts(tmp_path: Path, desired: Desired | None, claimed: bool = True, ended: Exit | None = None) -> TrainingFacts:
    """A training of 3,000 steps on two nodes."""
    claim = Claim(Token(1), (), ("node-0", "node-1"), "first start", "a person", 101.0) if claimed else None
    training_facts = TrainingFacts(tmp_path / "tiny-0", desired, claim, ended, frozenset({"000001.json"}))
    numbers: dict[str, Any] = {"run": {"steps": 3000}}
    known = {"specification": Specification("tiny", numbers, "snapshot", ""), "run_policy": RUN_POLICY, "commits": []}
    training_facts.__dict__.update(known)
    return training_facts


def fold(step: int = 236, node_bytes: tuple[int, int] | None = None) -> CurveFold:
    """A ledger whose last steps took 2 s each."""
    curve_fold = CurveFold()
    steps = [
        {"event": "step", "t": 100.0 + 2 * n, "step": n, "loss": 3.0, "mfu": 0.4} for n in range(step - 9, step + 1)
    ]
    curve_fold.add(steps if step else [], "000001.0000", "rank-0")
    for at, done in enumerate(node_bytes or ()):
        event = {"event": "staged", "t": 10.0 * at, "node": "node-1", "bytes": done, "total_bytes": 4_000_000_000}
        curve_fold.add([event], "000001.0000", "staging-0")
    return curve_fold


def sight(phase: str, age: float = 0.0, **more: Any) -> Sight:
    return Sight(1, RankPlace(phase, 236, more.pop("done", 0)), age, node="node-1", **more)


def test_one_that_runs_says_how_far_it_is_and_how_long_still(tmp_path: Path):
    status = status_of(facts(tmp_path, RUN), fold(), [sight("training")])
    assert status.summary == "running, step 236 of 3,000, 92 min left"
    assert (status.state, status.step, status.loss, dict(status.figures)["mfu"]) == ("running", 236, 3.0, 0.4)
    assert status.seconds_left == pytest.approx(2 * 2764)


def test_before_its_first_start_it_says_what_it_waits_for(tmp_path: Path):
    status = status_of(facts(tmp_path, RUN, claimed=False), fold(0), [], "found 1 of the fleet's 2 nodes ready")
    assert (status.state, status.summary) == ("waiting", "waiting: found 1 of the fleet's 2 nodes ready")


def test_from_the_first_second_it_says_that_its_processes_come_up(tmp_path: Path):
    status = status_of(facts(tmp_path, RUN), fold(0), [Sight(None, RankPlace("starting", 0), 1.0)])
    assert (status.state, status.summary) == ("starting", "starting: its job is starting")


def test_staging_is_reported_in_bytes_with_the_time_left(tmp_path: Path):
    status = status_of(facts(tmp_path, RUN), fold(0, (1_000_000_000, 2_000_000_000)), [sight("staging", done=1)])
    assert status.state == "staging" and "2.00 GB of 4.00 GB on node-1, 20 s left" in status.summary


@pytest.mark.parametrize(
    ("phase", "summary"),
    [("restoring", "restoring a checkpoint"), ("compiling", "compiling the first step, for 12 s")],
)
def test_what_comes_before_the_steps_is_reported_by_its_name(tmp_path: Path, phase: str, summary: str):
    status = status_of(facts(tmp_path, RUN), fold(), [sight(phase, age=12.0)])
    assert (status.state, status.summary) == (phase, summary) or status.summary.startswith(summary)


def test_a_hang_says_for_how_long_where_and_until_when(tmp_path: Path):
    stuck = sight("training", age=40.0, section="forward", longest=0.5)
    status = status_of(facts(tmp_path, RUN), fold(), [sight("training", age=40.0, section="communication"), stuck])
    assert status.state == "hanging" and status.seconds_left is None
    assert status.summary.startswith("hanging for 40 s at step 236 of 3,000: rank 1 on node-1 is in")
    assert status.summary.endswith("restarted after 2 min at the latest")


def test_a_hang_is_seen_within_ten_seconds_and_a_slow_step_is_none():
    assert hang_after(sight("training", section="forward", longest=0.1)) <= 5.0
    assert hang_after(sight("training", section="forward", longest=20.0)) == 60.0
    assert hang_after(sight("compiling")) == float("inf")
    assert hang_after(sight("compiling", silent=6.0)) <= 10.0


def test_one_that_was_stopped_says_where_it_goes_on(tmp_path: Path):
    status = status_of(facts(tmp_path, STOP, ended=ended("stopped")), fold(), [])
    assert (status.state, status.summary) == ("stopped", "stopped at 236 of 3,000: resume goes on from step 0")


@pytest.mark.parametrize(
    ("commits", "summary"),
    [
        (
            [Commit(230, Token(1), "checkpoints/x", "0" * 64, at=1.0)],
            "resume goes on from step 230; its checkpoints will be removed",
        ),
        ([], "its checkpoints were removed; resume starts it again"),
    ],
)
def test_one_that_was_deleted_says_so_and_what_a_resume_finds(tmp_path: Path, commits: list[Commit], summary: str):
    deleted = facts(tmp_path, STOP, ended=ended("stopped"))
    deleted.__dict__.update(commits=commits, let_go=True)
    status = status_of(deleted, fold(), [])
    assert status.state == "stopped" and summary in status.summary


def test_one_that_is_wanted_again_after_a_stop_is_not_shown_as_stopped(tmp_path: Path):
    status = status_of(facts(tmp_path, RUN, ended=ended("stopped")), fold(), [])
    assert status.state == "restarting" and "stopped" not in status.summary.split(":")[0]


def test_between_two_starts_it_says_why(tmp_path: Path):
    status = status_of(facts(tmp_path, RUN, ended=ended("failed", "node-1: rank 1 was killed")), fold(), [])
    assert status.summary == "restarting from step 0: node-1: rank 1 was killed"


def test_one_that_is_to_stop_says_so_until_it_has(tmp_path: Path):
    assert status_of(facts(tmp_path, STOP), fold(), [sight("training")]).state == "stopping"


def test_one_that_has_succeeded_is_finished(tmp_path: Path):
    status: TrainingStatus = status_of(facts(tmp_path, RUN, ended=ended("succeeded")), fold(), [])
    assert status.state == "finished" and not status.is_live


def ended(outcome: str, reason: str = "asked to stop") -> Exit:
    return Exit(incarnation=1, outcome=outcome, step=236, reason=reason, by="rank 0", at=300.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (99, "99 s"), (600, "10 min"), (12_000, "3 h 20 min"), (500_000, "5.8 days")]
)
def test_durations_are_reported_as_people_say_them(seconds: float, text: str):
    assert duration(seconds) == text


def test_one_that_failed_for_good_says_the_last_step_that_it_did_not_that_of_its_checkpoint(tmp_path: Path):
    over = Exit(1, "failed", "a wrong field", 0, "job watch", 300.0, kind="configuration")
    status = status_of(facts(tmp_path, STOP, ended=over), fold(100), [])
    assert (status.state, status.step, status.checkpoint) == ("failed", 100, 0)
    assert status.summary == "failed at step 100 of 3,000: a wrong field"
