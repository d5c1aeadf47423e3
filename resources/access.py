"""Access: who may use the webserver, who a visitor is, and what that person may do.

token       If SLIPWAY_TOKEN_FILE names a file with a token, every request must carry that token: as `Authorization:
            Bearer TOKEN`, or as the password that a browser asks for. A proxy that authenticates people sends it too.
person      The name that this proxy sends in the header `user_header` of the platform's settings.
viewer      Sees everything but starts, stops and changes nothing. If the settings name `operators`, everybody else is
            a viewer.
operator    Also launches and ends runs.
promoter    Also decides which version of a model is champion; `slipway.resources.promotions.promotion` enforces this.
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
    """The access rules of one webserver. Without rules, everybody who reaches it is an operator."""

    token_file: Path | None = None
    user_header: str = ""
    operators: frozenset[str] = frozenset()
    promoters: frozenset[str] = frozenset()

    def admits(self, headers: Headers) -> bool:
        """Whether a request carries the token. Raises ValueError or OSError if the token file cannot be read.

        Every request reads the file again, so a changed token takes effect at once.
        """
        if self.token_file is None:
            return True
        return hmac.compare_digest(_token_of(headers), token(self.token_file).encode())

    def is_platform(self, headers: Headers) -> bool:
        """Whether the request comes from the platform itself and not through a proxy. Raises as `admits` does."""
        if self.token_file is None:
            return False
        return hmac.compare_digest(_token_of(headers), password_of_platform(self.token_file).encode())

    def person(self, headers: Headers) -> str:
        """The person whom the proxy names, or "". Only call it for an admitted request.

        Raises ValueError if the header holds no valid name.
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
    """The access rules of this process.

    Raises ValueError for an unusable token, for wrong settings, and for a `user_header` without a token.
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
            "sends: without it, anybody who reaches the webserver could claim any name"
        )
    return rules


def of_settings(environ: Mapping[str, str]) -> Access:
    """The people named in the platform's settings. Raises InvalidRecipes for wrong settings."""
    settings = platform.named(environ)
    if settings is None:
        return Access()
    loaded = platform.load(settings)
    return Access(None, loaded.user_header, frozenset(loaded.operators), frozenset(loaded.promoters))


def token_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The path of the token file, or None if SLIPWAY_TOKEN_FILE is not set."""
    return Path(environ[TOKEN]) if environ.get(TOKEN) else None


def _token_of(headers: Headers) -> bytes:
    """The token that a request carries, or b""."""
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
