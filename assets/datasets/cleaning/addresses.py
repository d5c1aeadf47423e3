"""Addresses: finds e-mail addresses in any script, and public IP addresses, as spans of a text.

A cheap search over the whole text finds the few places where an address may begin, and only these are tested.
"""

import functools
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slipway.trainer.base.characters import Codes, codes_of

Span = tuple[int, int]
ZERO, TWO, THREE, NINE, DOT, COLON = map(ord, "0239.:")

LOCAL_LONGEST = 64
"""The most characters before the @ of an address (RFC 5321, 4.5.3.1.1)."""
_SPACED = (
    r"\u00c0-\u024f\u0370-\u052f\u0531-\u0587\u05d0-\u05ea\u0620-\u06d3\u0900-\u0963\u0966-\u0dff"
    r"\u10a0-\u10ff\u1e00-\u1fff"
)
"""Letters of scripts with spaces between words: Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, Indic, Georgian."""
_JOINED = r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
"""Letters of scripts in which a word may follow an address, or stand before it, without a space."""
_SIGNS = r".!#$%&'*+/=?^`{|}~_-"
_LOCAL = re.compile(rf"(?<![A-Za-z0-9{_SPACED}{_SIGNS}])[A-Za-z0-9{_SPACED}][A-Za-z0-9{_SPACED}{_SIGNS}]*\Z")
_JOINED_LOCAL = re.compile(rf"[{_JOINED}][\w.+-]*\Z")
_DOMAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+([A-Za-z]{2,24})(?![\w-])", re.ASCII)
_USER_INFO = re.compile(r"://[^\s/@]*:\Z")
_ANY = f"A-Za-z0-9{_SPACED}{_JOINED}"
_DOMAIN_IN_ANY_SCRIPT = re.compile(
    rf"(?:[{_ANY}](?:[{_ANY}-]{{0,61}}[{_ANY}])?\.)+([A-Za-z]{{2,24}}(?![\w-])|[{_SPACED}{_JOINED}]{{2,24}})"
)
"""Internationalised addresses (RFC 6531)."""

_IPV4 = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\w|\.\w|-[A-Za-z])")
_IPV6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]*[0-9A-Fa-f:](?![\w:])")
_NUMBERED = re.compile(
    r"(?:version|\bver|release|\brev|revision|section|\bsect?|chapter|clause|article|paragraph|table|figure|\bfig|appendix|"
    r"annex|\brule|\bstep|\bpart|§)s?\b[\"']?[\s:.=>(\"'~^]{0,4}\Z|[\w)\]][=~<>!]=\s?\Z|[A-Za-z]/\Z|[A-Za-z0-9]-\Z",
    re.IGNORECASE,
)
"""Text before a number of four parts that is a version or the number of a section."""
_HEADING = re.compile(r"\.?[ \t]+(?:[^\W\d_a-z]|\.{3})")
_LINE_BEGINS = re.compile(r"(?:^|\n)[ \t#*=>-]*\Z|[\"“]\Z")
SECTION_MOST = 60
"""The largest part of a section's number."""


def emails(text: str) -> Iterator[Span]:
    """E-mail addresses: a local part of at most 64 characters, and a domain whose top level exists."""
    at = text.find("@")
    while at >= 0:
        end = _end_of_domain(text, at + 1)
        length = _length_of_local(text, at) if end else 0
        if end and length and not _is_of_a_url(text, at - length, at, end):
            yield at - length, end
        at = text.find("@", at + 1)


def _is_of_a_url(text: str, begin: int, at: int, end: int) -> bool:
    """Whether the match is the password and host of a URL, or a git remote."""
    if text.startswith(":", end) and text[begin:at] == "git":
        return True
    return _USER_INFO.search(text[max(begin - LOCAL_LONGEST, 0) : begin]) is not None


def _length_of_local(text: str, at: int) -> int:
    """The characters of the local part before the @ at `at`; 0 if there is none."""
    before = text[max(at - LOCAL_LONGEST - 1, 0) : at]
    match = _LOCAL.search(before) or _JOINED_LOCAL.search(before)
    if match and len(match[0]) <= LOCAL_LONGEST:
        return len(match[0])
    return 0


def _end_of_domain(text: str, begin: int) -> int | None:
    """The end of the domain that begins there; None if there is none, or if a call or an index follows: `q@k.T(`."""
    match = _DOMAIN.match(text, begin)
    if match is None or not _is_top_level(match[1]):
        match = _shorter(text, match) or _DOMAIN_IN_ANY_SCRIPT.match(text, begin)
    if match is None or not _is_top_level(match[1]) or text[match.end() : match.end() + 1] in ("(", "["):
        return None
    *_, label, top = match[0].split(".")
    is_an_operand = len(label) == 1 and len(top) > 2 and top.lower() not in ("com", "org", "net")
    return None if is_an_operand else match.end()


def _shorter(text: str, match: re.Match[str] | None) -> re.Match[str] | None:
    """The domain without the beginning of the next sentence, when there is no space between: `x@a.org.The`."""
    if match is None or not match[1][0].isupper():
        return None
    return _DOMAIN.match(text, match.start(), match.start(1) - 1)


def _is_top_level(name: str) -> bool:
    if name[0].islower() and not name.islower():
        return False  # an attribute: x@weight.mT
    return not name.isascii() or len(name) == 2 or name.lower() in _top_levels()


@functools.cache
def _top_levels() -> frozenset[str]:
    """The top-level domains of three letters and more (the public suffix list of 2025); all of two are countries."""
    return frozenset((Path(__file__).parent / "top_level_domains.txt").read_text().split())


def ips(text: str) -> Iterator[Span]:
    """Public addresses, as FineWeb masks them: IPv4, and IPv6 of 2000::/3.

    Addresses of loopback, private, documentation and reserved ranges identify no person. Versions and the numbers of
    sections have the form of an address; what stands before and behind them distinguishes them.
    """
    codes = codes_of(text)
    starts = {*_ipv4_starts(codes), *_ipv6_starts(codes)}
    for start in sorted(starts):
        match = _IPV4.match(text, start) or _IPV6.match(text, start)
        if match and _is_global(match[0]) and not _is_a_number(text, match):
            yield match.span()


def _is_a_number(text: str, match: re.Match[str]) -> bool:
    """Whether a number of four parts is a version or the number of a section."""
    if ":" in match[0]:
        return False
    before = text[max(match.start() - 24, 0) : match.start()]
    if _NUMBERED.search(before):
        return True
    small = all(int(part) <= SECTION_MOST for part in match[0].split("."))
    return small and bool(_LINE_BEGINS.search(before) and _HEADING.match(text, match.end()))


def _ipv4_starts(codes: Codes) -> list[int]:
    """The places where four runs of digits with single dots between them may begin."""
    dots = np.flatnonzero(codes[1:-1] == DOT) + 1
    dots = dots[is_digit(codes[dots - 1]) & is_digit(codes[dots + 1])]
    first = dots[:-2][dots[2:] - dots[:-2] <= 8]
    return [dot - length for dot in first.tolist() for length in (1, 2, 3) if dot >= length]


def _ipv6_starts(codes: Codes) -> list[int]:
    """The places of four characters before a colon that begin with 2 or 3."""
    starts = np.flatnonzero(codes[4:] == COLON)
    return list(map(int, starts[(codes[starts] == TWO) | (codes[starts] == THREE)]))


def is_digit(codes: Codes) -> npt.NDArray[np.bool_]:
    """Which code points are digits of ASCII."""
    return (codes >= ZERO) & (codes <= NINE)


def _is_global(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.is_global and not parsed.is_multicast
