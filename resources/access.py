"""Access: who may come in to the webserver, who it is, and what they may do.

token       every request must carry it, where SLIPWAY_TOKEN_FILE names a file with one: `Authorization: Bearer
            TOKEN`, or the password that a browser asks for. A proxy that authenticates people sends it too.
person      whom that proxy names in the header `user_header` of the platform's settings
viewer      sees everything and starts, stops and changes nothing: where `operators` are named, everybody else
operator    also launches runs and ends them
promoter    also decides which version of a model is champion; `slipway.resources.promotions.promotion` enforces it
"""

import base64
import dataclasses
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers

from slipway.resources import people, platform
from slipway.resources.credentials import password_of_platform, token

TOKEN = "SLIPWAY_TOKEN_FILE"


@dataclass(frozen=True)
class Access:
    """The rules of one place. Without any, everybody who reaches the webserver is an operator."""

    token_file: Path | None = None
    user_header: str = ""
    operators: frozenset[str] = frozenset()
    promoters: frozenset[str] = frozenset()

    def admits(self, headers: Headers) -> bool:
        """Whether a request carries the token. Raises ValueError and OSError for a token that cannot be read.

        The file is read for each request, so that a changed token holds at once.
        """
        if self.token_file is None:
            return True
        return hmac.compare_digest(_token_of(headers), token(self.token_file).encode())

    def is_platform(self, headers: Headers) -> bool:
        """Whether a part of the platform itself sends this, and nobody whom a proxy lets in. Raises as `admits`."""
        if self.token_file is None:
            return False
        return hmac.compare_digest(_token_of(headers), password_of_platform(self.token_file).encode())

    def person(self, headers: Headers) -> str:
        """The person whom the proxy names; empty where nobody is known. Ask it of an admitted request only.

        Raises ValueError for what is no name.
        """
        try:
            return people.named(headers.getlist(self.user_header)) if self.user_header else ""
        except ValueError as error:
            raise ValueError(f"{self.user_header}: {error}") from None

    def refusal(self, person: str) -> str:
        """Why this person may not start, stop or change anything; empty when they may."""
        if not self.operators or person in self.operators | self.promoters:
            return ""
        expected = ", ".join(sorted(self.operators | self.promoters))
        return f"found {person or 'nobody known'}, expected one of the platform's operators: {expected}"


def of_environment(environ: Mapping[str, str] = os.environ) -> Access:
    """The rules of this place.

    Raises ValueError for a token that cannot be used, for settings that are wrong, and for names without a token.
    """
    file = token_file(environ)
    if file is not None:
        try:
            token(file)
        except OSError as error:
            raise ValueError(f"{TOKEN}={file}: found {error.strerror!r}, expected a file with the token") from None
    rules = dataclasses.replace(of_settings(environ), token_file=file)
    if rules.user_header and file is None:
        raise ValueError(
            f"user_header: found {rules.user_header!r} without {TOKEN}, expected a file with the token that the proxy "
            "sends: without it, whoever reaches the webserver gives any name"
        )
    return rules


def of_settings(environ: Mapping[str, str]) -> Access:
    """What the platform's settings say of people. Raises InvalidRecipes for settings that are wrong."""
    settings = platform.named(environ)
    if settings is None:
        return Access()
    loaded = platform.load(settings)
    return Access(None, loaded.user_header, frozenset(loaded.operators), frozenset(loaded.promoters))


def token_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file of the token, None where none is set."""
    return Path(environ[TOKEN]) if environ.get(TOKEN) else None


def _token_of(headers: Headers) -> bytes:
    """The token that a request carries; empty for none."""
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            return credential.strip().encode()
        case "basic":
            try:
                return base64.b64decode(credential, validate=True).partition(b":")[2]
            except ValueError:
                return b""
    return b""
