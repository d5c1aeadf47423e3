"""The parts of a dashboard, and their form for Grafana (schema version 39)."""

from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["short", "s", "bytes", "Bps", "percentunit", "percent", "celsius", "watt", "hertz", "iops", "ms", "none"]
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH = 8
HEIGHT = 7
"""The width of a panel, in columns; a row has 24."""


@dataclass(frozen=True)
class PanelQuery:
    """One query with the legend of its series, in which {label} is replaced."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel."""

    title: str
    unit: Unit
    queries: tuple[PanelQuery, ...]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    help: str = ""


@dataclass(frozen=True)
class Variable:
    """A selection at the top of a dashboard, with the values of a label."""

    name: str
    query: str


@dataclass(frozen=True)
class Dashboard:
    """One dashboard."""

    uid: str
    title: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]


TRAINING = Variable("training", "label_values(slipway_training_info, training)")
NODE = Variable("node", "label_values(slipway_node_ready, node)")
HOST = Variable("host", "label_values(DCGM_FI_DEV_GPU_UTIL, Hostname)")


def series(title: str, unit: Unit, *queries: tuple[str, str] | str, help: str = "") -> Panel:
    """A panel of curves. Each query may have a legend."""
    return Panel(title, unit, _queries(queries), help=help)


def number(title: str, unit: Unit, expr: str, help: str = "") -> Panel:
    """A panel of one or a few numbers."""
    return Panel(title, unit, (PanelQuery(expr),), "stat", help)


def table(title: str, expr: str, help: str = "") -> Panel:
    """A panel with the newest values as rows."""
    return Panel(title, "none", (PanelQuery(expr),), "table", help)


def _queries(queries: tuple[tuple[str, str] | str, ...]) -> tuple[PanelQuery, ...]:
    return tuple(PanelQuery(query) if isinstance(query, str) else PanelQuery(*query) for query in queries)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard in the form that Grafana imports."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["slipway"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": [_panel(index, panel) for index, panel in enumerate(dashboard.panels)],
    }


def _panel(index: int, panel: Panel) -> dict[str, Any]:
    across = 24 // WIDTH
    return {
        "id": index + 1,
        "title": panel.title,
        "description": panel.help,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": {"x": index % across * WIDTH, "y": index // across * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [_target(panel, number, query) for number, query in enumerate(panel.queries)],
    }


def _target(panel: Panel, number: int, query: PanelQuery) -> dict[str, Any]:
    target: dict[str, Any] = {"refId": chr(ord("A") + number), "expr": query.expr, "datasource": SOURCE}
    if query.legend:
        target["legendFormat"] = query.legend.replace("{", "{{").replace("}", "}}")
    if panel.kind != "timeseries":
        target["instant"] = True
    if panel.kind == "table":
        target["format"] = "table"
    return target


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
