"""The verdict on the end of a node's ranks: the job begins a new generation, or ends too.

After some generations without progress the job ends (`Budget`), so that the control plane can decide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals

from slipway.trainer.base import codec
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.record import causes, fence, files
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Beat
from slipway.trainer.record.rank_exit import RankEnd

FINAL = (
    causes.CONFIGURATION,
    causes.DIVERGED,
    causes.MACHINE,
    causes.OUT_OF_MEMORY,
    causes.STOP_REQUESTED,
    causes.SUPERSEDED,
)
"""Causes after which a new start on the same nodes would change nothing, or is not wanted."""
WITHOUT_PROGRESS = 3
"""The job ends after this many generations in a row that reached no new step."""
BY_CODE = {ExitCode.UNUSABLE: causes.CONFIGURATION, ExitCode.SUPERSEDED: causes.SUPERSEDED}


@dataclass(frozen=True)
class RankFault:
    """Why the ranks of a node ended before the last step, by the rank whose end explains most."""

    rank: int
    kind: str
    """The cause, of `slipway.trainer.record.causes`."""
    reason: str
    code: int
    """128 + n for signal n."""
    final: bool = False
    """Whether the job ends with it."""
    node: str = ""
    """The node on which it began, if the rank has recorded it."""

    @property
    def follows(self) -> bool:
        """Whether the end of a rank on another node, with which this one had a collective, may explain it."""
        return self.kind in ("", causes.NETWORK)


def ends_job(kind: str, policies: Mapping[str, str]) -> bool:
    """Whether a job ends after a fault with this cause, under the recipe's answers.

    Only the control plane can give a training up, or choose other nodes, so the job ends for these answers too.
    """
    if not kind:
        return False
    return kind in FINAL or causes.answer(kind, policies) in (causes.STOP, causes.REPLACE)


def fault(
    codes: Mapping[int, int | None], store: Path, token: Token, node: str, policies: Mapping[str, str]
) -> RankFault | None:
    """The fault of a node's ranks, None while each of them runs or has ended well.

    codes: the exit code of each rank, -n when signal n killed it, None while it runs. policies: the recipe's answers
    by cause.
    """
    judged = [_of(rank, code, store, token, node) for rank, code in codes.items() if code]
    faults = [replace(rank_fault, final=ends_job(rank_fault.kind, policies)) for rank_fault in judged]
    # A final fault comes first; then a rank that was killed, one with a reason, and one that only lost its peers.
    return min(
        faults, key=lambda rank_fault: (not rank_fault.final, rank_fault.follows, rank_fault.code < 128), default=None
    )


class Budget:
    """The generations of one job; every supervisor counts them, with the same result."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._best = self._count = 0
        self.step = 0
        """The last step of the generation that ended last, as far as it is on record."""

    def ended(self, token: fence.Token) -> None:
        """Count a generation that has ended."""
        self.step = _reached(self._store, token)
        self._count = 0 if self.step > self._best else self._count + 1
        self._best = max(self._best, self.step)

    @property
    def spent(self) -> str:
        """Why no further generation may begin; empty if one may."""
        if self._count < WITHOUT_PROGRESS:
            return ""
        return f"{self._count} generations in a row made no progress beyond step {self._best}"


def _of(rank: int, code: int, store: Path, token: Token, node: str) -> RankFault:
    if code < 0:
        name = Signals(-code).name if -code in set(Signals) else f"signal {-code}"
        kind = causes.STOP_REQUESTED if name == "SIGTERM" else causes.KILLED
        return RankFault(rank, kind, f"rank {rank} on {node} was killed: {name}", 128 - code)
    rank_end = _rank_end(store, token, rank)
    reason = f"rank {rank} on {node} ended with exit code {code}"
    if rank_end:
        return RankFault(rank, rank_end.kind, f"{reason}: {rank_end.reason}", code, node=rank_end.node)
    kind = ""
    if code in set(ExitCode):
        kind = BY_CODE.get(ExitCode(code), causes.UNKNOWN)
    return RankFault(rank, kind, reason, code)


def _rank_end(store: Path, token: Token, rank: int) -> RankEnd | None:
    """The rank's own record of its end; None if it has none that can be read."""
    try:
        return codec.read_if_whole(files.named(store, files.ENDS, f"{token}.{rank:05d}"), RankEnd)
    except OSError:
        return None


def _reached(store: Path, token: fence.Token) -> int:
    """The last step of a generation, from rank 0's heartbeat: all its ranks are at the same step."""
    try:
        beat = codec.read_if_whole(files.named(store, files.HEARTBEATS, f"{token}.00000"), Beat)
        return beat.step if beat else 0
    except OSError:
        return 0
