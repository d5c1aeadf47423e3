"""Questions: what a generation task has asked, as texts that no training document may give away. Pure.

The text of a question is its prompt with the right answer after it. What all prompts of a task begin with, such as an
instruction or examples that it always shows, is no part of a question.
"""

import itertools
from collections.abc import Sequence

from slipway.assets.suites.generation.answered import AnsweredExample
from slipway.trainer.base import digest


def of(rows: Sequence[AnsweredExample]) -> dict[str, str]:
    """The questions of the answered examples of one task, by BLAKE3."""
    shared = _shared([row.prompt for row in rows])
    texts = [f"{row.prompt[shared:]} {row.expected}" for row in rows]
    return {digest.of_bytes(text.encode()): text for text in texts}


def _shared(prompts: Sequence[str]) -> int:
    """The characters that all prompts begin with, in whole words; none of a task that asks one question."""
    first, last = min(prompts, default=""), max(prompts, default="")
    if first == last:
        return 0
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = "".join(character for character, _ in pairs)
    return next((place for place in range(len(common), 0, -1) if common[place - 1].isspace()), 0)
