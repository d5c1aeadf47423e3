"""The language of a document: the suffix of the name decides for source code, a classifier for prose."""

from pathlib import PurePosixPath

from slipway.serving import languages

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
    return (SOURCE_CODE.get(suffixes[-1]) if suffixes else None) or languages.natural(text)
