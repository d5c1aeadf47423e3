"""Areas of the web: a domain, or a part of a site, whose documents a takedown means, as SQL that duckdb answers.

`https://example.org/blog/` means that page and all below it, and not `/blogger`; `example.org` means the domain and its
subdomains. Scheme, user, port, a slash at the end, and capitals in the host make no difference: the same as in
`cleaning.urls.blocked`.
"""

import re

PARTS = r"^\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?(?:[^/?#@]*@)?(\[[^/?#\]]*\]?|[^/?#:]*)[^/?#]*([^?#]*)"
"""A URL with its host and its path as groups; Python's `re` and duckdb's RE2 read it alike."""
WITHIN = """
    (place.host = area.host OR (area.path = '' AND ends_with(place.host, '.' || area.host)))
    AND (area.path = '' OR place.path = area.path OR starts_with(place.path, area.path || '/'))
"""


def require(text: str, where: str) -> None:
    """Raise ValueError, naming `where` it was given, for a text that is no area."""
    found = re.match(PARTS, text)
    host = found[1] if found else ""
    known = "." in host.strip(".") or ("://" in text and host)
    if not known or re.search(r"[?#*\s]", text.strip()):
        expected = "expected a domain or the beginning of URLs up to a slash, without ?, # and *"
        raise ValueError(f"{where}: found {text!r}, {expected}: https://example.org/blog/")


def urls_under(rows: str) -> str:
    """A query for the URLs of `rows`, a table with a column `url`, that are in an area of the list $under: `url` and
    `area`, each pair once."""
    return f"""
        SELECT DISTINCT place.url, area.area
        FROM (SELECT url, {_host("url")} AS host, {_path("url")} AS path FROM {rows} WHERE url <> '') place
        JOIN (SELECT area, {_host("area")} AS host, {_path("area")} AS path FROM (SELECT unnest($under) AS area)) area
        ON {WITHIN}
    """


def _host(column: str) -> str:
    return f"rtrim(lower(regexp_extract({column}, '{PARTS}', 1)), '.')"


def _path(column: str) -> str:
    return f"rtrim(regexp_extract({column}, '{PARTS}', 2), '/')"
