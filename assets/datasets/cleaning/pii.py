"""Masks: personal data and secrets are replaced by placeholders, of which those of addresses and keys are StarCoder's
(Li et al. 2023, arXiv 2305.06161).

`addresses`, `secrets` and `numbers` find what is masked; a recipe may add patterns of its own.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from slipway.assets.datasets.cleaning import addresses, numbers
from slipway.trainer.base import secrets

Span = tuple[int, int]

PLACEHOLDERS: Mapping[str, str] = {
    "secret": "<KEY>",
    "email": "<EMAIL>",
    "iban": "<IBAN>",
    "card": "<CREDIT_CARD>",
    "ip": "<IP_ADDRESS>",
    "phone": "<PHONE_NUMBER>",
}
"""By kind, in the order of masking: secrets come first, because a part of one may look like an address."""
FINDERS: Mapping[str, Callable[[str], Iterator[Span]]] = {
    "secret": secrets.find,
    "email": addresses.emails,
    "iban": numbers.ibans,
    "card": numbers.cards,
    "ip": addresses.ips,
    "phone": numbers.phones,
}
_PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]*>")


def mask(text: str, kinds: Iterable[str], patterns: Mapping[str, str] | None = None) -> tuple[str, dict[str, int]]:
    """The text with placeholders, and the number of placeholders by kind; kinds without one are absent.

    `patterns` are the user's regular expressions by name; the placeholder of a match is the name in capitals.
    Idempotent: masking is repeated until nothing is found, because a placeholder may make its surroundings match.
    """
    masked_kinds = [kind for kind in PLACEHOLDERS if kind in set(kinds)]
    finders = {name: functools.partial(_matches, re.compile(pattern)) for name, pattern in (patterns or {}).items()}
    counts: Counter[str] = Counter()
    while True:
        masked = Counter[str]()
        for name, finder in finders.items():
            text, masked[name] = _replace(text, finder(text), placeholder_of(name))
        for kind in masked_kinds:
            text, masked[kind] = _replace(text, FINDERS[kind](text), PLACEHOLDERS[kind])
        if not masked.total():
            return text, {kind: count for kind, count in counts.items() if count}
        counts += masked


def placeholder_of(name: str) -> str:
    """The placeholder of a user's pattern."""
    return f"<{name.upper()}>"


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    """The matches of a user's pattern between placeholders, so that each replacement leaves less text to match."""
    begin = 0
    for end, behind in [*(match.span() for match in _PLACEHOLDER.finditer(text)), (len(text), len(text))]:
        yield from (match.span() for match in pattern.finditer(text, begin, end) if match[0])
        begin = behind


def _replace(text: str, spans: Iterable[Span], placeholder: str) -> tuple[str, int]:
    """The text with each span replaced, except spans that overlap an earlier one, and the number of replacements."""
    parts = []
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            parts += [text[end:start], placeholder]
            end = stop
    if parts:
        return "".join([*parts, text[end:]]), len(parts) // 2
    return text, 0
