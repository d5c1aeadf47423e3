"""The table of migrations: each brings the files of one format from one version to the next.

A migration is a function of a file's bytes. A format whose new version reads the old one has none: a field that
earlier versions did not write has a default, and what can be made again is made again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import regular_file


@dataclass(frozen=True)
class Migration:
    """How the files of one format become those of its next version."""

    leads_to: int
    """The state that has the new version (`slipway.resources.state`)."""
    formats: str
    """Both versions, for people."""
    files: str
    """A pattern of paths below the durable tier."""
    migrated: Callable[[bytes], bytes | None]
    """The new bytes of a file; None for one that needs no change. Raises ValueError for one that makes no sense."""


MIGRATIONS: tuple[Migration, ...] = ()
"""None yet: 0.2 is the first release whose homes are read. The tests of the upgrade bring one of their own."""


@dataclass(frozen=True)
class MigratedFile:
    """A file that an upgrade changes."""

    path: str
    """Below the durable tier."""
    formats: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class UnmigratedFile:
    """A file that stays as it is, since it cannot be migrated."""

    path: str
    problem: str


def outstanding(durable: Path, state: int) -> Iterator[MigratedFile | UnmigratedFile]:
    """What is to be migrated on a durable tier of this state, one file after the other.

    Raises OSError for a file that cannot be read: nothing is known of it then.
    """
    for migration in MIGRATIONS:
        if migration.leads_to > state:
            for path in sorted(durable.glob(migration.files)):
                name = str(path.relative_to(durable))
                before = regular_file.read(path)
                try:
                    after = migration.migrated(before)
                except ValueError as error:
                    yield UnmigratedFile(name, str(error))
                    continue
                if after is not None:
                    yield MigratedFile(name, migration.formats, before, after)
