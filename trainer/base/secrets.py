"""Secrets as spans of a text: private keys, tokens of known issuers, webhooks, passwords, and random strings with a
name that is usual for a secret.

A cheap search of the whole text finds the few places at which one may begin, and only these are tested: a library that
tries each pattern on each line takes 30 times as long (detect-secrets in benchmarks/quality.py).
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from slipway.trainer.base.characters import TOKEN, Classes, Codes, classes_of, codes_of

Span = tuple[int, int]
TokenPositions = npt.NDArray[np.int64]
E = ord("e")
BREAKS, BEFORE_VALUES, BLANKS = (tuple(map(ord, signs)) for signs in ("+/", "'\"=:>rRcC`", " \t"))
"""BREAKS are in no token of a known issuer, but in other secrets. BEFORE_VALUES stand before a value: quotes, signs
that assign, and the last letters of `Bearer` and `Basic`."""

TOKEN_SHORTEST = 16
"""The fewest characters of a secret that is no password."""
_KNOWN = re.compile(
    r"""(?:
      (?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}                # AWS access key
    | gh[pousr]_[A-Za-z0-9]{36,255} | github_pat_[A-Za-z0-9_]{82}    # GitHub
    | gl(?:pat|ptt|rt|cbt|dt|ft|soat)-[A-Za-z0-9_-]{20,}             # GitLab
    | xox[abeoprs]-[A-Za-z0-9-]{10,250} | xapp-[0-9]-[A-Za-z0-9-]{20,}    # Slack
    | AIza[A-Za-z0-9_-]{35} | GOCSPX-[A-Za-z0-9_-]{28}               # Google
    | sk-[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}    # OpenAI
    | sk-ant-[a-z]+[0-9]{2}-[A-Za-z0-9_-]{80,}                       # Anthropic
    | hf_[A-Za-z0-9]{34}                                             # Hugging Face
    | npm_[A-Za-z0-9]{36} | pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}   # npm, PyPI
    | [rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,99} | whsec_[A-Za-z0-9]{32,64}    # Stripe
    | do[opr]_v1_[a-f0-9]{64}                                        # DigitalOcean
    | SK[0-9a-f]{32}                                                 # Twilio
    | dapi[a-f0-9]{32}                                               # Databricks
    | shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}                             # Shopify
    | glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}                               # Grafana
    | lin_api_[A-Za-z0-9]{40} | ntn_[A-Za-z0-9]{40,50}               # Linear, Notion
    | gsk_[A-Za-z0-9]{52} | nvapi-[A-Za-z0-9_-]{60,70}               # Groq, NVIDIA
    | key-[0-9a-f]{32} | sq0(?:csp|atp)-[A-Za-z0-9_-]{22,43}         # Mailgun, Square
    | AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}         # age
    )(?![A-Za-z0-9_-])""",
    re.VERBOSE,
)
"""Tokens whose form shows their issuer: patterns of gitleaks 8 (github.com/gitleaks/gitleaks, config/gitleaks.toml)."""
_BEGINS_KNOWN = np.zeros(1 << 16, bool)
_PAIRS = b"A3 AK AS AB AC AI AG gh gi gl xo xa GO sk hf np py rk wh do SK da sh li nt gs nv ke sq"
_BEGINS_KNOWN[[int.from_bytes(two) for two in _PAIRS.split()]] = True
"""Whether two characters begin one of these tokens."""
_JWT = re.compile(r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", re.ASCII)
"""A signed JSON Web Token (RFC 7519): two objects in base64url, and a signature."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN[ A-Z0-9_-]{0,64}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----)[\s\S])*-----END[ A-Z0-9_-]{0,64}PRIVATE KEY(?: BLOCK)?-----|(?:[A-Za-z0-9+/=\s]|\\[nr])*)"
)
"""RFC 7468, PGP and OpenSSH, also in a string of JSON; a key without its end goes as far as its base64."""
_ANCHORED: Mapping[str, re.Pattern[str]] = {
    "hooks.slack.com/": re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/]{20,})"),
    "/api/webhooks/": re.compile(r"/api/webhooks/([0-9]{15,20}/[\w-]{40,})", re.ASCII),
    ".webhook.office.com/": re.compile(r"\.webhook\.office\.com/webhookb2/([\w@/-]{40,})", re.ASCII),
    "SG.": re.compile(r"(SG\.[\w-]{16,32}\.[\w-]{16,64})(?![\w-])", re.ASCII),
    "hvs.": re.compile(r"(hvs\.[\w-]{24,})", re.ASCII),
    "ya29.": re.compile(r"(ya29\.[\w-]{20,})", re.ASCII),
    "://": re.compile(r"://(?!([^\s:/@]*):\1@)[^\s:/@'\"<>]{0,64}:([^\s:/@'\"<>]{3,100})@(?=[A-Za-z0-9\[])"),
}
"""Webhooks, tokens with a dot, and passwords in URLs, by what is looked for in the whole text: the last
group is masked."""
_TELEGRAM = re.compile(r"(?<![0-9])[0-9]{8,10}\Z"), re.compile(r":AA[\w-]{33}(?![\w-])", re.ASCII)
_SECRET_NAMES = r"(?:key|token|secret|passwd|password|passphrase|pass|pwd|credential|auth|signature)"
_NAMED = re.compile(
    rf"([\w.-]{{0,24}}{_SECRET_NAMES}[\w.-]{{0,20}})[\"']?[ \t]{{0,3}}(?::=|=>|=|:)[ \t]{{0,3}}[\"'`]?\Z"
    r"|\b(?:bearer|basic|token)[ \t]\Z",
    re.ASCII | re.IGNORECASE,
)
_OTHER_NAMES = re.compile(
    r"public|pub_?key|tokeni[sz]|author(?!i)|keyword|keyboard|monkey|turkey|primary|foreign|fingerprint|hash|checksum|"
    r"cache|digest|key_?id|compass|bypass|passage|passenger|passive",
    re.IGNORECASE,
)
"""Names in which a usual name of a secret is another word, or whose values are known to all."""
_QUOTED = re.compile(r"([A-Za-z0-9+/_=.-]{16,150})[\"'`]")
_BARE = re.compile(r"([A-Za-z0-9+/_-]{16,150}={0,2})(?![A-Za-z0-9+/_=.(\[:@-])")
NAME_LONGEST = 64
ENTROPY_LEAST = 3.5
"""Bits a character, by the frequencies of its own characters; as gitleaks' generic rule."""
HEXADECIMAL_ENTROPY_LEAST = 3.0
"""The same of hexadecimal digits, which have 4 at most; detect-secrets' limit."""
_HEXADECIMAL = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
_CHANGE = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
_TO_OR_FROM_DIGIT = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
CHANGES_LEAST = 0.25
"""Changes of case, or between letter and digit, for each letter or digit: random base62 has 0.6, hexadecimal 0.47, and
names made of words far fewer."""
BARE_CHANGES_LEAST = 0.4
"""Of a string without quotes or digits, which may be a name: so many changes, or 3 between letter and digit."""
_PASSWORD = re.compile(
    r"(?:assw(?:or)?d|assphrase|wd|ASSW(?:OR)?D|ASSPHRASE|WD)[\w-]{0,12}[\"']?[ \t]{0,3}(?:=>|:=|=|:)[ \t]{0,3}[\"']?"
    r"([^\s\"'`,;()\[\]{}<>$\\|]{8,64})(?=[\"'\s,;}&]|\Z)"
)
_PASSWORD_NAMES = ("assw", "ASSW", "assphrase", "ASSPHRASE", "pwd", "PWD", "Pwd")
_NO_PASSWORD = re.compile(r"\.[A-Za-z_]|://|\A[/%*.~]|\*{3}|\A[xX]+\Z|=|example|changeme|placeholder", re.IGNORECASE)
_FEW_KINDS = {"password", "passwd", "pass", "secret", "token", "user", "username", "pwd", "key", "xxx", "changeme"}


def find(text: str) -> Iterator[Span]:
    """Private keys, tokens of known issuers, webhooks, JSON Web Tokens, passwords, and random strings that are assigned
    to a name such as api_key, in quotes or not, or that follow `Bearer`."""
    if "-----BEGIN" in text:
        yield from (match.span() for match in _PRIVATE_KEY.finditer(text))
    codes = codes_of(text)
    starts, ends = _long_tokens(classes_of(codes))
    for begin in _known_starts(codes, starts, ends):
        match = _KNOWN.match(text, begin)
        if match:
            yield match.span()
    for start in _unknown_starts(codes, starts):
        if text.startswith("eyJ", start) and (match := _JWT.match(text, start)):
            yield match.span()
        elif match := _assigned(text, start):
            yield match.span(1)
    yield from _anchored(text)
    yield from _passwords(text)


def looks_random(value: str, changes: float = CHANGES_LEAST) -> bool:
    """Whether a string has the entropy of a secret, and does not consist of words and numbers."""
    signs = "".join(filter(str.isalnum, value))
    shares = [count / len(value) for count in Counter(value).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    least = HEXADECIMAL_ENTROPY_LEAST if _HEXADECIMAL.fullmatch(value) else ENTROPY_LEAST
    return entropy >= least and len(_CHANGE.findall(signs)) >= changes * len(signs)


def _assigned(text: str, start: int) -> re.Match[str] | None:
    """The random value that begins at `start`, if it is assigned to a name that is usual for a secret."""
    named = _NAMED.search(text[max(start - NAME_LONGEST, 0) : start])
    if named is None or (named[1] and _OTHER_NAMES.search(named[1])):
        return None
    if text[start - 1] in "'\"`":
        match = _QUOTED.match(text, start)
        has_digit = match is not None and any(map(str.isdigit, match[1]))
        return match if match and looks_random(match[1], CHANGES_LEAST if has_digit else BARE_CHANGES_LEAST) else None
    match = _BARE.match(text, start)
    return match if match and _bare_looks_random(match[1]) else None


def _bare_looks_random(value: str) -> bool:
    """Whether a string without quotes is no name and no path."""
    if looks_random(value, BARE_CHANGES_LEAST):
        return True
    return looks_random(value) and len(_TO_OR_FROM_DIGIT.findall(value)) >= 3


def _anchored(text: str) -> Iterator[Span]:
    """Webhooks, tokens with a dot, passwords in URLs."""
    for anchor, pattern in _ANCHORED.items():
        at = text.find(anchor)
        while at >= 0:
            match = pattern.match(text, at)
            if match and not (anchor == "://" and _is_a_placeholder(match[match.re.groups])):
                yield match.span(match.re.groups)
            at = text.find(anchor, at + 1)
    at = text.find(":AA")
    while at >= 0:
        number = _TELEGRAM[0].search(text[max(at - 11, 0) : at])
        rest = _TELEGRAM[1].match(text, at)
        if number and rest:
            yield at - len(number[0]), rest.end()
        at = text.find(":AA", at + 1)


def _passwords(text: str) -> Iterator[Span]:
    """Values of 8 characters and more that are assigned to a password and mix kinds of characters."""
    for name in _PASSWORD_NAMES:
        at = text.find(name)
        while at >= 0:
            match = _PASSWORD.match(text, at + (name.lower() == "pwd"))
            if match and _is_strong(match[1]):
                yield match.span(1)
            at = text.find(name, at + 1)


def _is_strong(value: str) -> bool:
    """Whether a value has a small letter, a digit, and a capital or a sign, and does not stand for another."""
    kinds = any(map(str.islower, value)), any(map(str.isdigit, value))
    third = any(map(str.isupper, value)) or any(sign in "!@#%^&*+?~" for sign in value)
    return all(kinds) and third and not _NO_PASSWORD.search(value)


def _is_a_placeholder(value: str) -> bool:
    """Whether a password in a URL stands for one: `user:password@host`, `user:$PASSWORD@host`."""
    return value[0] in "${%*[" or value.lower() in _FEW_KINDS or not any(map(str.isalnum, value))


def _known_starts(codes: Codes, starts: TokenPositions, ends: TokenPositions) -> list[int]:
    """The places where a token of a known issuer may begin: at a long token, or after a break inside it."""
    after = np.flatnonzero((codes == BREAKS[0]) | (codes == BREAKS[1])) + 1
    begins = np.concatenate([starts, after[np.searchsorted(starts, after) > np.searchsorted(ends, after)]])
    begins = begins[begins < len(codes) - 1]
    pairs = codes[begins].astype(np.uint32) << 8 | codes[begins + 1]
    return list(map(int, begins[_BEGINS_KNOWN.take(pairs, mode="clip")]))


def _unknown_starts(codes: Codes, starts: TokenPositions) -> list[int]:
    """The beginnings of the long tokens that may be a JSON Web Token or a value, with or without quotes."""
    if not len(starts):  # as in most texts, of which there may be many short ones
        return []
    before = starts - 1
    for _ in range(3):
        before = np.where((before > 0) & np.isin(codes[before], BLANKS), before - 1, before)
    likely = (codes[starts] == E) | ((starts > 0) & np.isin(codes[before], BEFORE_VALUES))
    return list(map(int, starts[likely]))


def _long_tokens(classes: Classes) -> tuple[TokenPositions, TokenPositions]:
    """The beginnings and ends of the runs of token characters that are long enough for a secret."""
    inside = np.zeros(len(classes) + 2, bool)
    np.not_equal(classes & TOKEN, 0, out=inside[1:-1])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    long = edges[1::2] - edges[::2] >= TOKEN_SHORTEST
    return edges[::2][long], edges[1::2][long]
