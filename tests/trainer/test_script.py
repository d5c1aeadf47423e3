"""Scripts of the user: the records that they leave, and how they continue after any interruption."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.trainer import evaluate
from slipway.trainer.base import processes
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.record import fence, heartbeat
from slipway.trainer.record.fence import Token
from slipway.trainer.start import export, initial
from tests.trainer.conftest import CODE, STEPS
from tests.trainer.scripted import Scripted


@pytest.fixture
def scripted(tmp_path: Path, mark: str) -> Scripted:
    """A script's training that has not been started."""
    return Scripted(tmp_path, mark)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Scripted:
    """One that ran to its end without interruption. Read only."""
    training = Scripted(tmp_path_factory.mktemp("done"), mark)
    training.completed()
    return training


def test_a_script_leaves_the_records_of_a_training(done: Scripted):
    assert [step for step, _ in done.losses()] == list(range(1, STEPS + 1))
    assert [commit.step for commit in done.commits()] == [5, 10, 15, 20]
    assert [event["commit"] for event in done.events("committed")] == [commit.name for commit in done.commits()]
    ended = fence.read_exit(done.store, 1)
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", STEPS)
    (beat,) = heartbeat.read(done.store, Token(1))
    assert (beat.rank, beat.step) == (0, STEPS)


def test_figures_are_recorded_with_the_step_and_metrics_with_the_checkpoint(done: Scripted):
    total = json.loads(done.result())
    *_, step = done.events("step")
    assert step["figures"] == {"total": total}
    assert done.commits()[-1].metrics == {"loss": 1 / total, "total": total, "validation_loss": 1 / total}
    *_, validated = done.events("validated")
    assert (validated["step"], validated["loss"]) == (STEPS, 1 / total)


def test_a_checkpoint_says_what_made_it(done: Scripted):
    progress = json.loads(done.checkpoint_file("progress.json").read_bytes())
    configured = json.loads(done.config.read_bytes())
    assert {name: progress["config"][name] for name in ("training", "script", "parameters")} == {
        name: configured[name] for name in ("training", "script", "parameters")
    }
    assert (progress["step"], progress["lineage"]["snapshot"]) == (STEPS, done.snapshot.sha256)


def test_the_shards_are_staged_on_the_node(scripted: Scripted):
    ended = scripted.run()
    named = [Path(name) for name in ended.out.splitlines()[0].split()[1:]]
    assert len(named) == 3
    assert all(path.is_file() and path.is_relative_to(scripted.nvme) for path in named)


def test_after_a_kill_a_script_continues_from_its_last_commit_with_the_same_numbers(scripted: Scripted, done: Scripted):
    scripted.killed(8).completed()
    assert [event["step"] for event in scripted.events("restored")] == [5]
    again = STEPS - 5
    steps = [event["step"] for event in scripted.events("step")]
    assert steps[-again:] == [*range(6, STEPS + 1)]
    # What a process recorded last may still be in its memory when it is killed.
    assert steps[:-again] == [*range(1, 8)][: len(steps) - again]
    assert scripted.losses() == done.losses()
    assert scripted.result() == done.result()


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_restored(scripted: Scripted, done: Scripted):
    scripted.killed(13)
    path = scripted.checkpoint_file("total.json", step=10)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    scripted.completed()
    (aside,) = scripted.events("set_aside")
    assert "total.json: found BLAKE3" in aside["reason"]
    assert [event["step"] for event in scripted.events("restored")] == [5]
    assert scripted.result() == done.result()


def test_a_script_that_is_killed_after_its_last_commit_only_records_its_success(scripted: Scripted, done: Scripted):
    scripted.completed()
    for record in (scripted.store / "exits").glob("000001.*"):  # with its copy
        record.unlink()
    scripted.completed()
    assert len(scripted.events("step")) == STEPS
    ended = fence.read_exit(scripted.store, 2)
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", STEPS)


def test_a_superseded_script_cannot_commit(scripted: Scripted):
    process = scripted.start_and_hold(8)
    scripted.claim(2)
    ended = scripted.release(process)
    assert ended.code == 3
    assert ended.err == "trainer: 000001.0000 was superseded by 000002.0000\n"
    assert [commit.step for commit in scripted.commits()] == [5]
    superseded = fence.read_exit(scripted.store, 1)
    assert superseded is not None and (superseded.outcome, superseded.step) == ("failed", 5)


def test_sigterm_leaves_a_checkpoint_of_the_step_reached_and_the_training_goes_on_from_there(
    scripted: Scripted, done: Scripted
):
    process = scripted.start_and_hold(8)
    process.send_signal(signal.SIGTERM)
    ended = scripted.release(process)
    assert ended.code == 0, ended.err
    assert "trainer: stopped" in ended.out
    assert [commit.step for commit in scripted.commits()] == [5, 8]
    (end,) = scripted.events("ended")
    assert (end["outcome"], end["step"]) == ("stopped", 8)
    assert fence.read_exit(scripted.store, 1) is None
    scripted.configure()
    assert scripted.completed().losses() == done.losses()


def test_a_launched_script_commits_under_its_incarnation(scripted: Scripted):
    for incarnation in (1, 2):
        scripted.claim(incarnation)
    assert scripted.run(SLIPWAY_INCARNATION="2", SLIPWAY_NODE="node-1").code == 0
    assert {commit.token for commit in scripted.commits()} == {Token(2)}
    assert (scripted.folder / "nvme-node-1" / "shards").is_dir()


def test_operations_on_models_refuse_a_script_s_checkpoint_and_name_its_layout(done: Scripted, tmp_path: Path):
    commit = done.commits()[-1]
    folder = done.durable / commit.folder
    entry = {"name": commit.name, "folder": commit.folder, "manifest": commit.manifest}
    where = {"tier": str(done.durable), "durable": str(done.durable), "snapshot": done.snapshot.sha256}
    shape = DecoderShape(layers=1, width=8, heads=1, kv_heads=1, hidden=8)
    for refuse in (
        lambda: evaluate.evaluate({**where, "split": "validation", "checkpoints": [entry]}),
        lambda: export.export(folder, tmp_path / "export"),
        lambda: initial.check_fit("checkpoint", folder, shape, done.snapshot.tokenizer),
    ):
        with pytest.raises(ValueError, match="found the layout 'script/1', expected 'chunks/2' or 'chunks/1'"):
            refuse()


def test_the_module_imports_no_framework():
    command = [sys.executable, "-c", "import sys, slipway.script; assert 'torch' not in sys.modules"]
    subprocess.run(command, cwd=CODE, check=True)


class MeetingScript(Scripted):
    program = "tests.trainer.scripts.meets"


@pytest.mark.slow
def test_ranks_that_are_asked_to_stop_leave_after_the_same_step_and_go_on_together(tmp_path: Path, mark: str):
    undisturbed, stopped = MeetingScript(tmp_path / "whole", mark), MeetingScript(tmp_path / "stopped", mark)
    undisturbed.claim(1)
    assert undisturbed.run(ranks=2, SLIPWAY_INCARNATION="1").code == 0
    stopped.claim(1)
    process = stopped.start_and_hold(7, ranks=2, SLIPWAY_INCARNATION="1")
    for rank in processes.children(process.pid):
        os.kill(rank, signal.SIGTERM)
    ended = stopped.release(process)
    assert ended.code == 0, ended.err
    assert sorted(line for line in ended.out.splitlines() if "left at" in line) == [
        "rank 0 left at 8",
        "rank 1 left at 8",
    ]
    assert [commit.step for commit in stopped.commits()] == [5, 8]
    stopped.configure()
    stopped.claim(2)
    assert stopped.run(ranks=2, SLIPWAY_INCARNATION="2").code == 0
    assert stopped.result() == undisturbed.result()
