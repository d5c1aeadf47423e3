"""The language of a document, and the stop words of each language.

The suffix of the name decides for source code, a classifier for prose. Stop words are frequent words of a language:
every longer text has some, and lists of terms have none. Gopher has eight for English (Rae et al. 2021, arXiv
2112.11446, A1.1); the other languages have eight words of the same kinds here: articles, prepositions, conjunctions and
auxiliaries.
"""

from functools import cache
from pathlib import PurePosixPath

from slipway.assets.datasets.cleaning import word_hashes
from slipway.assets.datasets.cleaning.word_hashes import WordHashes
from slipway.serving import languages
from slipway.serving.languages import UNKNOWN

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
"""Names as in GitHub's Linguist, in lower case."""

ENGLISH = "en"
STOP_WORDS = {
    "ar": "في من على أن إلى التي الذي هذا",
    "bg": "на и да за се от не който",
    "ca": "el la de i que per amb és",
    "cs": "a v se na je že s který",
    "da": "og i at det er en til på",
    "de": "der die und in den zu ist mit",
    "el": "και το να του η της με που",
    ENGLISH: "the be to of and that have with",
    "es": "de la que el en y los por",
    "fa": "و در به از که این را با",
    "fi": "ja on ei se että hän oli ovat",
    "fr": "de la le et les des en que",
    "he": "של את על לא הוא כל עם זה",
    "hi": "के का की में है और से को",
    "hr": "i u je se na da za koji",
    "hu": "a az és hogy nem is egy van",
    "id": "yang dan di dengan untuk dari ini dalam",
    "it": "di e il la che in un per",
    "ja": "の に は を た が で て",
    "ko": "이 그 및 수 등 것 있는 그리고",
    "nl": "de het een van en in is dat",
    "no": "og i det er på en til som",
    "pl": "i w na z się nie do że",
    "pt": "de a que e o do da em",
    "ro": "de și în la cu să care nu",
    "ru": "и в не на что с по как",
    "sr": "и у је да се на за који",
    "sv": "och i att det som en på är",
    "th": "ก เ า น ร ง ท ม",
    "tr": "ve bir bu da de için ile olarak",
    "uk": "і в на не що з та до",
    "vi": "và của là có được cho trong các",
    "zh": "的 是 在 不 了 有 和 人",
}
"""For Chinese, Japanese and Thai, which put no spaces between words, these are frequent characters."""


def language_of(name: str, text: str) -> str:
    """The language: a name of SOURCE_CODE, else an ISO 639 code such as "en", else "unknown".

    The part of the name after a `#` (the document's place in its file) does not count.
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(name.split("#")[0]).suffixes if suffix not in PACKED]
    return (SOURCE_CODE.get(suffixes[-1]) if suffixes else None) or languages.natural(text)


def stop_word_hashes(language: str) -> WordHashes | None:
    """The hash of each of a language's stop words; None for a language without a list.

    Source code and a text in no known language are judged by the English ones: comments are mostly in English, and a
    text that is no language has none of them.
    """
    chosen = ENGLISH if language == UNKNOWN or language in _code() else language
    return _hashed(chosen) if chosen in STOP_WORDS else None


@cache
def _code() -> frozenset[str]:
    return frozenset(SOURCE_CODE.values())


@cache
def _hashed(language: str) -> WordHashes:
    return word_hashes.hashes(STOP_WORDS[language])
