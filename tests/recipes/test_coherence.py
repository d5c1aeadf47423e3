"""Sections of a recipe that do not fit together are reported with the line of the section to change."""

import pytest

from tests.recipes.conftest import TRAINING, Folder

pytestmark = pytest.mark.pure


def test_checkpoints_between_outer_updates_are_reported_with_their_line(folder: Folder):
    line = folder.edit(
        TRAINING, "checkpoint:\n  every: 60", "communication:\n  local_steps: 8\ncheckpoint:\n  every: 60"
    )
    problem = "found 60, expected a multiple of communication.local_steps (8)"
    assert folder.problems() == [f"{TRAINING}:{line + 3}: checkpoint.every: {problem}"]


def test_compressed_gradients_of_a_sharded_model_are_reported_with_both_fields(folder: Folder):
    sections = "communication:\n  compression: powersgd\nlayout:\n  shard: full\ncheckpoint:"
    line = folder.edit(TRAINING, "checkpoint:\n  every", sections + "\n  every")
    (problem,) = folder.problems()
    assert problem.startswith(
        f'{TRAINING}:{line + 1}: communication.compression: found "powersgd", expected none, bf16'
    )
    assert "layout.shard full" in problem
