"""What an alert and a recording rule are, and how Prometheus reads them."""

from dataclasses import dataclass
from typing import Any, Literal

RUNBOOK = "docs/runbook.md"
Severity = Literal["critical", "warning"]
"""critical: a person is called; warning: a person looks at it in the day."""


@dataclass(frozen=True)
class RecordingRule:
    """A series that is computed ahead; its name is level:metric:operation."""

    name: str
    expr: str
    help: str


@dataclass(frozen=True)
class AlertRule:
    """One alert."""

    name: str
    severity: Severity
    expr: str
    lasts: str
    """For how long `expr` must hold, in Prometheus' notation; 0s for at once."""
    summary: str
    """One sentence for a person. It may name a label of `expr` as {label}."""
    means: str
    """What it means, for the runbook."""
    todo: str
    """What is left to a person, for the runbook."""

    @property
    def anchor(self) -> str:
        """The part of the runbook that is about it."""
        return self.name.lower()

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.anchor}"


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated one after another."""

    name: str
    every: str
    rules: tuple[RecordingRule | AlertRule, ...]

    @property
    def alerts(self) -> tuple[AlertRule, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, AlertRule))


def document(groups: tuple[RuleGroup, ...]) -> dict[str, Any]:
    """A file of rules as Prometheus reads it."""
    return {
        "groups": [
            {"name": group.name, "interval": group.every, "rules": [_rule(rule) for rule in group.rules]}
            for group in groups
        ]
    }


def annotations(alert: AlertRule) -> dict[str, str]:
    """What a notification says; labels stand in Prometheus' notation."""
    text = alert.summary.replace("{", "{{ $labels.").replace("}", " }}")
    return {"summary": text, "runbook_url": alert.runbook}


def _rule(rule: RecordingRule | AlertRule) -> dict[str, Any]:
    if isinstance(rule, RecordingRule):
        return {"record": rule.name, "expr": rule.expr}
    labels = {"severity": rule.severity}
    return {
        "alert": rule.name, "expr": rule.expr, "for": rule.lasts, "labels": labels, "annotations": annotations(rule)
    }  # fmt: skip
