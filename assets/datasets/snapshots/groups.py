"""Groups of a documents table: how many documents, and how many bytes of them, each rule, language and source has."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from slipway.resources import warehouse

TOP = "."
"""Stands for the files that are in no folder: otherwise each of them would be a source of its own."""
KINDS = {
    "rule": ("coalesce(removed, '')", "removed IS NOT NULL"),
    "language": ("coalesce(language, 'unknown')", "removed IS NULL"),
    "source": (f"CASE WHEN contains(name, '/') THEN split_part(name, '/', 1) ELSE '{TOP}' END", "removed IS NULL"),
}
"""By kind, the name of a document's group, and which documents count: those that a rule left out, else those kept."""
COUNTED = "SELECT {group}, count(*), coalesce(sum(bytes), 0)::BIGINT FROM read_parquet($table) WHERE {which} GROUP BY 1"


@dataclass(frozen=True)
class Amount:
    """Documents and their bytes of cleaned text, or of pixels."""

    documents: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class GroupChange:
    """One rule, language or source in two tables."""

    name: str
    before: Amount
    now: Amount


def amounts(kind: str, table: Path) -> Mapping[str, Amount]:
    """What each group of a kind has, by name; nothing for a kind whose column the table does not have."""
    group, which = KINDS[kind]
    with warehouse.connect() as connection:
        try:
            found = connection.execute(COUNTED.format(group=group, which=which), {"table": str(table)}).fetchall()
        except duckdb.BinderException:  # images have no language
            return {}
    return {name: Amount(documents, size) for name, documents, size in found}


def changes(kind: str, before: Path, now: Path) -> tuple[GroupChange, ...]:
    """The groups that differ between two tables, those whose documents differ most first."""
    old, new = (amounts(kind, table) for table in (before, now))
    found = [GroupChange(name, old.get(name, Amount()), new.get(name, Amount())) for name in old.keys() | new.keys()]
    differing = [each for each in found if each.before != each.now]
    return tuple(sorted(differing, key=lambda each: (-abs(each.now.documents - each.before.documents), each.name)))
