"""Curves: a ledger's steps in bounded memory, read once, with what was repeated in place of what was rolled back."""

from pathlib import Path

import pytest

from slipway.resources.trainings import metric_series
from slipway.resources.trainings.metric_series import MOST, CurveFold
from slipway.trainer.base import journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record import files

pytestmark = pytest.mark.pure
FIRST, SECOND = "000001.0000", "000002.0000"


def step(number: int, loss: float = 1.0, **more: float) -> JournalEvent:
    return {"event": "step", "t": 100.0 + number, "step": number, "loss": loss, "seconds": 1.0, **more}


def fold_of(*events: JournalEvent, token: str = FIRST) -> CurveFold:
    fold = CurveFold()
    fold.add(events, token, "rank-0")
    return fold


def test_each_step_of_a_short_training_is_a_point():
    fold = fold_of(*(step(number, loss=10.0 - number, learning_rate=0.1) for number in range(1, 6)))
    assert fold.steps == [1, 2, 3, 4, 5]
    assert fold.means("loss") == [9.0, 8.0, 7.0, 6.0, 5.0]
    assert fold.means("learning_rate") == pytest.approx([0.1] * 5)
    assert (fold.last["loss"], fold.best) == (5.0, {"step": 5, "loss": 5.0})
    assert fold.pace == 1.0


def test_a_long_training_has_no_more_points_and_keeps_its_spikes():
    fold = fold_of(*(step(number, loss=500.0 if number == 30_001 else 1.0) for number in range(1, 50_001)))
    assert MOST / 2 < len(fold.buckets) <= MOST and fold.width == 64
    assert max(high or 0.0 for high in fold.highs) == 500.0
    assert fold.steps[-1] == 50_000 and fold.steps == sorted(set(fold.steps))


def test_steps_that_are_repeated_take_the_place_of_those_that_were_rolled_back():
    fold = fold_of(*(step(number, loss=1.0) for number in range(1, 11)))
    fold.add([{"event": "started", "t": 200.0, "incarnation": 2}], SECOND, "rank-0")
    fold.add([step(number, loss=2.0) for number in (6, 7)], SECOND, "rank-0")
    assert fold.steps == [1, 2, 3, 4, 5, 6, 7]
    assert fold.means("loss")[-3:] == [1.0, 2.0, 2.0] or fold.means("loss")[-2:] == [1.5, 2.0]
    assert [(mark.kind, mark.step) for mark in fold.marks] == [("restart", 10)]
    assert fold.started == SECOND


def test_the_best_loss_is_that_of_validations_where_there_are_any():
    fold = fold_of(step(1, loss=0.5), {"event": "validated", "t": 102.0, "step": 1, "loss": 3.0}, step(2, loss=0.1))
    assert fold.best == {"step": 1, "loss": 3.0} and fold.means("validation_loss") == [3.0, None]


def test_a_loss_that_is_no_number_leaves_a_gap():
    fold = fold_of(step(1), step(2, loss=float("nan")), step(3))
    assert fold.means("loss") == [1.0, None, 1.0]


def test_staging_says_how_long_it_still_takes():
    def staged(at: float, done: int) -> JournalEvent:
        return {"event": "staged", "t": at, "node": "node-1", "bytes": done, "total_bytes": 1000}

    fold = CurveFold()
    fold.add([staged(10.0, 100)], FIRST, "staging-0")
    assert fold.staged["node-1"].seconds_left is None
    fold.add([staged(14.0, 300)], FIRST, "staging-0")
    assert fold.staged["node-1"].seconds_left == 14.0


def test_what_was_read_is_kept_and_only_what_is_new_is_read(tmp_path: Path):
    path = tmp_path / files.LEDGER / f"{FIRST}.rank-0.jsonl"
    with journal.Journal(path, durable=False) as log:
        log.append(*(step(number) for number in range(1, 4)))
    fold = metric_series.stored_curves(tmp_path)
    assert metric_series.read_on(tmp_path, fold) == path.stat().st_size
    metric_series.keep(tmp_path, fold)
    with journal.Journal(path, durable=False) as log:
        log.append(step(4, loss=0.5))
    again = metric_series.stored_curves(tmp_path)
    assert again == fold and 0 < metric_series.read_on(tmp_path, again) < 200
    assert again.steps == [1, 2, 3, 4]


def test_folds_that_are_damaged_cost_a_reading_and_nothing_else(tmp_path: Path):
    (tmp_path / metric_series.CURVES_FILE).write_bytes(b"{")
    assert metric_series.stored_curves(tmp_path) == CurveFold()
