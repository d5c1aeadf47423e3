"""The token of a process's commits: its launcher's incarnation, or the next one for a process started by hand.

A process that a launcher started trains under the incarnation in SLIPWAY_INCARNATION. Ranks that train together are a
membership. When they start anew, because a rank failed or because a node joined or left, the next membership has its
own generation, so that surviving processes of the one before cannot commit. members/<token>.json has the membership of
a token. A supervisor claims the generation before it starts ranks (`granted`), which read it from SLIPWAY_GENERATION;
under torchrun, rank 0 claims it. A process that was started by hand claims the next incarnation, and so takes the
training over from an earlier process.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import fence, files

VARIABLE = "SLIPWAY_INCARNATION"
GENERATION_VARIABLE = "SLIPWAY_GENERATION"
"""The generation of a rank that a supervisor started (`slipway.trainer.elastic.generations`)."""
TRIED_VARIABLE = "SLIPWAY_TRIED"
"""Set on a node that has had ranks in this job: they have tested the node's file systems."""
JOIN_SECONDS = 900
"""How long a rank waits for rank 0, as torchrun does for the machines of a job."""
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Membership:
    """The ranks that use a token together."""

    rendezvous: str
    """Where they meet."""
    ranks: int


def claimed(store: Path) -> fence.Token:
    """The token of this process, claimed if the control plane has not claimed it; only rank 0 may call this.

    Raises fence.Superseded when a newer token is claimed already.
    """
    token = from_environment()
    if token is None:
        token = _taken_over(store)
    elif not os.environ.get(GENERATION_VARIABLE):
        token = _restarted(store, token)
    fence.check(store, token)
    return token


def from_environment() -> fence.Token | None:
    """The token that the environment names, the same for all ranks; None for a process started by hand.

    Rank 0 may claim a later generation (`claimed`).
    """
    if not os.environ.get(VARIABLE):
        return None
    generation = os.environ.get(GENERATION_VARIABLE) or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return fence.Token(int(os.environ[VARIABLE]), int(generation))


def granted(store: Path, token: fence.Token, members: Membership, nodes: tuple[str, ...], cause: str) -> None:
    """Give a token to the ranks that a supervisor is about to start; on return no others have it or will get it.

    Generation 0 is claimed with the incarnation; a later one is claimed here, on the `nodes` that take part in it,
    unless another supervisor of this job has done it just now. Raises fence.Superseded when a newer token is claimed,
    when the token is another job's, and when the training has succeeded; and OSError.
    """
    claim = fence.newest_claim(store)
    if claim is not None and claim.token.incarnation == token.incarnation and claim.token < token:
        try:
            _claim(store, token, nodes, cause)
        except fence.Superseded:
            claim = fence.newest_claim(store)
            if claim is None or claim.token != token:
                raise
    path = files.named(store, files.MEMBERS, token)
    if not codec.create_only(path, members) and codec.read(path, Membership).rendezvous != members.rendezvous:
        raise fence.Superseded(f"{token} is used by another job")
    fence.check(store, token)


def _restarted(store: Path, token: fence.Token) -> fence.Token:
    """The token of this membership: the launcher's, or the next generation if other ranks have used that."""
    claim = fence.newest_claim(store)
    if token.generation > 0 and claim is not None and claim.token < token:
        _claim(store, token, claim.nodes, "ranks restarted by torchrun")
    elif claim is not None and claim.token.incarnation == token.incarnation:
        token = claim.token
    if not _is_first(store, token):
        assert claim is not None
        token = fence.Token(token.incarnation, token.generation + 1)
        _claim(store, token, claim.nodes, f"membership changed: {_number('WORLD_SIZE', 1)} ranks now")
        if not _is_first(store, token):
            raise fence.Superseded(f"{token} is used by another process")
    return token


def joined(store: Path) -> fence.Token:
    """The token that rank 0 of this membership has claimed, for a rank that has no process group yet.

    Raises fence.Superseded if rank 0 claims none in time.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    environment_token = from_environment()
    assert environment_token is not None
    while time.monotonic() < deadline:
        for name in reversed(files.names(store, files.MEMBERS)):
            token = fence.Token.parse(name)
            if token.incarnation != environment_token.incarnation:
                continue
            members = codec.read_if_there(files.named(store, files.MEMBERS, name), Membership)
            if members is not None and members.rendezvous == _rendezvous():
                return token
        time.sleep(POLL_SECONDS)
    raise fence.Superseded(
        f"rank 0 has claimed no generation of incarnation {environment_token.incarnation} in {JOIN_SECONDS} s"
    )


def _is_first(store: Path, token: fence.Token) -> bool:
    """Whether no other membership has used this token; from now on, this one has."""
    return codec.create_only(
        files.named(store, files.MEMBERS, token), Membership(_rendezvous(), _number("WORLD_SIZE", 1))
    )


def _rendezvous() -> str:
    """Where the ranks of this membership meet, which is another place after each rendezvous."""
    return f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}/{_number('WORLD_SIZE', 1)}"


def _number(variable: str, alone: int) -> int:
    return int(os.environ.get(variable, alone))


def _taken_over(store: Path) -> fence.Token:
    claim = fence.newest_claim(store)
    token = fence.Token(claim.token.incarnation + 1 if claim else 1)
    _claim(store, token, ("local",), "started by hand")
    return token


def _claim(store: Path, token: fence.Token, nodes: tuple[str, ...], cause: str) -> None:
    """Raises fence.Superseded when the training has succeeded, or another process has claimed meanwhile."""
    if fence.claim(store, token, nodes=nodes, cause=cause, by="trainer"):
        return
    claim = fence.newest_claim(store)
    ended = fence.read_exit(store, claim.token.incarnation) if claim else None
    if ended and ended.outcome == fence.SUCCEEDED:
        raise fence.Superseded(f"{store.name} has succeeded at step {ended.step}: there is nothing left to train")
    raise fence.Superseded(f"{token} was claimed by another process")
