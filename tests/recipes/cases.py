"""Cases of wrong recipes, written as text: what is changed in a recipe, and the problem that follows."""

import re

CASE = re.compile(r"(?P<old>.+?) -> (?P<new>.+)\n    (?P<down>[-+]\d+ )?(?P<field>\S+): (?P<sentence>found (?s:.+))")
"""Text of a recipe -> its replacement, then the problem; +1 when the problem is one line below."""


def cases(file: str, text: str) -> list[tuple[str, str, str, int, str]]:
    """The cases written in `text`: file, old, new, lines further down, problem."""
    return [_case(file, block) for block in text.strip("\n").split("\n\n")]


def _case(file: str, block: str) -> tuple[str, str, str, int, str]:
    case = CASE.fullmatch(block)
    assert case is not None, block
    old, new = (case[side].replace("\\n", "\n") for side in ("old", "new"))
    return file, old, new, int(case["down"] or 0), f"{case['field']}: {' '.join(case['sentence'].split())}"
