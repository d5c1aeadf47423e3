"""The token that a process commits under: its launcher's incarnation, or the next one when it was started by hand.

Started by a launcher, a process trains under the incarnation in SLIPWAY_INCARNATION; each restart by torchrun claims
a generation of its own. Started by hand it claims the next incarnation, and so takes over from whoever trained.
"""

import os
from pathlib import Path

from trainer import fence

VARIABLE = "SLIPWAY_INCARNATION"


def claimed(store: Path) -> fence.Token:
    """The token, claimed for this process where nobody has done so; only rank 0 may ask.

    Raises fence.Superseded when a newer one is claimed already.
    """
    token = given()
    token = _taken_over(store) if token is None else _restarted(store, token)
    fence.check(store, token)
    return token


def given() -> fence.Token | None:
    """The token that the environment names, the same for all ranks; None for a process started by hand."""
    if not os.environ.get(VARIABLE):
        return None
    return fence.Token(int(os.environ[VARIABLE]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


def _restarted(store: Path, token: fence.Token) -> fence.Token:
    holder = fence.newest_claim(store)
    if token.generation > 0 and holder is not None and holder.token < token:
        _claim(store, token, holder.nodes, "ranks restarted by torchrun")
    return token


def _taken_over(store: Path) -> fence.Token:
    holder = fence.newest_claim(store)
    token = fence.Token(holder.token.incarnation + 1 if holder else 1)
    _claim(store, token, ("local",), "started by hand")
    return token


def _claim(store: Path, token: fence.Token, nodes: tuple[str, ...], cause: str) -> None:
    """Raises fence.Superseded when somebody else has claimed meanwhile, even if it was the same token."""
    if not fence.claim(store, token, nodes=nodes, cause=cause, by="trainer"):
        raise fence.Superseded(f"{token} was claimed by somebody else")
