"""Characters: the code points of a text as an array, and the class of each, by one look-up in a table.

Texts in ASCII are stored in bytes, all others in 32-bit code points: most texts are ASCII and need a quarter so.
"""

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8] | npt.NDArray[np.uint32]
Classes = npt.NDArray[np.uint8]

SPACE, ALPHABETIC, WORD, ALONE, TERMINAL, BULLET, TOKEN = (1 << bit for bit in range(7))
"""Bits of a class. WORD: letters, marks and digits; ALONE: those of them that are a word by themselves;
TERMINAL: ends a sentence; BULLET: begins an item of a list; TOKEN: is used in keys and tokens."""
UNSPACED = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0),  # Burmese
    range(0x1780, 0x1800),  # Khmer
    range(0x3040, 0x3100),  # Hiragana, Katakana
    range(0x31F0, 0x3200),
    range(0x3400, 0x4DC0),  # ideographs
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0xFF66, 0xFF9E),
)
"""Letters of scripts that put no spaces between words."""
KNOWN = 0x20000
"""Code points below have properties of their own; those above are ideographs (planes 2, 3) or nothing."""
IDEOGRAPHS = slice(0x20000, 0x40000)
CODE_POINTS = 0x110000
TERMINALS = frozenset(".!?\"'”’»…。！？؟۔।॥")
BULLETS = frozenset("-*•‣◦▪●")
TOKENS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/")


def codes_of(text: str) -> Codes:
    """The code points of a text: uint8 if all are ASCII, else uint32."""
    if text.isascii():
        return np.frombuffer(text.encode(), np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def classes_of(codes: Codes) -> Classes:
    """The class of each code point."""
    if codes.dtype == np.uint8:
        return np.frombuffer(codes.tobytes().translate(_ascii_classes()), np.uint8)
    return _classes().take(codes)


def in_lower_case(text: str) -> str:
    """The text with each character in lower case; unlike `str.lower`, every character keeps its place."""
    return lowered().take(codes_of(text)).tobytes().decode("utf-32-le", "surrogatepass")


@cache
def lowered() -> npt.NDArray[np.uint32]:
    """The lower case of each code point, if it is a single code point."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    known = list(map(chr, range(KNOWN)))
    low = "".join(
        low if len(low) == 1 else character for character, low in zip(known, map(str.lower, known), strict=True)
    )
    table[:KNOWN] = codes_of(low)
    return table


@cache
def _ascii_classes() -> bytes:
    return _classes_below(256).tobytes()


@cache
def _classes() -> Classes:
    table = np.zeros(CODE_POINTS, np.uint8)
    table[:KNOWN] = _classes_below(KNOWN)
    table[IDEOGRAPHS] = ALPHABETIC | WORD | ALONE
    for script in UNSPACED:
        table[script.start : script.stop] |= np.where(table[script.start : script.stop] & WORD, ALONE, 0).astype(
            np.uint8
        )
    return table


def _classes_below(count: int) -> Classes:
    """The classes of the first `count` code points by `unicodedata` and the sets above, one property after the
    other."""
    characters = list(map(chr, range(count)))
    table = np.zeros(count, np.uint8)
    for bit, membership in {
        SPACE: map(str.isspace, characters),
        ALPHABETIC: map(str.isalpha, characters),
        WORD: (category[0] in "LMN" for category in map(unicodedata.category, characters)),
        TERMINAL: map(TERMINALS.__contains__, characters),
        BULLET: map(BULLETS.__contains__, characters),
        TOKEN: map(TOKENS.__contains__, characters),
    }.items():
        table |= np.fromiter(membership, np.uint8, count) * np.uint8(bit)
    return table
