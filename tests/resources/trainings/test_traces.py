"""Traces: who follows many trainings reads those alone on which something has changed."""

from pathlib import Path

import pytest

from slipway.resources.trainings.store import TrainingStore
from slipway.resources.trainings.watch import LOOK_SECONDS, TrainingTraces
from slipway.trainer.record import fence, ledger
from slipway.trainer.record.fence import Commit, Token
from tests.resources.trainings.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def traces(tmp_path: Path, clock: Clock) -> TrainingTraces:
    """Of a training that runs, and has been looked at."""
    fence.claim(tmp_path, Token(1), nodes=("a",), cause="a test", by="test")
    ledger.note(tmp_path, Token(1), "rank-0", "step", step=1)
    training_traces = TrainingTraces(clock)
    assert training_traces.is_new(tmp_path) and not training_traces.is_new(tmp_path)
    return training_traces


def test_what_ranks_and_the_control_plane_write_is_a_trace(traces: TrainingTraces, tmp_path: Path):
    ledger.note(tmp_path, Token(1), "rank-0", "validated", step=1, loss=1.0)
    assert traces.is_new(tmp_path) and not traces.is_new(tmp_path)
    fence.commit(tmp_path, Commit(1, Token(1), "checkpoints/a/1", "0" * 64))
    assert traces.is_new(tmp_path) and not traces.is_new(tmp_path)
    TrainingStore(tmp_path).want("stop", "a person", "a test")
    assert traces.is_new(tmp_path) and not traces.is_new(tmp_path)


def test_without_a_trace_a_look_is_due_after_a_while(traces: TrainingTraces, tmp_path: Path, clock: Clock):
    clock.now += LOOK_SECONDS - 0.1
    assert not traces.is_new(tmp_path)
    clock.now += 0.2
    assert traces.is_new(tmp_path) and not traces.is_new(tmp_path)


def test_a_look_that_failed_is_taken_again(traces: TrainingTraces, tmp_path: Path):
    traces.forget(tmp_path)
    assert traces.is_new(tmp_path)
