"""Line rules: the lines of a text that are kept, as C4 keeps them (Raffel et al. 2020, JMLR 21, 2.2).

A page of the web has sentences between menus, forms and notices, and lines tell them apart. The order of the rules is
that of datatrove's `C4QualityFilter`, which follows the code of C4 (c4_utils.py of TensorFlow Datasets): on the same
text the same lines stay (tests/assets/datasets/cleaning/test_lines.py). Other scripts' marks end a sentence too.
"""

import re
from collections.abc import Mapping
from typing import Any

from slipway.trainer.base.characters import TERMINALS

LINES = "lines"
"""Why a document is left out of which no line is left."""
CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
"""Wikipedia's marks, as C4's code removes them."""
ENDS, ELLIPSES = tuple(TERMINALS - {"…"}), ("...", "…")


def kept(text: str, settings: Mapping[str, Any]) -> str:
    """The lines that are kept, each without the white space around it. `settings` are those of `LinesSection`.

    Settings without an entry keep the text as it is.
    """
    if not settings:
        return text
    lines = (_kept(line.strip(), settings) for line in text.splitlines())
    return "\n".join(line for line in lines if line is not None).strip()


def _kept(line: str, settings: Mapping[str, Any]) -> str | None:
    """The line without citations, or None for one that is left out."""
    words, longest = line.split(), settings["longest_word_at_most"]
    if longest is not None and any(len(word) > longest for word in words):
        return None
    if not settings["citations"]:
        line = CITATION.sub("", line)
    if settings["ended"] and (not line.endswith(ENDS) or line.endswith(ELLIPSES)):
        return None
    if len(words) < (settings["words_at_least"] or 0):
        return None
    low = line.lower()
    return None if any(each.lower() in low for each in settings["without"]) else line
