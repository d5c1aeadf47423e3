"""Files: the place of each record of a training below its folder in the durable tier. Only this module has the names.

A token is written `<incarnation>.<generation>`, with six and four digits; a claim's number and an incarnation have six
digits, a step nine, a rank five, so sorting names sorts records.

A listing distinguishes "there is none" from "it cannot be read": an error of the file system raises `Unreadable`.
"""

from pathlib import Path

from slipway.trainer.base import listing

CLAIMS = "claims"
COMMITS = "commits"
SET_ASIDE = "set-aside"
PRUNED = "pruned"
TAKEN_BACK = "taken-back"
EXITS = "exits"
ENDS = "ends"
LEDGER = "ledger"
HEARTBEATS = "heartbeats"
REPLICAS = "replicas"
WITHDRAWN = "withdrawn"
PARTS = "parts"
SPREAD = "spread"
MEMBERS = "members"
STARTS = "starts"
STOPS = "stops"
EVALUATIONS = "evaluations"
DESIRED = "desired"
JOBS = "jobs"
LOG_TAILS = "tails"
REPORTED = "reported"
PROFILES = "profiles"
SPANS = "spans"
HOLDS = "holds"
LEAVING = "leaving"
INCIDENTS = "incidents"
DIAGNOSES = "diagnoses"
FAULTS = "faults"
SKIPPED = "skipped"
DRILLS = "drills"
CHANGES = "changes"
APPLIED = "applied"
GRANTS = "grants"
SPECIFICATION = "specification.json"
RUN_POLICY = "terms.json"
LET_GO = "let-go.json"
TRACKING = "tracking.json"
MICRO_BATCH = "micro.json"


class Unreadable(OSError):
    """Some records of a training cannot be read or are damaged. It does not prove that they are missing."""


def numbered(store: Path, folder: str, number: int) -> Path:
    """The record of a claim, an incarnation or another number below 1,000,000."""
    return store / folder / f"{number:06d}.json"


def named(store: Path, folder: str, name: object) -> Path:
    """The record of a commit or a token."""
    return store / folder / f"{name}.json"


def names(store: Path, folder: str) -> list[str]:
    """The names of a folder's records, in order; empty if there is no such folder. Raises Unreadable."""
    return [name.removesuffix(".json") for name in entries(store / folder) or () if name.endswith(".json")]


def entries(folder: Path) -> list[str] | None:
    """The names in a folder, sorted; None if there is no such folder. Hidden files are still being written.

    Raises Unreadable for every other error of the file system.
    """
    try:
        return listing.names(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(error.errno, f"{folder}: cannot be listed ({error.strerror}). {REMEDY}") from error


REMEDY = "Nothing is concluded from this, and nothing was changed: look whether the tier is mounted and can be read"
