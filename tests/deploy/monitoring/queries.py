"""The queries of all dashboards, with every choice set to all, and the metrics that a query names."""

import re

from slipway.deploy.monitoring.dashboards import DASHBOARDS

QUERIES = [
    re.sub(r"\$\w+", ".*", query.expr)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]
_NAME = re.compile(r"(?<![\w:])((?:slipway|node|ceph)[:_][\w:]+|DCGM_\w+|up)(?=\s*[{\[)]|\s|$)")


def metrics_of(query: str) -> set[str]:
    """The names of the metrics in a query; of a histogram's parts, the histogram's."""
    names = set(_NAME.findall(re.sub(r'"[^"]*"', '""', query)))
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name.startswith("slipway_job") else name for name in names}
