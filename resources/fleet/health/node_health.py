"""Changes of a node's health: sensors, diagnoses, the command line and UI jobs all use this module.

It reads the node's record, computes the next one with `transitions`, and writes it. `enforce` then makes the cluster's
own scheduler respect it (`slipway.resources.fleet.kubernetes.cordon`). A crash after the write does no harm, since each
call of `enforce` compares the desired state with the actual one.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipway.resources.fleet.health import suspicion, transitions
from slipway.resources.fleet.health.preflights import PreflightHistory
from slipway.resources.fleet.health.register import Exemption, NodeRegister
from slipway.resources.fleet.health.standing import Evidence, HealthRules, NodeRecord, Standing
from slipway.resources.fleet.health.transitions import Surroundings
from slipway.resources.fleet.protocol import Node

Decide = Callable[[NodeRecord], NodeRecord | None]


class Scheduler(Protocol):
    """Keeps other workloads' pods away from a node. `cordon` and `uncordon` raise ValueError if that is not allowed."""

    def cordon(self, node: str, who: str, why: str, apply: bool = False) -> object: ...

    def uncordon(self, node: str, who: str, why: str, apply: bool = False) -> object: ...

    def is_exempt(self, node: str) -> bool:
        """Whether the node's owner forbids cordoning it."""


@dataclass(frozen=True)
class NodeHealth:
    """The health of the nodes of one platform."""

    register: NodeRegister
    rules: HealthRules
    nodes: Callable[[], Sequence[Node]]
    """The fleet, regardless of the nodes' health. Raises Unavailable."""
    scheduler: Scheduler | None = None
    """None if only Slipway places work."""
    clock: Callable[[], float] = time.time

    def suspect(self, node: str, new_evidence: Iterable[Evidence], who: str) -> NodeRecord | None:
        """Record evidence against a node; returns the transition that follows, or None. Raises Unavailable."""
        evidence = list(new_evidence)
        return self._decide(
            node, lambda record: transitions.suspected(record, evidence, self._around(node), self.rules, who, self._now)
        )

    def join(self, node: Node, who: str) -> NodeRecord | None:
        """Record that a new or lost node must be measured before it gets work, if the rules require it.
        Raises Unavailable.
        """
        if not self.rules.preflight_joining or not transitions.is_joining(self.register.of(node.name), node.lost):
            return None
        lost = ""
        if node.lost:
            lost = node.reason or "it does not answer"
        is_exempt = self._is_exempt(node.name)
        return self._decide(node.name, lambda record: transitions.joining(record, lost, is_exempt, who, self._now))

    def is_diagnosis_due(self, record: NodeRecord) -> bool:
        return transitions.is_diagnosis_due(record, self.rules, self._now)

    def is_preflight_due(self, record: NodeRecord) -> bool:
        """Whether a suspect must be measured, since none of its preflights followed its newest incident.
        Raises Unavailable.
        """
        if not self.rules.preflight_incidents or record.standing is not Standing.SUSPECT:
            return False
        incidents = {evidence.id for evidence in record.evidence if evidence.fault != suspicion.PREFLIGHT}
        return not incidents <= self.preflights.answered(record.node)

    @property
    def preflights(self) -> PreflightHistory:
        return PreflightHistory(self.register.durable)

    def begin_diagnosis(self, node: str, who: str) -> NodeRecord | None:
        """Record that a diagnosis begins; returns None for a mere measurement of a node that is not quarantined."""
        return self._decide(node, lambda record: transitions.diagnosing(record, who, self._now))

    def end_diagnosis(self, node: str, faults: str, who: str, run: str) -> NodeRecord | None:
        """Record the end of a diagnosis or of any other preflight; `faults` is "" if it found none.

        A fault on a node that was not under diagnosis counts as evidence against it.
        """
        done = self._decide(node, lambda record: transitions.diagnosed(record, faults, who, self._now))
        if done is None and faults:
            return self.suspect(node, [suspicion.by_preflight(run, faults, self._now)], who)
        return done

    def fail_diagnosis(self, node: str, why: str, who: str) -> NodeRecord | None:
        """Record that a diagnosis failed. This says nothing about the node, and the diagnosis is repeated."""
        return self._decide(node, lambda record: transitions.undiagnosed(record, why, who, self._now))

    def ran_clean(self, node: str, runs: Iterable[str], who: str) -> NodeRecord | None:
        """Record runs on the node without a fault."""
        clean = list(runs)
        return self._decide(node, lambda record: transitions.ran_clean(record, clean, self.rules, who, self._now))

    def set_by_hand(self, node: str, standing: Standing, who: str, why: str) -> NodeRecord:
        """Record a person's decision, which no guard can refuse. Raises ValueError for an unknown node or an impossible
        status, and Unavailable.
        """
        self._must_exist(node)
        done = self._decide(
            node, lambda record: transitions.by_hand(record, standing, who, why, self._now, self.rules.apply)
        )
        assert done is not None
        return done

    def exempt(self, node: str, who: str, why: str) -> None:
        """Forbid the platform to take the node out of service; a person still can. Raises ValueError."""
        self._must_exist(node)
        self.register.exempt(node, Exemption(who, why, self._now))

    def end_exemption(self, node: str) -> None:
        """End an exemption. Raises ValueError."""
        self._must_exist(node)
        self.register.exempt(node, None)

    def enforce(self, node: Node) -> None:
        """Cordon or uncordon the node in the cluster's scheduler, according to its record.

        Raises ValueError if the cordon's own guards refuse, and Unavailable.
        """
        record = self.register.of(node.name)
        if self.scheduler is None or not record.number or not self.rules.apply:
            return
        if record.out_of_service and record.standing.lacks and not node.cordoned and not node.lost:
            self.scheduler.cordon(node.name, record.who, f"{record.standing}: {record.why}", apply=True)
        elif node.cordoned and record.standing is Standing.RELEASED:
            self.scheduler.uncordon(node.name, record.who, f"{record.standing}: {record.why}", apply=True)

    @property
    def _now(self) -> float:
        return self.clock()

    def _decide(self, node: str, decide: Decide) -> NodeRecord | None:
        """Write the next record; if another process was faster, decide again on its record."""
        while True:
            after = decide(self.register.of(node))
            if after is None or self.register.add(after):
                return after

    def _around(self, node: str) -> Surroundings:
        fleet = {node_of_fleet.name for node_of_fleet in self.nodes()}
        standings = self.register.newest()
        out = tuple(name for name, record in standings.items() if name in fleet and record.standing.lacks)
        return Surroundings(len(fleet), out, self._is_exempt(node))

    def _is_exempt(self, node: str) -> bool:
        exempt_here = self.register.exemption(node) is not None
        return exempt_here or (self.scheduler is not None and self.scheduler.is_exempt(node))

    def _must_exist(self, node: str) -> None:
        names = [fleet_node.name for fleet_node in self.nodes()]
        if node not in names:
            raise ValueError(f"node {node}: found no such node in the fleet, expected one of {', '.join(names)}")
