"""Suspects: the rank for which the others wait, from the nodes' findings and the ranks' last heartbeats.

The suspect is the first of these, in the order of certainty: a rank that cannot run; a rank outside a collective in
which others wait; a rank without a report from any node; a rank that is behind the others. There may be none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipway.trainer.diagnosis.folder import DiagnosisManifest
from slipway.trainer.diagnosis.ranks import RankSeen
from slipway.trainer.record.heartbeat import Beat


@dataclass(frozen=True)
class Suspect:
    """A rank on which the fault may lie."""

    rank: int
    node: str
    """Empty if it is not known."""
    why: str


def suspects(manifests: Iterable[DiagnosisManifest], beats: Sequence[Beat]) -> list[Suspect]:
    """The suspects by rank, all for the same kind of reason."""
    rank_states = {rank.rank: (manifest.node, rank) for manifest in manifests for rank in manifest.ranks}
    for kind in (_frozen(rank_states), _absent(rank_states), _silent(rank_states, beats), _behind(rank_states, beats)):
        if kind:
            return kind
    return []


RankStates = Mapping[int, tuple[str, RankSeen]]


def _frozen(rank_states: RankStates) -> list[Suspect]:
    return [
        Suspect(
            rank,
            node,
            f"it was {rank_state.state}" + (f", in the kernel's {rank_state.kernel}" if rank_state.kernel else ""),
        )
        for rank, (node, rank_state) in sorted(rank_states.items())
        if rank_state.frozen
    ]


def _absent(rank_states: RankStates) -> list[Suspect]:
    """Those that did not enter the exchange in which others wait."""
    inside = [rank_state.exchange for _, rank_state in rank_states.values() if rank_state.exchange]
    if not inside:
        return []
    name = inside[0]
    others = _ranks(len(inside))
    return [
        Suspect(
            rank, node, f"it did not enter {name}, in which {others}; it was in {rank_state.where or 'no known place'}"
        )
        for rank, (node, rank_state) in sorted(rank_states.items())
        if not rank_state.exchange and not rank_state.ended and rank_state.where
    ]


def _silent(rank_states: RankStates, beats: Sequence[Beat]) -> list[Suspect]:
    """Those of which no node reported anything, while other nodes answered."""
    if not rank_states:
        return []
    return [
        Suspect(beat.rank, "", "its node did not answer when it was asked for a diagnosis")
        for beat in sorted(beats, key=lambda beat: beat.rank)
        if beat.rank not in rank_states
    ]


def _behind(rank_states: RankStates, beats: Sequence[Beat]) -> list[Suspect]:
    farthest = max((beat.step for beat in beats), default=0)
    late = [beat for beat in sorted(beats, key=lambda beat: beat.rank) if beat.step < farthest]
    return [
        Suspect(
            beat.rank,
            rank_states[beat.rank][0] if beat.rank in rank_states else "",
            f"it was {beat.phase} after step {beat.step}, the farthest rank after step {farthest}",
        )
        for beat in late
    ]


def _ranks(count: int) -> str:
    return "one rank waits" if count == 1 else f"{count} ranks wait"
