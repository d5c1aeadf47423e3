"""Routes: how Alertmanager groups alerts, and who hears of them. A critical one calls a person within seconds."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Receivers:
    """Where notifications go: addresses that take Alertmanager's webhook."""

    page: str
    """A person is called: for alerts that are critical."""
    ticket: str
    """A person looks at it in the day: for warnings."""


EXAMPLE = Receivers("http://pager.example/slipway", "http://tickets.example/slipway")
SCRAPE, EVALUATION, WAIT = "2s", "2s", "1s"
"""From a fault to the page, an alert that does not have to last takes the sum of these waits: less than 10 s."""


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
    """Prometheus' configuration for one machine; `targets` are host:port, by the job's name."""
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
    """The scrapes of a cluster, for a Prometheus without its operator: by the names of ports, which the chart gives."""
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
    """While `alert` fires, `others` of the same labels notify nobody: it says what they would."""
    rule: dict[str, Any] = {"source_matchers": [f'alertname="{alert}"'], "target_matchers": [f'alertname=~"{others}"']}
    return {**rule, "equal": list(equal)} if equal else rule
