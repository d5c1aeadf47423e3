"""People: their names, as a proxy sends them in a header and as the platform's settings list them.

The same rules apply to both. So a header can carry every name in the settings, and every recorded name is one readable
line.
"""

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from slipway.resources.credentials import secret_variables

LONGEST = 256
"""The maximum length of a name in characters; an email address has 254 at most (RFC 5321)."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110
_SECRET = ("authorization", "proxy-authorization", "cookie")


def checked(name: str) -> str:
    """The name in Unicode's composed form (NFC). Raises ValueError with what was expected."""
    if len(name) > LONGEST:
        raise ValueError(f"expected {LONGEST} characters at most")
    if not name.isprintable():
        raise ValueError("expected a name of letters that can be printed")
    if name != name.strip():
        raise ValueError("expected no space before or after it")
    if not name:
        raise ValueError("expected text that is not empty")
    return unicodedata.normalize("NFC", name)


def named(values: list[str]) -> str:
    """The person whom the values of a header name, or "". Raises ValueError.

    Servers decode headers as Latin-1, but proxies send UTF-8.
    """
    if len(values) > 1:
        raise ValueError(f"found {len(values)} names, expected one")
    if not values or not values[0]:
        return ""
    name = _decoded(values[0])
    try:
        return checked(name)
    except ValueError as error:
        description = repr(name) if len(name) <= LONGEST else f"{len(name)} characters"
        raise ValueError(f"found {description}, {error}") from None


def _decoded(value: str) -> str:
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _header(name: str) -> str:
    if name and not _HEADER.fullmatch(name):
        raise ValueError("expected the name of a header, such as X-Forwarded-User")
    if name.lower() in _SECRET or secret_variables([name]):
        raise ValueError("expected a header that names a person: this one carries a secret")
    return name


PersonName = Annotated[str, AfterValidator(checked)]
"""A settings field for the name of a person."""
PersonHeader = Annotated[str, AfterValidator(_header)]
"""A settings field for the header that names the person; empty for none."""
