"""Suspects: the nodes on which an incarnation's faults seem to have begun, where the answer to these is other nodes."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from slipway.resources.trainings.faults import TrainingFault
from slipway.trainer.base import codec
from slipway.trainer.record import causes, incidents


def of_fault(fault: TrainingFault, policies: Mapping[str, str]) -> frozenset[str]:
    """The suspects of a fault that ends an incarnation."""
    return frozenset(fault.suspects if causes.answer(fault.kind, policies) == causes.REPLACE else ())


def on_record(folder: Path, incarnation: int, ran_on: Collection[str], policies: Mapping[str, str]) -> frozenset[str]:
    """The suspects that the incidents of an incarnation name, which ran on these nodes. Raises OSError.

    An incident that cannot be decoded names none, and neither does one that names all of several nodes.
    """
    found: set[str] = set()
    for id in incidents.names(folder, incarnation):
        try:
            incident = incidents.read(folder, id)
        except codec.UndecodableRecord:
            continue
        names_all = len(ran_on) > 1 and set(ran_on) <= set(incident.nodes)
        if causes.answer(incident.kind, policies) == causes.REPLACE and not names_all:
            found.update(incident.nodes)
    return frozenset(found)


def avoiding(ready: Sequence[str], suspects: Collection[str], wanted: int) -> list[str]:
    """The ready nodes without the suspects, unless the training would have fewer nodes then."""
    others = [node for node in ready if node not in suspects]
    return others if len(others) >= min(wanted, len(ready)) else list(ready)
