"""Tasks: questions with four answers, one of them right, made offline from held-out documents and from numbers.

A model's choice is the answer with the lowest loss per byte after the prompt. Guessing is right in a quarter of cases.
"""

import dataclasses
import random
import re
from collections.abc import Iterator, Sequence

from slipway.assets.suites.suite import Example
from slipway.recipes.suite import ArithmeticSection, ContinuationSection

CONTINUATION = "continuation"
ARITHMETIC = "arithmetic"
ANSWERS = 4
_WORD = re.compile(r"\S+\s*")


def continuations(documents: Sequence[Example], section: ContinuationSection, seed: int) -> list[Example]:
    """Questions for the passage that continues a prompt; wrong answers come from elsewhere in the documents.

    There are fewer than requested if the documents have too few passages.
    """
    draw = random.Random(f"{CONTINUATION} {seed}")
    passages = [(document, passage) for document in documents for passage in _passages(document.text, section.words)]
    pairs = [index for index in range(len(passages) - 1) if passages[index][0] is passages[index + 1][0]]
    draw.shuffle(pairs)
    if len({text for _, text in passages}) < 2 * ANSWERS:
        return []
    questions = []
    for number in pairs[: section.examples]:
        document, prompt = passages[number]
        right = passages[number + 1][1]
        wrong: list[str] = []
        while len(wrong) < ANSWERS - 1:
            other = passages[draw.randrange(len(passages))][1]
            if other not in (prompt, right, *wrong):
                wrong.append(other)
        question = _question(CONTINUATION, prompt, right, wrong, draw)
        questions.append(dataclasses.replace(question, source=document.source, language=document.language))
    return questions


def arithmetic(section: ArithmeticSection, seed: int) -> list[Example]:
    """Questions for sums of two numbers below the limit; the wrong answers are off by 1, by 2 and by 10."""
    draw = random.Random(f"{ARITHMETIC} {seed}")
    questions = []
    for _ in range(section.examples):
        first = draw.randrange(section.limit)
        second = draw.randrange(section.limit)
        wrong = [str(first + second + draw.choice((-1, 1)) * off) for off in (1, 2, 10)]
        questions.append(_question(ARITHMETIC, f"{first} + {second} = ", str(first + second), wrong, draw))
    return questions


def _question(task: str, prompt: str, right: str, wrong: list[str], draw: random.Random) -> Example:
    position = draw.randrange(ANSWERS)
    return Example(task, prompt, answers=(*wrong[:position], right, *wrong[position:]), right=position)


def _passages(text: str, count: int) -> Iterator[str]:
    """The text in passages of `count` words, each with the white space after it, without the remainder."""
    matches = list(_WORD.finditer(text))
    for first in range(0, len(matches) - count + 1, count):
        yield text[matches[first].start() : matches[first + count - 1].end()]
