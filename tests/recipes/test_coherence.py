"""Sections of a recipe that do not go together: told with the line of the one that would have to change."""

from tests.recipes.conftest import TRAINING, Folder


def test_checkpoints_between_the_meetings_of_local_updates_have_their_line(folder: Folder):
    line = folder.edit(
        TRAINING, "checkpoint:\n  every: 60", "communication:\n  local_steps: 8\ncheckpoint:\n  every: 60"
    )
    problem = "found 60, expected a multiple of communication.local_steps (8)"
    assert folder.problems() == [f"{TRAINING}:{line + 3}: checkpoint.every: {problem}"]


def test_compressed_gradients_of_a_divided_model_have_their_line_and_both_names(folder: Folder):
    sections = "communication:\n  compression: bf16\nlayout:\n  shard: full\ncheckpoint:"
    line = folder.edit(TRAINING, "checkpoint:", sections)
    (problem,) = folder.problems()
    assert problem.startswith(f'{TRAINING}:{line + 1}: communication.compression: found "bf16", expected none with')
    assert "layout.shard full" in problem
