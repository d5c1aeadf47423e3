"""Offline tasks: prompts of numbers and letters with one right continuation.

They need no download and no harness. Each prompt shows three examples and then asks. The answer is the first line that
the model generates greedily. An untrained model gets almost none right.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SHOTS = 3
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORD = 4
"""The number of letters in a word."""
LIMIT = 20
"""Summands are below this."""


@dataclass(frozen=True)
class Prompt:
    """One example of an offline task."""

    task: str
    text: str
    expected: str


def prompts(task: str, examples: int, seed: int = 0) -> list[Prompt]:
    """Prompts of a task of `TASKS`; equal seeds give equal prompts."""
    draw = random.Random(f"{task} {seed}")
    return [_prompt(task, [TASKS[task](draw) for _ in range(SHOTS + 1)]) for _ in range(examples)]


def is_right(prompt: Prompt, answer: str) -> bool:
    """Whether the first line of an answer is right."""
    return answer.strip(" ").partition("\n")[0].strip() == prompt.expected


def _prompt(task: str, pairs: list[tuple[str, str]]) -> Prompt:
    shots = "".join(f"{question}{answer}\n" for question, answer in pairs[:-1])
    last_question, expected = pairs[-1]
    return Prompt(task, f"{shots}{last_question}", expected)


def _copying(draw: random.Random) -> tuple[str, str]:
    word = "".join(draw.choices(LETTERS, k=WORD))
    return f"{word} again: ", word


def _counting(draw: random.Random) -> tuple[str, str]:
    first = draw.randrange(LIMIT)
    return f"{first}, {first + 1}, {first + 2}, ", str(first + 3)


def _adding(draw: random.Random) -> tuple[str, str]:
    first = draw.randrange(LIMIT)
    second = draw.randrange(LIMIT)
    return f"{first} + {second} = ", str(first + second)


TASKS: Mapping[str, Callable[[random.Random], tuple[str, str]]] = {
    "copying": _copying,
    "counting": _counting,
    "adding": _adding,
}
