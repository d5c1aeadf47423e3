"""Suspects: which rank the others wait for, from what the nodes found and where each rank last said that it was. Pure.

In the order of what is most certain: a rank that cannot run; a rank that is in no exchange while others wait in one; a
rank of which no node reported anything; a rank that is behind the others. Without any of these nobody is suspected.
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
    """Empty where it is not known."""
    why: str


def suspects(found: Iterable[DiagnosisManifest], beats: Sequence[Beat]) -> list[Suspect]:
    """The suspects by rank, all for the same kind of reason."""
    seen = {rank.rank: (each.node, rank) for each in found for rank in each.ranks}
    for kind in (_frozen(seen), _absent(seen), _silent(seen, beats), _behind(seen, beats)):
        if kind:
            return kind
    return []


Seen = Mapping[int, tuple[str, RankSeen]]


def _frozen(seen: Seen) -> list[Suspect]:
    return [
        Suspect(rank, node, f"it was {each.state}" + (f", in the kernel's {each.kernel}" if each.kernel else ""))
        for rank, (node, each) in sorted(seen.items())
        if each.frozen
    ]


def _absent(seen: Seen) -> list[Suspect]:
    """Those that did not enter the exchange in which others wait."""
    inside = [each.exchange for _, each in seen.values() if each.exchange]
    if not inside:
        return []
    name, others = inside[0], _ranks(len(inside))
    return [
        Suspect(rank, node, f"it did not enter {name}, in which {others}; it was in {each.where or 'no known place'}")
        for rank, (node, each) in sorted(seen.items())
        if not each.exchange and not each.ended and each.where
    ]


def _silent(seen: Seen, beats: Sequence[Beat]) -> list[Suspect]:
    """Those of which no node reported anything, while other nodes answered."""
    if not seen:
        return []
    return [
        Suspect(beat.rank, "", "its node did not answer when it was asked for a diagnosis")
        for beat in sorted(beats, key=lambda each: each.rank)
        if beat.rank not in seen
    ]


def _behind(seen: Seen, beats: Sequence[Beat]) -> list[Suspect]:
    farthest = max((beat.step for beat in beats), default=0)
    late = [beat for beat in sorted(beats, key=lambda each: each.rank) if beat.step < farthest]
    return [
        Suspect(
            beat.rank,
            seen[beat.rank][0] if beat.rank in seen else "",
            f"it was {beat.phase} after step {beat.step}, the farthest rank after step {farthest}",
        )
        for beat in late
    ]


def _ranks(count: int) -> str:
    return "one rank waits" if count == 1 else f"{count} ranks wait"
