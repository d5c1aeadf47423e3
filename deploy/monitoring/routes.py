"""Routes: how Alertmanager groups alerts, and whom it notifies. A critical alert calls a person within seconds."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Receivers:
    """The receivers of notifications, as URLs for Alertmanager's webhook."""

    page: str
    """The receiver of critical alerts, which calls a person."""
    ticket: str
    """The receiver of warnings, which a person reads during the day."""


EXAMPLE = Receivers("http://pager.example/slipway", "http://tickets.example/slipway")
SCRAPE = "2s"
EVALUATION = "2s"
WAIT = "1s"
"""The sum of these intervals is the time from a fault to the call, for an alert with `0s`: less than 10 s."""


def alertmanager(receivers: Receivers) -> dict[str, Any]:
    """Alertmanager's configuration."""
    return {
        "route": {
            "receiver": "ticket",
            "group_by": ["alertname", "training", "node"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                {
                    "receiver": "page",
                    "matchers": ['severity="critical"'],
                    "group_wait": WAIT,
                    "group_interval": "10s",
                    "repeat_interval": "1h",
                }
            ],
        },
        "inhibit_rules": [
            _hides("NodeNotReady", "SlowRank|RankStandsStill|NodeSuspect", "node"),
            _hides("TrainingGivenUp", "TrainingFailsAgain|TrainingStandsStill|IncidentsPileUp", "training"),
            _hides("TierFull", "TierNearlyFull", "tier"),
            _hides("DaemonSilent", "SensorSilent|SensorSlow|EventLogBehind|RunsQueued"),
        ],
        "receivers": [
            {"name": "page", "webhook_configs": [{"url": receivers.page, "send_resolved": True}]},
            {"name": "ticket", "webhook_configs": [{"url": receivers.ticket, "send_resolved": True}]},
        ],
    }


def prometheus(targets: dict[str, list[str]], alertmanagers: list[str], rules: list[str]) -> dict[str, Any]:
    """Prometheus' configuration for one machine. `targets` contains host:port, by job name."""
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": EVALUATION},
        "rule_files": rules,
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": alertmanagers}]}]},
        "scrape_configs": [
            {
                "job_name": name,
                "scrape_interval": SCRAPE,
                "scrape_timeout": SCRAPE,
                "static_configs": [{"targets": addresses}],
            }
            for name, addresses in targets.items()
        ],
    }


def on_cluster(namespace: str, trainings: str) -> dict[str, Any]:
    """Prometheus' configuration for a cluster without its operator. It finds targets by the chart's port names."""
    return {
        "scrape_configs": [
            {
                "job_name": name,
                "scrape_interval": "15s",
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [where]}}],
                "relabel_configs": [
                    _keep("__meta_kubernetes_pod_container_port_name", "metrics"),
                    _keep(f"__meta_kubernetes_pod_labelpresent_{label}", "true"),
                    _keep("__meta_kubernetes_pod_phase", "Running"),
                ],
            }
            for name, where, label in (
                ("slipway", namespace, "slipway_component"),
                ("training-nodes", trainings, "slipway_training"),
            )
        ]
    }


def _keep(label: str, value: str) -> dict[str, Any]:
    return {"source_labels": [label], "regex": value, "action": "keep"}


def _hides(alert: str, others: str, *equal: str) -> dict[str, Any]:
    """While `alert` fires, alerts in `others` with the same labels notify nobody, since they have the same cause."""
    rule: dict[str, Any] = {"source_matchers": [f'alertname="{alert}"'], "target_matchers": [f'alertname=~"{others}"']}
    return {**rule, "equal": list(equal)} if equal else rule
