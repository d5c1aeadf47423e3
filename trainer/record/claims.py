"""Claims: the permission to write for a training. Tokens order the processes that have held it.

A claim is made in two steps, so that it drops no acknowledged commit. `claims/<number>.intent` announces claim
<number>: from then on no commit of the holder is acknowledged. `claims/<number>.json` is the claim, create-only: of
several processes that make the same one, one wins. A process that dies between the two steps blocks no other: the next
process that claims writes the announced claim with its own token.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slipway.trainer.base import atomic
from slipway.trainer.record import files, mirrored_record

FORMAT = "slipway.fence/1"
_NAME = re.compile(r"(\d{6,})(\.json|\.copy|\.intent)")


class Superseded(Exception):
    """Another process has claimed a newer token, or is about to; this one must stop."""


@dataclass(frozen=True, order=True)
class Token:
    """(incarnation, generation), compared in that order."""

    incarnation: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.incarnation:06d}.{self.generation:04d}"

    @property
    def text(self) -> str:
        """For a person; with the generation if ranks were started anew inside the incarnation."""
        return f"incarnation {self.incarnation}" + (f", generation {self.generation}" if self.generation else "")

    @staticmethod
    def parse(text: str) -> "Token":
        incarnation, generation = text.split(".")
        return Token(int(incarnation), int(generation))


@dataclass(frozen=True)
class Claim:
    """The right to commit under `token`; `sealed` names the older commits that stay valid."""

    token: Token
    sealed: tuple[str, ...]
    nodes: tuple[str, ...]
    cause: str
    """Why it was claimed, in words for a person."""
    by: str
    at: float
    removals: tuple[str, ...] = ()
    """The records in `set-aside/` by earlier tokens that stay valid."""
    number: int = 0
    """Its place among the claims; 0 in one of an earlier version, which made no folder of commits."""


class Numbers(NamedTuple):
    """The numbers in a listing of the claims; 0 for none."""

    newest: int
    """The number of the claim that holds."""
    intended: int
    """The highest number that a process has said it will claim."""


def numbers(folder: Path) -> Numbers:
    """The numbers of the newest claim and of the newest intent.

    Raises Unreadable, also if there is no claim but there are records that only a claim makes possible.
    """
    claim_numbers = _numbers(folder)
    if claim_numbers.newest:
        return claim_numbers
    evidence = [where for where in (files.COMMITS, files.EXITS) if files.names(folder, where)]
    claim_numbers = _numbers(folder)  # a first claim may have been made meanwhile
    if evidence and not claim_numbers.newest:
        there = " and ".join(f"{where}/" for where in evidence)
        raise files.Unreadable(f"{folder / files.CLAIMS}: found no claim, but records in {there}. {files.REMEDY}")
    return claim_numbers


def newest(folder: Path) -> Claim | None:
    """The claim that holds now, None before the first. Raises Unreadable."""
    number = numbers(folder).newest
    return read(folder, number) if number else None


def read(folder: Path, number: int) -> Claim:
    """The claim of this number. Raises Unreadable when neither it nor its copy can be used, and OSError."""
    return mirrored_record.read(files.numbered(folder, files.CLAIMS, number), Claim, FORMAT)


def history(folder: Path) -> list[Claim]:
    """All claims that can be read, the first one first; an old one that is damaged is left out."""
    claims = []
    for number in range(1, numbers(folder).newest + 1):
        try:
            claims.append(read(folder, number))
        except files.Unreadable:
            continue
    return claims


def intend(folder: Path, number: int) -> None:
    """Say that the claim of this number is being made, as another process may have said before. Raises OSError."""
    atomic.create_only(folder / files.CLAIMS / f"{number:06d}.intent", b"")


def seal(folder: Path, claim: Claim) -> bool:
    """Make the claim; False when another process has made the one of its number. Raises OSError."""
    return mirrored_record.create_only(files.numbered(folder, files.CLAIMS, claim.number), claim, FORMAT)


def check(folder: Path, token: Token) -> None:
    """Raises Superseded unless `token` is the newest claim's and no further claim is being made; Unreadable."""
    claim_numbers = numbers(folder)
    claim = read(folder, claim_numbers.newest) if claim_numbers.newest else None
    if claim is None or claim.token != token:
        raise Superseded(f"{token} was superseded by {claim.token if claim else 'no token'}")
    if claim_numbers.intended > claim_numbers.newest:
        raise Superseded(f"{token} is being superseded: claim {claim_numbers.intended} of {folder.name} is being made")


def _numbers(folder: Path) -> Numbers:
    names = files.entries(folder / files.CLAIMS) or ()
    matches = [(int(match[1]), match[2]) for name in names if (match := _NAME.fullmatch(name))]
    newest = max((number for number, suffix in matches if suffix != ".intent"), default=0)
    return Numbers(newest, max((number for number, suffix in matches if suffix == ".intent"), default=0))
