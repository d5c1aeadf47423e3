"""The fence: only the newest of all the processes that ever trained for one training can commit.

A token is (incarnation, generation). A process claims it in two steps. It first announces the claim (the intent). Then
it lists the commits that are valid at that moment, and writes the claim with that list (the seal). From then on a
commit counts only if the newest claim lists it, or if it carries the token of the newest claim.

After the write of a commit, its writer checks whether there is an intent. If there is none, the commit was there before
any intent, so every later claim lists it: it is acknowledged, and never lost. If there is one, `commit` raises
Superseded: the commit may count or not, and its writer knows that it has lost the training. A check before the write
alone would leave a gap for a process that sleeps between the two; a late commit lands on disk, and readers ignore it.

Claims are numbered. A claim follows from the valid commits under the claim before it, and takes the next number,
create-only. If two claims follow the same one, the second fails, so a claim never seals or drops a commit that it has
not seen. A success is never superseded: a process that claims the next incarnation first records the end of the one
before (`incarnation_exit`), and gives way if that has succeeded.

Folder layout, under the training's folder:
    claims/<number>.intent       the announcement of claim <number>
    claims/<number>.json         the token that may commit, on which nodes, and why it was claimed
    commits/<step>.<token>.json  a committed checkpoint: the place of its bytes, and the SHA-256 of its manifest
    set-aside/<commit>.json      a damaged commit, with the reason; it no longer counts
    pruned/<commit>.json         a commit that retention has removed, with the reason; it no longer counts
    exits/<incarnation>.json     the end of an incarnation
Claims and exits have a copy each, `<name>.copy`: without them a training could not go on.
"""

import errno
import time
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import causes, files, incarnation_exit, removals
from slipway.trainer.record import claims as claimed
from slipway.trainer.record import commits as committed
from slipway.trainer.record.claims import FORMAT, Claim, Superseded, Token, check
from slipway.trainer.record.commits import Commit, damaged, names_under, token_of
from slipway.trainer.record.files import Unreadable
from slipway.trainer.record.incarnation_exit import SUCCEEDED, Exit
from slipway.trainer.record.removals import Removal, take_back

__all__ = [
    "FORMAT",
    "SUCCEEDED",
    "Claim",
    "Commit",
    "Exit",
    "Removal",
    "Superseded",
    "Token",
    "Unreadable",
    "check",
    "claim",
    "claims",
    "commit",
    "commits",
    "commits_under",
    "committed_step",
    "damaged",
    "end",
    "names_under",
    "newest_claim",
    "past_exit",
    "prune",
    "pruned",
    "read_exit",
    "record_exit",
    "set_aside",
    "set_aside_reasons",
    "take_back",
    "token_of",
]

newest_claim = claimed.newest
claims = claimed.history
commits_under = committed.under
read_exit = incarnation_exit.read
past_exit = incarnation_exit.past
record_exit = incarnation_exit.create
set_aside_reasons = removals.reasons


def claim(
    folder: Path, token: Token, *, nodes: tuple[str, ...], cause: str, by: str, ended: Exit | None = None
) -> bool:
    """Claim `token`, and seal the present commits.

    The holder's incarnation ends, with the exit `ended` unless it has one. Returns False if the token is not newer than
    the newest claim's, if another process has made a claim meanwhile, or if the training has succeeded. Raises
    Unreadable if the commits cannot be listed, and OSError.
    """
    number = claimed.numbers(folder).newest
    predecessor = claimed.read(folder, number) if number else None
    if predecessor is not None and (
        token <= predecessor.token or incarnation_exit.succeeded(folder, predecessor.token.incarnation)
    ):
        return False
    claimed.intend(folder, number + 1)
    committed.make_folder(folder, predecessor)
    if predecessor is not None:
        if (
            token.incarnation > predecessor.token.incarnation
            and read_exit(folder, predecessor.token.incarnation) is None
        ):
            record_exit(folder, ended or _superseded(folder, predecessor, cause, by))
        if incarnation_exit.succeeded(
            folder, predecessor.token.incarnation
        ):  # just now; from here on it cannot any more
            return False
    sealed, removed = _valid(folder, predecessor)
    value = Claim(token, tuple(sealed), nodes, cause, by, time.time(), removed, number + 1)
    return claimed.seal(folder, value)


def commits(folder: Path) -> list[Commit]:
    """The valid commits, by step: the only ones that a reader may use. Raises Unreadable."""
    return committed.under(folder, newest_claim(folder))


def committed_step(folder: Path) -> int:
    """The step of the newest valid commit; 0 before the first. Raises Unreadable."""
    return max((entry.step for entry in commits(folder)), default=0)


def commit(folder: Path, value: Commit) -> None:
    """Record a commit; on return it is acknowledged, and every later claim lists it.

    Raises Superseded when its token is not the newest, or a claim is being made, before the write or after it; and
    OSError, also for another commit of this name.
    """
    check(folder, value.token)
    if not committed.create(folder, value):
        _require_same(folder, value)
    check(folder, value.token)


def set_aside(folder: Path, value: Commit, reason: str, token: Token | None = None) -> bool:
    """Set a damaged commit aside: it no longer counts, and its bytes stay. False when it was set aside before.

    A trainer does it under its token, for commits of older tokens and its own; raises Superseded then.
    """
    return removals.take_out(folder, files.SET_ASIDE, value.name, reason, token)


def prune(folder: Path, value: Commit, reason: str, token: Token | None = None) -> bool:
    """Prune a commit, before its bytes are removed: it no longer counts. False when it was pruned before.

    With a trainer's token as `set_aside`; the bytes may be removed once this has returned.
    """
    return removals.take_out(folder, files.PRUNED, value.name, reason, token)


def pruned(folder: Path) -> list[str]:
    """The names of the commits that retention gave up."""
    return removals.commits(folder, files.PRUNED)


def end(folder: Path, value: Exit, token: Token) -> None:
    """Record how the own incarnation ended, under its token; on return it is acknowledged.

    Raises Superseded when a newer token was claimed, or when another end is on record: the training was given up.
    """
    check(folder, token)
    if record_exit(folder, value):
        return
    stands = read_exit(folder, value.incarnation)
    if stands is None or stands.outcome != value.outcome:
        outcome = f"{stands.outcome}: {stands.reason}" if stands else "no exit"
        raise Superseded(f"{token} was given up: incarnation {value.incarnation} is on record as {outcome}")


def _superseded(folder: Path, predecessor: Claim, cause: str, by: str) -> Exit:
    newest = names_under(folder, predecessor)[-1:]
    step = committed.step_of(newest[0]) if newest else 0
    reason = f"superseded: {cause}"
    return Exit(
        predecessor.token.incarnation,
        "failed",
        reason,
        step,
        by,
        time.time(),
        predecessor.nodes,
        kind=causes.SUPERSEDED,
    )


def _valid(folder: Path, predecessor: Claim | None) -> tuple[list[str], tuple[str, ...]]:
    """The lists of a claim that follows `predecessor`: valid commits, commits that are set aside, and their records.

    Raises Unreadable if there are commits that no claim on record can have allowed.
    """
    recorded = committed.recorded(folder, predecessor)
    newest = max(map(Token.parse, {name.split(".", 1)[1] for name in recorded}), default=Token(0))
    if newest > (predecessor.token if predecessor else Token(0)) and newest_claim(folder) == predecessor:
        raise Unreadable(
            f"{folder / files.CLAIMS}: found no claim of token {newest}, which has committed. {files.REMEDY}"
        )
    if predecessor is None:
        return [], ()
    gone = set(pruned(folder))
    sealed = [name for name in committed.let_through(recorded, predecessor) if name not in gone]
    return sealed, removals.by_tokens(folder, predecessor, sealed)


def _require_same(folder: Path, value: Commit) -> None:
    """Raises OSError if the record of this name is another's, or damaged: a record is never replaced."""
    path = files.named(folder, files.COMMITS, value.name)
    stored = codec.read_if_whole(path, Commit, FORMAT)
    if stored is None or (stored.folder, stored.manifest) != (value.folder, value.manifest):
        raise FileExistsError(errno.EEXIST, "another checkpoint is on record under this name", str(path))
