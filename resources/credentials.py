"""Credentials: addresses that contain no secret, and reading secrets from files.

The webserver shows the configuration of a resource, failed runs store it and backups keep it. So no field of a resource
ever holds a secret: it names a file, and the process that needs the secret reads that file when it needs it.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, unquote

from pydantic import AfterValidator

from slipway.recipes.problems import RecipeFault
from slipway.recipes.strict import RefusedValue
from slipway.trainer.base import regular_file

SAFER = "none, since it would be shown and stored: write it into a file that only Slipway reads, and name the file"
HIDDEN = "(not shown)"
"""The replacement for a secret that a server repeats in its message."""
SHORTEST_TOKEN = 16
"""The minimum length of a token, in characters."""
_SECRET_PARAMETER = re.compile(r"pass|secret|token|credential|signature|api_?key|access_?key", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY)$", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """A URI, and separately the credentials that it contained."""

    uri: str
    user: str = ""
    password: str = field(default="", repr=False)


def holds_secret(uri: str) -> bool:
    """Whether a URI names a user or has a parameter that looks like a secret. A path without a scheme never does."""
    if "://" not in uri:
        return False
    rest = uri.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    query = rest.partition("#")[0].partition("?")[2]  # not with urlsplit, whose errors show the whole address
    parameters = parse_qsl(query, keep_blank_values=True)
    return "@" in authority or any(_SECRET_PARAMETER.search(name) for name, _ in parameters)


def _must_be_public(uri: str) -> str:
    if holds_secret(uri):
        raise RefusedValue([RecipeFault((), "a user, password or token in it", SAFER)])
    return uri


PublicAddress = Annotated[str, AfterValidator(_must_be_public)]
"""A field for an address that people may see. It rejects an address with a secret, and its error hides the value."""


def secret_variables(names: Iterable[str]) -> list[str]:
    """The environment variables that probably hold secrets. ``..._FILE`` names a file and is not one of them."""
    return sorted(name for name in names if _SECRET_VARIABLE.search(name))


def without(text: str, headers: Iterable[str]) -> str:
    """A server's message without these header values, and without the key in a value such as `Bearer KEY`."""
    secrets = {secret for value in headers for secret in (value, value.rpartition(" ")[2]) if secret}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def read_text(file: Path) -> str:
    """The text of a file with a secret. Raises OSError, or a ValueError that does not show the file's content."""
    try:
        return regular_file.read(file).decode()
    except UnicodeDecodeError:
        pass  # raising here would chain this error, which contains all bytes of the file
    raise ValueError(f"{file}: found bytes that are no UTF-8, expected a text")


def read_header(file: Path) -> str:
    """The secret in a file, for an HTTP header. Raises as `read_text` does, and ValueError if no header may hold it."""
    return checked_header(read_text(file).strip(), str(file))


def token(file: Path) -> str:
    """The token in a file. Raises OSError, and ValueError if the token is too short or not valid in a header."""
    header = read_header(file)
    if len(header) < SHORTEST_TOKEN:
        raise ValueError(f"{file}: found a token of {len(header)} characters, expected {SHORTEST_TOKEN} or more")
    return header


def password_of_platform(file: Path) -> str:
    """The password that the platform's own processes send instead of the token. It is derived from the token, so that
    there is only one secret to protect.

    A proxy sends the token itself for everybody whom it lets in. So nobody who comes through the proxy can pass as the
    platform, whatever headers they add. Raises as `token` does.
    """
    return hmac.new(token(file).encode(), b"slipway: the platform itself", hashlib.sha256).hexdigest()


def checked_header(value: str, where: str) -> str:
    """A value that fits an HTTP header. Raises a ValueError that hides the value; the HTTP client's error shows it."""
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{where}: found a line break or a character that is not ASCII, expected one line of ASCII")
    return value


def read_address(file: Path) -> Address:
    """The address of an HTTP server in a file, ``https://user:password@host``, split into URI and credentials.

    Raises OSError if the file cannot be read, and a ValueError that does not show the file's content if the address
    holds a secret in a place where its client would show it.
    """
    text = read_text(file).strip()
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https"):
        return Address(_checked(file, text, "a database's password in the file of its own driver (PGSERVICEFILE)"))
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    user, _, password = login.partition(":")
    uri = _checked(file, f"{scheme}://{host}{slash}{path}", "the secret before the host: https://user:password@host")
    return Address(uri, unquote(user), unquote(password))


def _checked(file: Path, uri: str, expected: str) -> str:
    if holds_secret(uri):
        raise ValueError(f"{file}: found an address that would show its secret, expected {expected}")
    return uri
