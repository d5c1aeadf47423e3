"""Offline tasks: known answers, the same for the same seed."""

import pytest

from slipway.assets.suites.generation import offline

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("task", offline.TASKS)
def test_a_prompt_shows_examples_and_asks_for_what_they_have_in_common(task: str):
    for prompt in offline.prompts(task, 20):
        *shots, question = prompt.text.split("\n")
        assert len(shots) == offline.SHOTS and prompt.expected and question.endswith(" ")
        for line in [*shots, question + prompt.expected]:
            prefix, _, answer = line.rpartition(" ")
            if task == "copying":
                assert prefix == f"{answer} again:"
            elif task == "counting":
                assert prefix == ", ".join(str(int(answer) - back) for back in (3, 2, 1)) + ","
            else:
                first, second = prefix.removesuffix(" =").split(" + ")
                assert int(first) + int(second) == int(answer)


def test_equal_seeds_ask_the_same():
    assert offline.prompts("adding", 5) == offline.prompts("adding", 5) != offline.prompts("adding", 5, seed=1)


@pytest.mark.parametrize(
    ("answer", "right"), [("31", True), ("31\n2 + 2 = 4", True), (" 31 \n", True), ("310", False), ("\n31", False)]
)
def test_the_first_line_of_an_answer_counts(answer: str, right: bool):
    assert offline.is_right(offline.Prompt("adding", "30 + 1 = ", "31"), answer) is right
