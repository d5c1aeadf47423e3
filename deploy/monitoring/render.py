"""Render: rules, routes and dashboards as files in deploy/monitoring/rendered/, and the pages about them."""

import json
from pathlib import Path
from typing import Any

import yaml

from slipway.deploy.monitoring import manuals, panels, routes, rule
from slipway.deploy.monitoring.alerts import GROUPS
from slipway.deploy.monitoring.dashboards import DASHBOARDS

RENDERED = Path(__file__).parent.resolve() / "rendered"
HEADER = "# Made by `slipway metrics render` from deploy/monitoring/; edit that instead.\n"


def files() -> dict[Path, str]:
    """The files: the text of each, by path."""
    example = routes.prometheus({"slipway": ["127.0.0.1:9465"]}, ["127.0.0.1:9093"], ["rules.yaml"])
    return {
        RENDERED / "rules.yaml": _yaml(rule.document(GROUPS)),
        RENDERED / "alertmanager.yaml": _yaml(routes.alertmanager(routes.EXAMPLE)),
        RENDERED / "prometheus.yaml": _yaml(example),
        RENDERED / "prometheus-cluster.yaml": _yaml(routes.on_cluster("slipway", "slipway-training")),
        **{
            RENDERED / "dashboards" / f"{each.uid}.json": json.dumps(panels.document(each), indent=1) + "\n"
            for each in DASHBOARDS
        },
    }


def write() -> list[Path]:
    """Bring all of them up to date; returns the files."""
    texts = {**files(), **manuals.pages()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(texts)


def _yaml(document: dict[str, Any]) -> str:
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
