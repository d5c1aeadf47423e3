"""Masks: e-mail addresses, IP addresses and secrets are replaced by placeholders, the ones of StarCoder (Li et al.
2023, arXiv 2305.06161).

A mask first finds, at low cost in the whole text, the few places where something may begin, and tests only these.
"""

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from assets.datasets.cleaning.characters import TOKEN, Classes, Codes, classes_of, codes_of

Span = tuple[int, int]
TokenPositions = npt.NDArray[np.int64]
ZERO, TWO, THREE, NINE, DOT, COLON, E = map(ord, "0239.:e")
QUOTES, BREAKS = (tuple(map(ord, signs)) for signs in ("'\"", "+/"))
"""BREAKS are in no token of a known issuer, but in other secrets."""

PLACEHOLDERS: Mapping[str, str] = {"secret": "<KEY>", "email": "<EMAIL>", "ip": "<IP_ADDRESS>"}
"""By kind, in the order in which they are masked: a part of a secret may look like an address."""

LOCAL_LONGEST = 64
"""The most characters before the @ of an address (RFC 5321, 4.5.3.1.1)."""
_LOCAL = re.compile(r"(?<![\w.!#$%&'*+/=?^`{|}~-])[A-Za-z0-9][\w.!#$%&'*+/=?^`{|}~-]*\Z", re.ASCII)
_DOMAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![\w-])", re.ASCII)

_IPV4 = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\w|\.[0-9])")
_IPV6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]*[0-9A-Fa-f:](?![\w:])")

TOKEN_SHORTEST = 16
"""The fewest characters of a secret."""
_KNOWN = re.compile(
    r"""(?:
      (?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}                # AWS access key
    | gh[pousr]_[A-Za-z0-9]{36,255} | github_pat_[A-Za-z0-9_]{82}    # GitHub
    | glpat-[A-Za-z0-9_-]{20,}                                       # GitLab
    | xox[abeoprs]-[A-Za-z0-9-]{10,250}                              # Slack
    | AIza[A-Za-z0-9_-]{35}                                          # Google
    | sk-(?:[A-Za-z0-9_-]+-)?[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}    # OpenAI
    | sk-ant-[a-z]+[0-9]{2}-[A-Za-z0-9_-]{80,}                       # Anthropic
    | hf_[A-Za-z]{34}                                                # Hugging Face
    | npm_[A-Za-z0-9]{36} | pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}   # npm, PyPI
    | [rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,99}                    # Stripe
    )(?![A-Za-z0-9_-])""",
    re.VERBOSE,
)
"""Tokens whose form shows their issuer: patterns of gitleaks 8 (github.com/gitleaks/gitleaks, config/gitleaks.toml)."""
_BEGINS_KNOWN = np.zeros(1 << 16, bool)
_BEGINS_KNOWN[[int.from_bytes(two) for two in b"A3 AK AS AB AC AI gh gi gl xo sk hf np py rk".split()]] = True
"""Whether two characters begin one of these tokens."""
_JWT = re.compile(r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", re.ASCII)
"""A signed JSON Web Token (RFC 7519): two objects in base64url, and a signature."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN[ A-Z0-9_-]{0,64}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----)[\s\S])*-----END[ A-Z0-9_-]{0,64}PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s]*)"
)
"""RFC 7468, PGP and OpenSSH; a key without its end goes as far as its base64."""
_NAMED = re.compile(
    r"(?:key|token|secret|passwd|password|credential|auth)[\w.-]{0,20}[\"']?[ \t]{0,3}(?::=|=>|=|:)[ \t]{0,3}[\"']\Z",
    re.ASCII | re.IGNORECASE,
)
_VALUE = re.compile(r"([A-Za-z0-9+/_=.-]{16,150})[\"']")
NAME_LONGEST = 48
ENTROPY_LEAST = 3.5
"""Bits a character, by the frequencies of its own characters; as gitleaks' generic rule."""
_CHANGE = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
CHANGES_LEAST = 0.25
"""Changes of case, or between letter and digit, for each letter or digit: random base62 has 0.6, hexadecimal 0.47, and
names made of words far fewer."""


def mask(text: str, kinds: Iterable[str]) -> tuple[str, dict[str, int]]:
    """The text with placeholders, and the number of placeholders by kind; kinds without one are absent.

    Idempotent: masking is repeated until nothing is found, because a placeholder may make its surroundings match.
    """
    wanted = [kind for kind in PLACEHOLDERS if kind in set(kinds)]
    counts: Counter[str] = Counter()
    while True:
        found = Counter[str]()
        for kind in wanted:
            text, number = _replace(text, FINDERS[kind](text), PLACEHOLDERS[kind])
            found[kind] = number
        if not found.total():
            return text, {kind: count for kind, count in counts.items() if count}
        counts += found


def emails(text: str) -> Iterator[Span]:
    """E-mail addresses: local part of at most 64 characters, a domain with a dot, and a top level of letters."""
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at + 1)
        local = _LOCAL.search(text[max(at - LOCAL_LONGEST - 1, 0) : at]) if domain else None
        if domain and local and len(local[0]) <= LOCAL_LONGEST:
            yield at - len(local[0]), domain.end()
        at = text.find("@", at + 1)


def ips(text: str) -> Iterator[Span]:
    """Public addresses, as FineWeb masks them: IPv4, and IPv6 of 2000::/3.

    Addresses of loopback, private, documentation and reserved ranges identify no person.
    """
    codes = codes_of(text)
    starts = {*_ipv4_starts(codes), *_ipv6_starts(codes)}
    for start in sorted(starts):
        found = _IPV4.match(text, start) or _IPV6.match(text, start)
        if found and _is_global(found[0]):
            yield found.span()


def secrets(text: str) -> Iterator[Span]:
    """Private keys, tokens of known issuers, JSON Web Tokens, and random strings assigned to a name such as api_key."""
    if "-----BEGIN" in text:
        yield from (found.span() for found in _PRIVATE_KEY.finditer(text))
    codes = codes_of(text)
    starts, ends = _long_tokens(classes_of(codes))
    for begin in _known_starts(codes, starts, ends):
        if found := _KNOWN.match(text, begin):
            yield found.span()
    for start in _unknown_starts(codes, starts):
        if text.startswith("eyJ", start) and (found := _JWT.match(text, start)):
            yield found.span()
        elif found := _assigned(text, start):
            yield found.span(1)


def _assigned(text: str, start: int) -> re.Match[str] | None:
    """The quoted random value that begins at `start`, if it is assigned to a name that is usual for a secret."""
    if text[start - 1 : start] not in ("'", '"') or not _NAMED.search(text[max(start - NAME_LONGEST, 0) : start]):
        return None
    found = _VALUE.match(text, start)
    return found if found and looks_random(found[1]) else None


def looks_random(value: str) -> bool:
    """Whether a string has the entropy of a secret, and does not consist of words and numbers."""
    signs = "".join(filter(str.isalnum, value))
    shares = [count / len(value) for count in Counter(value).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    return entropy >= ENTROPY_LEAST and len(_CHANGE.findall(signs)) >= CHANGES_LEAST * len(signs)


FINDERS: Mapping[str, Callable[[str], Iterator[Span]]] = {"secret": secrets, "email": emails, "ip": ips}


def _replace(text: str, spans: Iterable[Span], placeholder: str) -> tuple[str, int]:
    """The text with each span replaced, except spans that overlap an earlier one, and the number of replacements."""
    parts, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            parts += [text[end:start], placeholder]
            end = stop
    return ("".join([*parts, text[end:]]), len(parts) // 2) if parts else (text, 0)


def _ipv4_starts(codes: Codes) -> list[int]:
    """The places where four runs of digits with single dots between them may begin."""
    dots = np.flatnonzero(codes[1:-1] == DOT) + 1
    dots = dots[_is_digit(codes[dots - 1]) & _is_digit(codes[dots + 1])]
    first = dots[:-2][dots[2:] - dots[:-2] <= 8]
    return [dot - length for dot in first.tolist() for length in (1, 2, 3) if dot >= length]


def _ipv6_starts(codes: Codes) -> list[int]:
    """The places of four characters before a colon that begin with 2 or 3."""
    starts = np.flatnonzero(codes[4:] == COLON)
    return list(map(int, starts[(codes[starts] == TWO) | (codes[starts] == THREE)]))


def _is_digit(codes: Codes) -> npt.NDArray[np.bool_]:
    return (codes >= ZERO) & (codes <= NINE)


def _is_global(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.is_global and not parsed.is_multicast


def _known_starts(codes: Codes, starts: TokenPositions, ends: TokenPositions) -> list[int]:
    """The places where a token of a known issuer may begin: at a long token, or after a break inside it."""
    after = np.flatnonzero((codes == BREAKS[0]) | (codes == BREAKS[1])) + 1
    begins = np.concatenate([starts, after[np.searchsorted(starts, after) > np.searchsorted(ends, after)]])
    begins = begins[begins < len(codes) - 1]
    pairs = codes[begins].astype(np.uint32) << 8 | codes[begins + 1]
    return list(map(int, begins[_BEGINS_KNOWN.take(pairs, mode="clip")]))


def _unknown_starts(codes: Codes, starts: TokenPositions) -> list[int]:
    """The beginnings of the long tokens that may be a JSON Web Token or a quoted value."""
    before = codes[starts - 1]
    likely = (codes[starts] == E) | (before == QUOTES[0]) | (before == QUOTES[1])
    return list(map(int, starts[likely]))


def _long_tokens(classes: Classes) -> tuple[TokenPositions, TokenPositions]:
    """The beginnings and ends of the runs of token characters that are long enough for a secret."""
    inside = np.zeros(len(classes) + 2, bool)
    np.not_equal(classes & TOKEN, 0, out=inside[1:-1])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    long = edges[1::2] - edges[::2] >= TOKEN_SHORTEST
    return edges[::2][long], edges[1::2][long]
