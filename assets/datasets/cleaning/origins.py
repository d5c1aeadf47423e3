"""Origins: documents that are left out because of the URL that they come from, or of their licence."""

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from slipway.assets.datasets.reading.document import About
from slipway.recipes.filters import UrlsSection

URL, LICENCE = "url", "licence"
"""Why a document is left out: its URL is blocked; its licence is none of the recipe's, or is not known."""
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_NO_WORD = re.compile(r"[^a-z0-9]+")


class Origins:
    """The filters of a recipe. Raises ValueError for a list of URLs that cannot be read."""

    def __init__(self, urls: UrlsSection, licences: Collection[str]) -> None:
        blocked = [*urls.blocked, *(listed(Path(urls.file)) if urls.file else ())]
        self._blocked = frozenset(map(_plain, blocked))
        self._blocked_words = frozenset(word.lower() for word in urls.words)
        self._licences = [licence.lower() for licence in licences]

    def why_not(self, about: About) -> str | None:
        """URL or LICENCE for a document that is left out, else None.

        A document without a URL is not left out for one. Of several licences, with commas between, each must be one of
        the recipe's.
        """
        if about.url and (self._blocked or self._blocked_words) and self._is_blocked(about.url):
            return URL
        if not self._licences:
            return None
        named = [licence.strip().lower() for licence in about.licence.split(",") if licence.strip()]
        allowed = named and all(any(fnmatchcase(licence, one) for one in self._licences) for licence in named)
        return None if allowed else LICENCE

    def _is_blocked(self, url: str) -> bool:
        url_words = _NO_WORD.split(url.lower())
        return not self._blocked.isdisjoint(_beginnings(_plain(url))) or not self._blocked_words.isdisjoint(url_words)


def listed(path: Path) -> list[str]:
    """The domains and URLs of a file, one a line. Raises ValueError, naming the file, for one that cannot be read."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"cleaning.urls.file: {path}: expected a list of domains and URLs: {error}") from None
    return [line for text in lines if (line := text.partition("#")[0].strip())]


def _plain(url: str) -> str:
    """A domain or a URL without its scheme, port, user and the slash at its end; the host in small letters."""
    rest = _SCHEME.sub("", url.strip())
    try:
        parts = urlsplit("//" + rest)
    except ValueError:  # an address in brackets that is none
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
