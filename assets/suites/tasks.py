"""Tasks: questions with one right answer of four, made offline from held-out documents and from numbers.

A model answers by the loss of each answer after the prompt, for each byte of it: what it finds likeliest. A model that
guesses is right in a quarter of them.
"""

import random
import re
from collections.abc import Iterator, Sequence

from slipway.assets.suites.suite import Example
from slipway.recipes.suite import ArithmeticSection, ContinuationSection

CONTINUATION, ARITHMETIC = "continuation", "arithmetic"
ANSWERS = 4
_WORD = re.compile(r"\S+\s*")


def continuations(documents: Sequence[Example], section: ContinuationSection, seed: int) -> list[Example]:
    """Which passage goes on after the prompt; the wrong ones are from elsewhere in the documents.

    Fewer than asked for where there are too few passages of so many words.
    """
    draw = random.Random(f"{CONTINUATION} {seed}")
    passages = [(document, passage) for document in documents for passage in _passages(document.text, section.words)]
    pairs = [index for index in range(len(passages) - 1) if passages[index][0] is passages[index + 1][0]]
    draw.shuffle(pairs)
    if len({text for _, text in passages}) < 2 * ANSWERS:
        return []
    questions = []
    for number in pairs[: section.examples]:
        (document, prompt), (_, right) = passages[number], passages[number + 1]
        wrong: list[str] = []
        while len(wrong) < ANSWERS - 1:
            other = passages[draw.randrange(len(passages))][1]
            if other not in (prompt, right, *wrong):
                wrong.append(other)
        questions.append(_question(CONTINUATION, prompt, right, wrong, draw, document.source, document.language))
    return questions


def arithmetic(section: ArithmeticSection, seed: int) -> list[Example]:
    """Sums of two numbers below the limit; the wrong answers are off by 1, by 2 and by 10."""
    draw = random.Random(f"{ARITHMETIC} {seed}")
    questions = []
    for _ in range(section.examples):
        first, second = draw.randrange(section.limit), draw.randrange(section.limit)
        wrong = [str(first + second + draw.choice((-1, 1)) * off) for off in (1, 2, 10)]
        questions.append(_question(ARITHMETIC, f"{first} + {second} = ", str(first + second), wrong, draw, "", ""))
    return questions


def _question(
    task: str, prompt: str, right: str, wrong: list[str], draw: random.Random, source: str, language: str
) -> Example:
    position = draw.randrange(ANSWERS)
    return Example(task, prompt, source, language, (*wrong[:position], right, *wrong[position:]), position)


def _passages(text: str, count: int) -> Iterator[str]:
    """The text in passages of so many words, with the white space after each; what is left belongs to none."""
    matches = list(_WORD.finditer(text))
    for first in range(0, len(matches) - count + 1, count):
        yield text[matches[first].start() : matches[first + count - 1].end()]
