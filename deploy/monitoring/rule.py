"""Alerts and recording rules, and their form for Prometheus."""

from dataclasses import dataclass
from typing import Any, Literal

RUNBOOK = "docs/runbook.md"
Severity = Literal["critical", "warning"]
"""critical: a person is called at once. warning: a person looks at it during the day."""


@dataclass(frozen=True)
class RecordingRule:
    """A precomputed series. Its name is level:metric:operation."""

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
    """How long `expr` must be true before the alert fires, in Prometheus' notation; 0s to fire at once."""
    summary: str
    """One sentence for a person. It may name a label of `expr` as {label}."""
    means: str
    """The meaning of the alert, for the runbook."""
    todo: str
    """What a person should do, for the runbook."""

    @property
    def anchor(self) -> str:
        """The link to its section of the runbook."""
        return self.name.lower()

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.anchor}"


@dataclass(frozen=True)
class RuleGroup:
    """Rules that Prometheus evaluates in order."""

    name: str
    every: str
    rules: tuple[RecordingRule | AlertRule, ...]

    @property
    def alerts(self) -> tuple[AlertRule, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, AlertRule))


def document(groups: tuple[RuleGroup, ...]) -> dict[str, Any]:
    """The rules file for Prometheus."""
    return {
        "groups": [
            {"name": group.name, "interval": group.every, "rules": [_rule(rule) for rule in group.rules]}
            for group in groups
        ]
    }


def annotations(alert: AlertRule) -> dict[str, str]:
    """The text of the notification, with labels in Prometheus' notation."""
    text = alert.summary.replace("{", "{{ $labels.").replace("}", " }}")
    return {"summary": text, "runbook_url": alert.runbook}


def _rule(rule: RecordingRule | AlertRule) -> dict[str, Any]:
    if isinstance(rule, RecordingRule):
        return {"record": rule.name, "expr": rule.expr}
    labels = {"severity": rule.severity}
    return {
        "alert": rule.name, "expr": rule.expr, "for": rule.lasts, "labels": labels, "annotations": annotations(rule)
    }  # fmt: skip
