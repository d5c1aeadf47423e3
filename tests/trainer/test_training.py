"""A training by hand: ``python -m slipway.trainer config.json`` trains to the end and leaves everything on record."""

import json
import math
import subprocess
import sys

import pytest

from slipway.trainer.base.processes import ExitCode
from slipway.trainer.checkpoint.disk import verification
from slipway.trainer.config import resolved as configuration
from slipway.trainer.record import fence, heartbeat
from slipway.trainer.record.fence import Token
from tests.trainer.conftest import CODE, EVERY, STEPS, Training, read_json


def test_the_loss_falls_from_the_loss_of_a_guess(finished: Training) -> None:
    losses = [loss for _, loss in finished.losses()]
    assert losses[0] == pytest.approx(math.log(64), abs=0.1)
    assert losses[-1] < losses[0] - 1.5


def test_every_step_is_in_the_ledger_once_with_its_figures(finished: Training) -> None:
    steps = finished.events("step")
    assert [event["step"] for event in steps] == list(range(1, STEPS + 1))
    assert [event["tokens"] for event in steps] == [step * 7 * 32 for step in range(1, STEPS + 1)]
    for event in steps:
        assert event["perplexity"] == pytest.approx(math.exp(event["loss"]))
        assert event["tokens_per_second"] == pytest.approx(7 * 32 / event["seconds"])
        assert event["seconds"] >= event["data_seconds"] > 0
        assert event["gradient_norm"] > 0


def test_the_ledger_has_the_events_in_order(finished: Training) -> None:
    (started,) = finished.events("started")
    assert (started["world"], started["device"]) == (1, "cpu")
    (ended,) = finished.events("ended")
    assert (ended["outcome"], ended["step"]) == ("succeeded", STEPS)
    assert [event["step"] for event in finished.events("validated")] == [10, 20]
    assert [event["step"] for event in finished.events("committed")] == [5, 10, 15, 20]


def test_checkpoints_are_committed_at_their_steps_and_verify(finished: Training) -> None:
    commits = finished.commits()
    assert [commit.step for commit in commits] == list(range(EVERY, STEPS + 1, EVERY))
    for commit in commits:
        assert commit.token == Token(1)
        files = verification.read_files(finished.durable / commit.folder, commit.manifest)
        tensors = {"model-00000.safetensors", "optimizer-00000.safetensors", "tensors-00000.json", "tensors.json"}
        assert set(files) == tensors | {"progress.json"}


def test_a_commit_carries_the_metrics_of_its_step(finished: Training) -> None:
    curve, validated = dict(finished.losses()), {event["step"]: event["loss"] for event in finished.events("validated")}
    for commit in finished.commits():
        assert commit.metrics["loss"] == curve[commit.step]
        assert commit.metrics.get("validation_loss") == validated.get(commit.step // 10 * 10)


def test_a_checkpoint_records_its_progress_and_its_lineage(finished: Training) -> None:
    progress = read_json(finished.checkpoint_file("progress.json"))
    # 1500, 700 and 333 tokens hold 46 + 21 + 10 sequences of 32.
    assert (progress["step"], progress["samples"], progress["epoch"]) == (20, 140, 140 // 77)
    assert progress["lineage"]["snapshot"] == finished.snapshot.sha256
    assert progress["config"] == json.loads(json.dumps(configuration.dump(configuration.load(finished.config))))
    best = min(finished.events("validated"), key=lambda event: event["loss"])
    assert progress["best"] == {"validation_loss": best["loss"], "step": best["step"]}
    assert len(progress["random_states"]) == 1


def test_the_end_is_recorded(finished: Training) -> None:
    done = fence.read_exit(finished.store, 1)
    assert done is not None
    assert (done.outcome, done.step, done.by) == ("succeeded", STEPS, "trainer")


def test_the_last_heartbeat_is_of_the_last_step(finished: Training) -> None:
    (beat,) = heartbeat.read(finished.store, Token(1))
    assert (beat.rank, beat.phase, beat.step) == (0, "copying", STEPS)


@pytest.mark.slow
def test_a_training_that_is_done_is_not_done_again(copy_of_finished: Training, finished: Training) -> None:
    again = copy_of_finished.run()
    assert again.code == ExitCode.SUPERSEDED and "there is nothing left to train" in again.err
    assert len(copy_of_finished.events("step")) == STEPS
    assert copy_of_finished.commits() == finished.commits()
    assert fence.newest_claim(copy_of_finished.store) == fence.newest_claim(finished.store)


@pytest.mark.slow
def test_bfloat16_trains_and_keeps_full_weights(training: Training, finished: Training) -> None:
    training.configure(run={"precision": "bf16"})
    training.completed()
    assert training.losses() != finished.losses()
    assert training.losses()[-1][1] == pytest.approx(finished.losses()[-1][1], abs=0.1)
    assert len(training.tensors()[0]) == len(finished.tensors()[0])


@pytest.mark.slow
def test_gradients_accumulate_to_the_same_numbers_for_any_size_of_micro_batch(
    training: Training, finished: Training
) -> None:
    training.configure(batch={"micro": 7})
    training.completed()
    for (_, loss), (_, expected) in zip(training.losses(), finished.losses(), strict=True):
        assert loss == pytest.approx(expected, abs=1e-4)


def test_the_ground_floor_stands_alone() -> None:
    """What a node runs imports no control plane, and the formats are read without torch."""
    records = [f"record.{name}" for name in ("fence", "heartbeat", "ledger", "scores")]
    torchless = ["config.resolved", "data.shards", "staging.stage", *records]
    formats = [*torchless, "evaluate", "loop"]
    for modules, banned in (
        (formats, {"dagster", "mlflow", "optuna", "ray", "pandas", "pyarrow", "duckdb"}),
        ([*torchless, "__main__"], {"torch", "safetensors"}),
    ):
        program = f"import sys, {', '.join(f'slipway.trainer.{name}' for name in modules)}; print(*sys.modules)"
        imported = subprocess.run(
            [sys.executable, "-c", program], cwd=CODE, capture_output=True, text=True, check=True
        ).stdout.split()
        assert not banned & {name.partition(".")[0] for name in imported}
