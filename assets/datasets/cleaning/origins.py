"""Origins: leaves out documents because of their URL or their licence."""

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from slipway.assets.datasets.reading.document import About
from slipway.recipes.filters import UrlsSection

URL = "url"
"""The reason for a document whose URL is blocked."""
LICENSE = "license"
"""The reason for a document whose licence is unknown or not in the recipe."""
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_NO_WORD = re.compile(r"[^a-z0-9]+")


class Origins:
    """The filters of a recipe. Raises ValueError for an unreadable list of URLs."""

    def __init__(self, urls: UrlsSection, licenses: Collection[str]) -> None:
        blocked = [*urls.blocked, *(listed(Path(urls.file)) if urls.file else ())]
        self._blocked = frozenset(map(_plain, blocked))
        self._blocked_words = frozenset(word.lower() for word in urls.words)
        self._licenses = [license.lower() for license in licenses]

    def why_not(self, about: About) -> str | None:
        """The reason to leave a document out, URL or LICENCE; None to keep it.

        A document without a URL is never blocked. If a document has several licences, separated by commas, the recipe
        must have all of them.
        """
        if about.url and (self._blocked or self._blocked_words) and self._is_blocked(about.url):
            return URL
        if not self._licenses:
            return None
        named = [license.strip().lower() for license in about.license.split(",") if license.strip()]
        allowed = named and all(any(fnmatchcase(license, one) for one in self._licenses) for license in named)
        return None if allowed else LICENSE

    def _is_blocked(self, url: str) -> bool:
        url_words = _NO_WORD.split(url.lower())
        return not self._blocked.isdisjoint(_beginnings(_plain(url))) or not self._blocked_words.isdisjoint(url_words)


def listed(path: Path) -> list[str]:
    """The domains and URLs of a file, one per line. Raises ValueError, with the path, for an unreadable file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"cleaning.urls.file: {path}: expected a list of domains and URLs: {error}") from None
    entries = [text.partition("#")[0].strip() for text in lines]
    return [entry for entry in entries if entry]


def _plain(url: str) -> str:
    """A domain or a URL without its scheme, port, user and final slash; the host in lower case."""
    rest = _SCHEME.sub("", url.strip())
    try:
        parts = urlsplit("//" + rest)
    except ValueError:  # an invalid address in brackets
        return rest
    host = parts.hostname or ""
    query = f"?{parts.query}" if parts.query else ""
    return host.rstrip(".") + parts.path.rstrip("/") + query


def _beginnings(plain: str) -> Iterable[str]:
    """The URL, all URLs above it, its domain, and all domains above that."""
    host, *_ = re.split(r"[/?]", plain, maxsplit=1)
    labels = host.split(".")
    yield from (".".join(labels[at:]) for at in range(len(labels)))
    yield plain
    path, *_ = plain.partition("?")
    while "/" in path:
        yield path
        path = path.rpartition("/")[0]
