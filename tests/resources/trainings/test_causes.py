"""Causes: what ended an incarnation is in its exit record."""

import os
import signal

import pytest

from slipway.resources.trainings.decision import Action
from slipway.trainer.record import causes
from tests.conftest import Marked
from tests.resources.trainings.lab import ENDLESS, Lab, numbers, until_committed


@pytest.mark.slow
def test_a_signal_to_one_of_two_nodes_stops_the_training_with_a_checkpoint_and_is_no_failure(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS), nodes=2)
    lab.started(store)
    until_committed(store)
    node = marked.running("slipway.trainer.node.process")[0]
    os.kill(node, signal.SIGTERM)
    lab.advance(store, Action.RECORD)
    ended = store.exit()
    assert ended is not None
    assert (ended.outcome, ended.disrupted, ended.kind) == ("stopped", True, causes.STOP_REQUESTED)
    assert ended.step == store.commits()[-1].step
    lab.started(store)
    lab.stopped(store)
