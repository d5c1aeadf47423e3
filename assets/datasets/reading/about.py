"""About a document: its URL, its licence and its date, where its file names them.

They decide filters by URL and by licence, which of several near-duplicates is the newest, and which documents a
takedown by URL means.
"""

from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from slipway.recipes.dataset import ReadingSection

LONGEST = 4096
"""Characters of the longest value that is kept; a longer one is no URL, licence or date."""


class About(NamedTuple):
    """Each is empty where it is not named."""

    url: str = ""
    licence: str = ""
    date: str = ""


NOTHING = About()


def about(reading: ReadingSection, value_of: Callable[[str], object]) -> About:
    """What the fields of `reading.metadata` say of a document; `value_of` gives the value of a field, or None."""
    named = reading.metadata
    fields = (named.url, named.licence, named.date)
    return About(*(_as_text(value_of(field)) if field else "" for field in fields)) if any(fields) else NOTHING


def member(value: Any, field: str) -> Any:
    """The value of a field of a JSON object, in which dots lead into objects; None where there is none."""
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_text(value: object) -> str:
    """A value as text: a list, such as all licences of a repository, with commas between its elements."""
    if isinstance(value, list):
        text = ", ".join(filter(None, map(_as_text, value)))
    elif isinstance(value, date):
        text = value.isoformat()
    else:
        text = str(value).strip() if isinstance(value, str | int) else ""
    return text.encode(errors="replace").decode() if len(text) <= LONGEST else ""
