"""Rendering: writes rules, routes and dashboards to deploy/monitoring/rendered/, and the pages about them.

The tables of docs/monitoring.md and the alerts of docs/runbook.md come from the same code as the rules.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from slipway.deploy.monitoring import panels, routes, rule
from slipway.deploy.monitoring.dashboards import DASHBOARDS
from slipway.deploy.monitoring.foreign import CEPH, DCGM, NODE
from slipway.deploy.monitoring.hardware_alerts import HARDWARE
from slipway.deploy.monitoring.platform_alerts import FLEET, PLATFORM
from slipway.deploy.monitoring.recording import RECORDING
from slipway.deploy.monitoring.rule import AlertRule, RecordingRule
from slipway.deploy.monitoring.training_alerts import CHECKPOINTS, TRAININGS
from slipway.operations.metrics.catalog import PLATFORM_METRICS
from slipway.trainer.base.exposition import Metric
from slipway.trainer.base.paths import CODE
from slipway.trainer.metrics.job_metrics import JOB_METRICS

RENDERED = Path(__file__).parent.resolve() / "rendered"
HEADER = "# Made by `slipway metrics render` from deploy/monitoring/; edit that instead.\n"
DOCS = CODE / "docs"
MARK = "<!-- made by `slipway metrics render`: {} -->"
OTHERS = {"DCGM exporter": DCGM, "node exporter": NODE, "Ceph": CEPH}
GROUPS = (RECORDING, TRAININGS, CHECKPOINTS, FLEET, PLATFORM, HARDWARE)
ALERTS = tuple(alert for group in GROUPS for alert in group.alerts)


def files() -> dict[Path, str]:
    """The texts of the files, by path."""
    example = routes.prometheus({"slipway": ["127.0.0.1:9465"]}, ["127.0.0.1:9093"], ["rules.yaml"])
    return {
        RENDERED / "rules.yaml": _yaml(rule.document(GROUPS)),
        RENDERED / "alertmanager.yaml": _yaml(routes.alertmanager(routes.EXAMPLE)),
        RENDERED / "prometheus.yaml": _yaml(example),
        RENDERED / "prometheus-cluster.yaml": _yaml(routes.on_cluster("slipway", "slipway-training")),
        **{
            RENDERED / "dashboards" / f"{dashboard.uid}.json": json.dumps(panels.document(dashboard), indent=1) + "\n"
            for dashboard in DASHBOARDS
        },
    }


def write() -> list[Path]:
    """Write all files and pages. Returns the files."""
    texts = {**files(), **pages()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(texts)


def pages() -> dict[Path, str]:
    """The pages with their generated parts renewed. Raises ValueError if a page lacks the marks of a part."""
    monitoring = DOCS / "monitoring.md"
    runbook = DOCS / "runbook.md"
    text = monitoring.read_text()
    for name, part in (
        ("platform", _metrics(PLATFORM_METRICS)),
        ("jobs", _metrics(JOB_METRICS)),
        ("recording", _recording()),
        ("alerts", _alerts()),
        ("dashboards", _dashboards()),
        ("others", _others()),
    ):
        text = _with(text, name, part, monitoring)
    return {monitoring: text, runbook: _with(runbook.read_text(), "alerts", _chapters(), runbook)}


def _yaml(document: dict[str, Any]) -> str:
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


def _with(text: str, name: str, part: str, path: Path) -> str:
    """The text with new content between the marks of one part."""
    begin = MARK.format(name)
    end = MARK.format(f"end of {name}")
    before, opening, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not opening or not ended:
        raise ValueError(f"{path}: found no part {begin!r}, expected one that ends with {end!r}")
    return f"{before}{begin}\n\n{part.strip()}\n\n{end}{after}"


def _metrics(metrics: Iterable[Metric]) -> str:
    rows = [
        (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels) or "-", metric.help)
        for metric in metrics
    ]
    return _table(("metric", "type", "labels", "what it is"), rows)


def _recording() -> str:
    rules = [recording_rule for recording_rule in RECORDING.rules if isinstance(recording_rule, RecordingRule)]
    return _table(
        ("series", "what it is"), [(f"`{recording_rule.name}`", recording_rule.help) for recording_rule in rules]
    )


def _alerts() -> str:
    rows = [
        (f"[{alert.name}](runbook.md#{alert.anchor})", alert.severity, alert.lasts, _text_of(alert)) for alert in ALERTS
    ]
    return _table(("alert", "severity", "lasts", "what it says"), rows)


def _dashboards() -> str:
    rows = [
        (
            dashboard.title.removeprefix("Slipway: "),
            str(len(dashboard.panels)),
            ", ".join(panel.title for panel in dashboard.panels),
        )
        for dashboard in DASHBOARDS
    ]
    return _table(("dashboard", "panels", "what it shows"), rows)


def _others() -> str:
    rows = [(f"`{name}`", who, about) for who, metrics in OTHERS.items() for name, about in metrics.items()]
    return _table(("metric", "exporter", "about"), rows)


def _chapters() -> str:
    return "\n\n".join(
        f"### {alert.name}\n\n{_text_of(alert)}.\n\n**Means.** {alert.means}\n\n**Left to you.** {alert.todo}"
        for alert in ALERTS
    )


def _text_of(alert: AlertRule) -> str:
    """The summary of the alert, with `TRAINING` in place of a training's name."""
    return re.sub(r"{(\w+)}", lambda label: label[1].upper(), alert.summary)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
