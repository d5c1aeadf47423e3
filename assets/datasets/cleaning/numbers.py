"""Numbers that identify a person: telephone numbers, payment cards and bank accounts (IBAN), as spans of a text.

A number counts if it is valid by its own rules: those of libphonenumber, the check digit of Luhn (ISO/IEC 7812), or the
remainder of ISO 13616.
"""

import re
from collections.abc import Iterator

import numpy as np

from slipway.assets.datasets.cleaning.addresses import is_digit
from slipway.trainer.base.characters import codes_of

Span = tuple[int, int]

_PHONE = re.compile(r"(?<![\w.+/=-])(?:\+[1-9]|\(?0[0-9(]|\(?[2-9][0-9]{2})[0-9 ()./-]{4,18}[0-9](?![\w/=-]|\.[0-9])")
_DECIMAL = re.compile(r"\.[0-9](?![0-9])")
_NORTH_AMERICAN = re.compile(r"(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[-.])[2-9][0-9]{2}[-.][0-9]{4}")
_CALLED = re.compile(
    r"(?:\btel|phone|\bcell|mobile|\bfax|whatsapp|\bcall|\bhandy|telefon|\btél|téléphone|móvil|teléfono|тел|电话|電話|전화)"
    r"[a-z]{0,6}[\s.:()#\"'=-]{0,5}(?:(?:at|us|me|no|nr|number)\b[\s.:]{0,3})?\Z",
    re.IGNORECASE,
)
"""Words that announce a telephone number."""
PHONE_DIGITS = range(7, 16)
"""From the shortest subscriber's number with an area code to the longest number of E.164, in digits."""

_CARD = re.compile(r"(?<![\w.+/-])[2-6][0-9]{3}(?:[ -]?[0-9]){8,14}[0-9](?![\w/=]|[.-][0-9])")
_ISSUERS = re.compile(
    r"(?:4[0-9]{12}(?:[0-9]{3}){0,2}|5[1-5][0-9]{14}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|6(?:011|5[0-9]{2}|4[4-9][0-9])[0-9]{12}|35(?:2[89]|[3-8][0-9])[0-9]{12}|62[0-9]{14,17})\Z"
)
"""Visa, Mastercard, American Express, Diners Club, Discover, JCB, UnionPay: their first digits and lengths."""

_IBAN = re.compile(r"(?<![A-Za-z0-9])([A-Z]{2})[0-9]{2}(?=[ ]?[A-Z0-9]{4}[ A-Z0-9]{7})")
_LENGTHS = """
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24
    FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21
    LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22
    RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _LENGTHS.split()}
"""Characters of an account's number by its country: the registry of ISO 13616."""


def phones(text: str) -> Iterator[Span]:
    """Telephone numbers: valid ones with a country code, valid ones in North American form, and those that a word
    announces."""
    for match in _matches(text, _PHONE, PHONE_DIGITS[0], within=20, before=2):
        number = match[0]
        if _DECIMAL.search(number):
            continue
        if number.startswith("+"):
            if _is_valid(number, None):
                yield match.span()
            continue
        american = _NORTH_AMERICAN.fullmatch(number)
        if american is not None:
            if _is_valid(american[0], "US"):
                yield match.span()
        elif _is_called_so(text, match):
            yield match.span()


def cards(text: str) -> Iterator[Span]:
    """Numbers of payment cards: an issuer's first digits and length, and Luhn's check digit."""
    for match in _matches(text, _CARD, digits=12, within=18, before=0):
        digits = match[0].replace(" ", "").replace("-", "")
        if _ISSUERS.match(digits) and len(set(digits)) > 1 and _passes_luhn(digits):
            yield match.span()


def ibans(text: str) -> Iterator[Span]:
    """Bank accounts: the country's length, and the remainder 1 of the number modulo 97."""
    for match in _matches(text, _IBAN, digits=2, within=2, before=2):
        end = _end_after(text, match.start(), IBAN_LENGTHS.get(match[1], 0))
        if end is None or text[end : end + 1].isalnum():
            continue
        compact = text[match.start() : end].replace(" ", "")
        if int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1:
            yield match.start(), end


def _matches(text: str, pattern: re.Pattern[str], digits: int, within: int, before: int) -> Iterator[re.Match[str]]:
    """What a pattern matches whose first `digits` digits are within `within` characters, with up to `before` others
    before the first; matches do not overlap."""
    indexes = np.flatnonzero(is_digit(codes_of(text)))
    last = indexes[digits - 1 :]
    firsts = indexes[: len(last)]
    end = 0
    for first in firsts[last - firsts < within].tolist():
        for start in range(max(first - before, end), first + 1):
            match = pattern.match(text, start)
            if match:
                end = match.end()
                yield match
                break


def _is_valid(number: str, region: str | None) -> bool:
    # Imported here, because every process of Dagster loads this module and few of them mask.
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False


def _is_called_so(text: str, match: re.Match[str]) -> bool:
    before = text[max(match.start() - 24, 0) : match.start()]
    return sum(map(str.isdigit, match[0])) in PHONE_DIGITS and _CALLED.search(before) is not None


def _passes_luhn(digits: str) -> bool:
    """Whether the last digit is Luhn's: every second digit from the right is doubled, and all digits are added."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _end_after(text: str, begin: int, count: int) -> int | None:
    """The end of `count` capitals and digits, with single spaces between; None if there are fewer."""
    at = begin
    missing = count
    while missing and at < len(text):
        sign = text[at]
        if sign == " " and text[at - 1] != " ":
            at += 1
        elif sign.isascii() and (sign.isdigit() or sign.isupper()):
            at += 1
            missing -= 1
        else:
            return None
    return at if count and not missing else None
