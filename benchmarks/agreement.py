"""How often the rules decide as datatrove's own functions do, on texts that every Python installation has.

The texts are the topics of `pydoc` and the docstrings of the standard library: English prose, lists, menus of links and
examples. datatrove splits words with spaCy, which is not needed here: both sides get the words that `\\w+` finds. Its
filter of stop words is one line around its list; that line stands here with the list.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.filters.c4_filters import C4QualityFilter
from datatrove.pipeline.filters.gopher_quality_filter import STOP_WORDS
from datatrove.pipeline.filters.gopher_repetition_filter import find_all_duplicate

from slipway.assets.datasets.cleaning import rules
from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.recipes.cleaning import C4, GOPHER
from slipway.recipes.filters import LinesSection

SHORTEST = 200
"""Characters of a docstring that counts as a text."""


def shares() -> Iterator[tuple[str, float]]:
    """By rule, the share of the texts on which both sides agree: of lines, those of which the same lines stay."""
    texts = _texts()
    for preset, ended in (("c4", True), ("fineweb", False)):
        same = sum(_our_lines(text, preset) == _their_lines(text, ended) for text in texts)
        yield f"lines of {preset}, and C4's rules for what is left of a text, {len(texts):,} texts", same / len(texts)
    our_verdicts = [(TextStatistics(text).stop_words or 0) >= GOPHER["stop_words_at_least"] for text in texts]
    their_verdicts = [_has_stop_words(text) for text in texts]
    yield f"stop words, 2 at least, {len(texts):,} texts", _agreement(our_verdicts, their_verdicts)
    for length, most in ((5, 0.15), (10, 0.10)):
        our_verdicts = [TextStatistics(text).duplicate_grams(length) > most for text in texts]
        their_verdicts = [find_all_duplicate(_pieces(text), length) / len(text) > most for text in texts]
        yield (
            f"duplicate {length}-grams, {most:g} at most, {len(texts):,} texts",
            _agreement(our_verdicts, their_verdicts),
        )


def _texts() -> list[str]:
    """The topics of pydoc, and the longer docstrings of the modules at the top of the standard library."""
    from pydoc_data.topics import topics

    texts = dict.fromkeys(str(topic) for topic in topics.values())
    for file in sorted(Path(ast.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                texts |= {text: None} if len(text) >= SHORTEST else {}
    return list(texts)


def _our_lines(text: str, preset: str) -> str | None:
    """What is kept of a text by the rules for lines and C4's rules but for the count of sentences, for which datatrove
    needs a model; None for a text that is left out."""
    text_after_lines = rules.kept_lines(text, LinesSection.model_validate({"preset": preset}).settings())
    bounds = {name: value for name, value in C4.items() if name != "sentences_at_least"}
    return (
        None
        if rules.first_broken(rules.measures(TextStatistics(text_after_lines), bounds), bounds)
        else text_after_lines
    )


def _their_lines(text: str, ended: bool) -> str | None:
    document = Document(text=text, id="")
    verdict = C4QualityFilter(min_num_sentences=-1, filter_no_terminal_punct=ended).filter(document)
    return document.text if verdict is True else None


def _has_stop_words(text: str) -> bool:
    """As datatrove's `GopherQualityFilter`, which minds capitals."""
    return len(set(STOP_WORDS).intersection(_pieces(text))) >= GOPHER["stop_words_at_least"]


def _pieces(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def _agreement(our_verdicts: Sequence[bool], their_verdicts: Sequence[bool]) -> float:
    if len(set(their_verdicts)) == 1:
        print(f"all {len(their_verdicts)} texts are judged the same: this tells nothing", file=sys.stderr)
    return sum(a == b for a, b in zip(our_verdicts, their_verdicts, strict=True)) / len(our_verdicts)
