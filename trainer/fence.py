"""The fence: of all the processes that ever trained for one training, only the newest can commit.

A token is (incarnation, generation). It is claimed by one create-only write, and the claim lists (seals)
the commits that were valid at that moment. From then on a commit counts only when the newest claim lists
it or when it carries the newest claim's own token. A check before a rename would leave a gap for a process
that sleeps between the two; here a late commit of an older token lands on disk and is ignored for ever.

Claims are numbered. Each is made from what was valid under the one before and takes the next number, create-only:
of two that were made from the same one the second fails, so that nothing it has not seen is sealed or dropped.

Folder layout, under the training's folder:
    claims/<number>.json     the token that may commit, on which nodes, and why it was claimed
    commits/<step>.<token>.json   one committed checkpoint: where its bytes lie and the manifest's SHA-256
    set-aside/<commit>.json  a commit found damaged, with the reason; it no longer counts
    pruned/<commit>.json     a commit that retention gave up, with the reason; it no longer counts, and its bytes go
    exits/<incarnation>.json how an incarnation ended
"""

import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer import atomic

FORMAT = "slipway.fence/1"


class Superseded(Exception):
    """Another process has claimed a newer token; this one must stop."""


@dataclass(frozen=True, order=True)
class Token:
    """(incarnation, generation), compared in that order."""

    incarnation: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.incarnation:06d}.{self.generation:04d}"

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


@dataclass(frozen=True)
class Commit:
    """One committed checkpoint. `folder` is relative to the durable tier."""

    step: int
    token: Token
    folder: str
    manifest: str
    """SHA-256 of the checkpoint's manifest."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0
    tier: str = "durable"
    """Where its bytes were written first; see `trainer.checkpoint.replicas` for further copies."""

    @property
    def name(self) -> str:
        return f"{self.step:09d}.{self.token}"


@dataclass(frozen=True)
class Exit:
    """How one incarnation ended."""

    incarnation: int
    outcome: str
    """succeeded, failed or stopped."""
    reason: str
    step: int
    by: str
    at: float
    nodes: tuple[str, ...] = ()
    """Those that it ran on, as far as is known."""
    disrupted: bool = False
    """Whether that was for no fault of the training: a node died, or its place was taken away."""


def newest_claim(folder: Path) -> Claim | None:
    """The claim that holds now, None before the first."""
    return _read_claim(folder, _last_claim(folder))


def claims(folder: Path) -> list[Claim]:
    """All claims, the first one first."""
    found = (_read_claim(folder, number + 1) for number in range(_last_claim(folder)))
    return [claim for claim in found if claim is not None]


def claim(folder: Path, token: Token, *, nodes: tuple[str, ...], cause: str, by: str) -> bool:
    """Claim `token`, sealing what is committed now.

    False when it is not newer than what holds, or when somebody else has claimed anything meanwhile.
    """
    number = _last_claim(folder)
    holder = _read_claim(folder, number)
    if holder is not None and token <= holder.token:
        return False
    sealed = tuple(commit.name for commit in _valid(folder, holder))
    value = Claim(token, sealed, nodes, cause, by, time.time())
    return _write(value, _claim_path(folder, number + 1))


def commits(folder: Path) -> list[Commit]:
    """The valid commits, by step: all that a reader may ever trust."""
    return _valid(folder, newest_claim(folder))


def commit(folder: Path, value: Commit) -> None:
    """Record a commit. Raises Superseded when its token is not the newest, before or after the write.

    Raising only saves work: even when it does not, readers go by the newest claim.
    """
    check(folder, value.token)
    _write(value, folder / "commits" / f"{value.name}.json")
    check(folder, value.token)


def check(folder: Path, token: Token) -> None:
    """Raises Superseded unless `token` is the newest claim's."""
    holder = newest_claim(folder)
    if holder is None or holder.token != token:
        raise Superseded(f"{token} was superseded by {holder.token if holder else 'nobody'}")


def set_aside(folder: Path, value: Commit, reason: str) -> bool:
    """Take a damaged commit out of what counts; its bytes stay where they are. False when it was out already."""
    return _take_out(folder, "set-aside", value, reason)


def set_aside_reasons(folder: Path) -> dict[str, str]:
    """The damaged commits by name, each with its reason."""
    records = [json.loads(path.read_bytes()) for path in sorted(folder.glob("set-aside/*.json"))]
    return {record["commit"]: record["reason"] for record in records}


def prune(folder: Path, value: Commit, reason: str) -> bool:
    """Take a commit out of what counts, before its bytes are removed. False when it was out already."""
    return _take_out(folder, "pruned", value, reason)


def pruned(folder: Path) -> list[str]:
    """The names of the commits that retention gave up."""
    return sorted(path.stem for path in folder.glob("pruned/*.json"))


def record_exit(folder: Path, value: Exit) -> bool:
    """Record how an incarnation ended; the first record stands, and False says there was one."""
    return _write(value, _exit_path(folder, value.incarnation))


def read_exit(folder: Path, incarnation: int) -> Exit | None:
    """How the incarnation ended, None while it has not."""
    path = _exit_path(folder, incarnation)
    return _read(Exit, path) if path.exists() else None


def _take_out(folder: Path, why: str, value: Commit, reason: str) -> bool:
    record = {"format": FORMAT, "commit": value.name, "reason": reason, "at": time.time()}
    return atomic.create_only(folder / why / f"{value.name}.json", atomic.readable_json(record))


def _exit_path(folder: Path, incarnation: int) -> Path:
    return folder / "exits" / f"{incarnation:06d}.json"


def _last_claim(folder: Path) -> int:
    """The newest claim's number, 0 before the first."""
    return max((int(path.stem) for path in folder.glob("claims/*.json")), default=0)


def _read_claim(folder: Path, number: int) -> Claim | None:
    return _read(Claim, _claim_path(folder, number)) if number else None


def _claim_path(folder: Path, number: int) -> Path:
    return folder / "claims" / f"{number:06d}.json"


def _valid(folder: Path, holder: Claim | None) -> list[Commit]:
    """The commits that count while `holder` holds, by step."""
    if holder is None:
        return []
    out = {path.name for why in ("set-aside", "pruned") for path in folder.glob(f"{why}/*.json")}
    paths = sorted(path for path in folder.glob("commits/*.json") if path.name not in out)
    return [_read(Commit, path) for path in paths if _counts(path.stem, holder)]


def _counts(name: str, holder: Claim) -> bool:
    return name in holder.sealed or Token.parse(name.split(".", 1)[1]) == holder.token


def _write(value: Any, path: Path) -> bool:
    record = {"format": FORMAT, **dataclasses.asdict(value)}
    return atomic.create_only(path, atomic.readable_json(record))


def _read(kind: Any, path: Path) -> Any:
    record = json.loads(path.read_bytes())
    if record.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: not of format {FORMAT}")
    if "token" in record:
        record["token"] = Token(**record["token"])
    for name in ("sealed", "nodes"):
        if name in record:
            record[name] = tuple(record[name])
    return kind(**record)
