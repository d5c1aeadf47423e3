"""Dashboards: six of them, whose queries are PromQL and name metrics that somebody exports."""

import json
import re
from pathlib import Path

import pytest

from slipway.deploy.monitoring import panels
from slipway.deploy.monitoring.dashboards import DASHBOARDS
from slipway.deploy.monitoring.foreign import ALWAYS, FOREIGN
from slipway.deploy.monitoring.recording import RECORDING
from slipway.deploy.monitoring.render import ALERTS
from slipway.operations.metrics.catalog import PLATFORM_METRICS
from slipway.trainer.metrics.job_metrics import JOB_METRICS
from tests.deploy.monitoring.queries import QUERIES, metrics_of
from tests.deploy.monitoring.tools import said_by

pytestmark = pytest.mark.pure

EXPORTED = {metric.name for metric in (*PLATFORM_METRICS, *JOB_METRICS)}


def test_there_are_six_dashboards_of_at_least_sixty_panels() -> None:
    groups = {dashboard.uid.removeprefix("slipway-") for dashboard in DASHBOARDS}
    assert groups == {"cluster", "gpu", "training", "communication", "checkpoints", "goodput"}
    assert sum(len(dashboard.panels) for dashboard in DASHBOARDS) >= 60


def test_every_query_names_metrics_that_somebody_exports() -> None:
    known = EXPORTED | set(FOREIGN) | ALWAYS | {rule.name for rule in RECORDING.rules}
    queries = [*QUERIES, *(alert.expr for alert in ALERTS), *(rule.expr for rule in RECORDING.rules)]
    assert {name for query in queries for name in metrics_of(query)} - known == set()


def test_every_metric_of_others_that_the_reference_asks_for_is_used() -> None:
    queries = " ".join([*QUERIES, *(alert.expr for alert in ALERTS)])
    about = {"InfiniBand throughput", "InfiniBand loss", "InfiniBand latency", "file system IOPS", "file system queue",
             "file system latency", "GPU use", "GPU memory", "GPU temperature", "GPU power", "GPU throttling",
             "GPU errors"}  # fmt: skip
    assert about <= set(FOREIGN.values())
    assert [name for name in FOREIGN if name not in queries] == []


def test_panels_do_not_lie_over_one_another() -> None:
    for dashboard in DASHBOARDS:
        positions = [tuple(panel["gridPos"].values()) for panel in panels.document(dashboard)["panels"]]
        assert len(set(positions)) == len(positions)
        assert len({panel.title for panel in dashboard.panels}) == len(dashboard.panels)


def test_every_legend_names_labels_in_grafanas_notation() -> None:
    for dashboard in DASHBOARDS:
        for panel in panels.document(dashboard)["panels"]:
            for target in panel["targets"]:
                assert not re.search(r"(?<!{){\w+}(?!})", target.get("legendFormat", ""))


@pytest.mark.process
def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}:test", "expr": query} for number, query in enumerate(QUERIES)]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    said_by("promtool", "check", "rules", file)
