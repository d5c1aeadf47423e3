"""Endings of scripts: diverged, an error in the script, a full disk, or not begun; each is reported in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.record import fence
from tests.disks import mounted
from tests.trainer.conftest import STEPS
from tests.trainer.scripted import Scripted


@pytest.fixture
def scripted(tmp_path: Path, mark: str) -> Scripted:
    """A script's training that has not been started."""
    return Scripted(tmp_path, mark)


def test_a_loss_that_is_not_finite_is_recorded_as_a_failure(scripted: Scripted):
    scripted.configure(diverges_at=7)
    ended = scripted.run()
    assert (ended.code, ended.err) == (1, "trainer: loss of step 7 is inf\n")
    record = fence.read_exit(scripted.store, 1)
    assert record is not None and (record.outcome, record.reason) == ("failed", "loss of step 7 is inf")


def test_a_mistake_of_the_script_has_its_traceback_and_one_line_for_the_control_plane(scripted: Scripted):
    scripted.configure(raises_at=7)
    ended = scripted.run()
    assert ended.code == 1
    assert "trainer: RuntimeError: the script's own mistake\n" in ended.err
    assert 'raise RuntimeError("the script' in ended.err
    assert fence.read_exit(scripted.store, 1) is None


def test_a_loop_may_be_left_early_once_its_last_step_is_committed(scripted: Scripted):
    scripted.configure(leaves_at=7)
    assert scripted.run().err == "trainer: the last step (7) is not committed\n"
    assert fence.read_exit(scripted.store, 1) is None
    scripted.configure(steps=7)
    assert scripted.run().code == 0


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"silent_at": 3}, "ValueError: step 3: found 0 calls of report, expected one in each step"),
        ({"file": "a/b"}, "ValueError: found a file 'a/b', expected a plain name other than"),
        ({"file": "progress.json"}, "ValueError: found a file 'progress.json', expected a plain name other than"),
    ],
)
def test_a_breach_of_the_contract_is_named(scripted: Scripted, parameters: dict[str, object], expected: str):
    scripted.configure(**parameters)
    ended = scripted.run()
    assert ended.code == 1
    assert f"trainer: {expected}" in ended.err


def without(*names: str):
    def change(document: dict[str, Any]) -> dict[str, Any]:
        *sections, last = names
        at = document
        for name in sections:
            at = at[name]
        del at[last]
        return document

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without("script", "code"), "config.json: field script.code: missing"),
        (lambda document: {**document, "parameter": 1}, "field parameter: unknown; expected one of training, "),
        (lambda document: {**document, "parameters": [1]}, "field parameters: found [1], expected a section"),
        (lambda document: {**document, "format": "x"}, "field format: found 'x', expected 'slipway.script-config/1'"),
    ],
)
def test_a_configuration_that_cannot_be_used_ends_with_exit_code_2_and_one_line(
    scripted: Scripted, change, expected: str
):
    scripted.config.write_text(json.dumps(change(json.loads(scripted.config.read_bytes()))))
    ended = scripted.run()
    assert ended.code == 2
    assert ended.err.startswith("trainer: ") and ended.err.count("\n") == 1
    assert expected in ended.err


def test_a_snapshot_that_is_not_there_is_a_state_of_the_tier_and_ends_with_exit_code_1(scripted: Scripted):
    document = json.loads(scripted.config.read_bytes())
    scripted.config.write_text(json.dumps({**document, "snapshot": "1" * 64}))
    ended = scripted.run()
    assert ended.code == 1 and "there is no such snapshot" in ended.err


def test_a_parameter_that_the_recipe_does_not_have_is_named(scripted: Scripted):
    document = without("parameters", "steps")(json.loads(scripted.config.read_bytes()))
    scripted.config.write_text(json.dumps(document))
    ended = scripted.run()
    assert ended.code == 1
    assert "trainer: ValueError: parameters.steps: found nothing; the recipe has every, hold" in ended.err


def test_several_ranks_need_a_launcher(scripted: Scripted):
    ended = scripted.run(WORLD_SIZE="2", RANK="0")
    assert ended.code == 2
    assert "found no SLIPWAY_INCARNATION, expected the launcher's" in ended.err
    assert fence.newest_claim(scripted.store) is None


def test_a_full_disk_is_an_event_and_the_script_continues(scripted: Scripted):
    with mounted(scripted.durable / "checkpoints", "size=4k"):
        ended = scripted.run()
    assert len(scripted.events("step")) == STEPS
    assert [event["step"] for event in scripted.events("commit_failed")] == [5, 10, 15, 20]
    assert (ended.code, ended.err) == (1, "trainer: the last step (20) is not committed\n")
