"""Credentials: addresses without a secret in them, and the one way in which a secret is read, from a file.

What a resource is configured with is shown by the webserver, stored with failed runs and kept in backups. So no field
of a resource ever holds a secret: it names a file, and the process that needs the secret reads it at that moment.
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
"""Stands in a message where a server has repeated a secret."""
SHORTEST_TOKEN = 16
"""Characters of a token that nobody guesses."""
_SECRET_PARAMETER = re.compile(r"pass|secret|token|credential|signature|api_?key|access_?key", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY)$", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """A URI without its credentials, and these beside it."""

    uri: str
    user: str = ""
    password: str = field(default="", repr=False)


def holds_secret(uri: str) -> bool:
    """Whether a URI names a user, or has a parameter that looks like a secret. Without a scheme, a path never does."""
    if "://" not in uri:
        return False
    rest = uri.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    query = rest.partition("#")[0].partition("?")[2]  # not by urlsplit, whose errors show the whole address
    parameters = parse_qsl(query, keep_blank_values=True)
    return "@" in authority or any(_SECRET_PARAMETER.search(name) for name, _ in parameters)


def _must_be_public(uri: str) -> str:
    if holds_secret(uri):
        raise RefusedValue([RecipeFault((), "a user, password or token in it", SAFER)])
    return uri


PublicAddress = Annotated[str, AfterValidator(_must_be_public)]
"""A field for an address that people may see; it refuses one with a secret in it, and does not show it."""


def secret_variables(names: Iterable[str]) -> list[str]:
    """Those of an environment's names whose values look like secrets; ``..._FILE`` names a file, and is none."""
    return sorted(name for name in names if _SECRET_VARIABLE.search(name))


def without(text: str, headers: Iterable[str]) -> str:
    """A text of a server for people, without these values of headers, nor the key in one such as `Bearer KEY`."""
    secrets = {secret for value in headers for secret in (value, value.rpartition(" ")[2]) if secret}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def read_text(file: Path) -> str:
    """The text of a file with a secret. Raises OSError, and ValueError, which does not show what the file holds."""
    try:
        return regular_file.read(file).decode()
    except UnicodeDecodeError:
        pass  # what is raised within has this error as its context, and that has all bytes of the file
    raise ValueError(f"{file}: found bytes that are no UTF-8, expected a text")


def read_header(file: Path) -> str:
    """The secret in a file, for a header of HTTP. Raises as `read_text`, and ValueError for what no header may have."""
    return checked_header(read_text(file).strip(), str(file))


def token(file: Path) -> str:
    """The token in a file. Raises ValueError for one that is too short or fits no header, and OSError."""
    header = read_header(file)
    if len(header) < SHORTEST_TOKEN:
        raise ValueError(f"{file}: found a token of {len(header)} characters, expected {SHORTEST_TOKEN} or more")
    return header


def password_of_platform(file: Path) -> str:
    """What a part of the platform sends in the token's place; from the token, so that there is one secret to keep.

    A proxy sends the token itself, for whomever it lets in: so that nobody who comes through it can be taken for the
    platform, whatever headers they add. Raises as `token`.
    """
    return hmac.new(token(file).encode(), b"slipway: the platform itself", hashlib.sha256).hexdigest()


def checked_header(value: str, where: str) -> str:
    """A value for a header of HTTP, whose client would show a wrong one. Raises ValueError, which does not."""
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{where}: found a line break or a character that is not ASCII, expected one line of ASCII")
    return value


def read_address(file: Path) -> Address:
    """The address of an HTTP server in a file, ``https://user:password@host``, taken apart.

    Raises OSError when the file cannot be read, and ValueError, which does not show what the file holds, for an address
    whose secret its client would show.
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
