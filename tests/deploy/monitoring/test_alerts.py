"""Alerts: each has a chapter in the runbook, fires on its fault, and is silent beside it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.deploy.monitoring import render, routes, rule
from slipway.deploy.monitoring.recording import RECORDING
from slipway.deploy.monitoring.render import ALERTS
from slipway.deploy.monitoring.rule import AlertRule, RuleGroup
from tests.deploy.monitoring.cases import CASES, AlertCase
from tests.deploy.monitoring.tools import said_by

pytestmark = pytest.mark.pure

DOCS = Path(__file__).parents[3] / "docs"

PAGE_SECONDS = 10.0
"""From a fault to the page, at most, for an alert that does not have to last."""


def test_there_are_alerts_for_every_fault_of_the_reference_and_each_has_a_case() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(names) == len(set(names)) >= 25
    assert set(names) == set(CASES)
    expected = ("GpuHot", "GpuIdle", "TrainingStandsStill", "TierSlow", "NodeNotReady", "OutOfMemory", "SlowProgress",
             "CheckpointFails", "CommunicationHigh", "TierNearlyFull")  # fmt: skip
    assert set(expected) <= set(names)


def test_each_alert_links_to_a_chapter_of_the_runbook() -> None:
    headings = re.findall(r"^#+ (.+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)
    anchors = {heading.strip("`").lower().replace(" ", "-") for heading in headings}
    assert [alert.name for alert in ALERTS if alert.anchor not in anchors] == []
    assert all(alert.runbook == f"docs/runbook.md#{alert.anchor}" for alert in ALERTS)


def test_a_summary_names_only_labels_that_its_alert_has() -> None:
    for alert in ALERTS:
        named = set(re.findall(r"{(\w+)}", alert.summary))
        assert named <= set(CASES[alert.name].labels), alert.name


@pytest.mark.process
def test_each_alert_fires_on_its_fault_and_not_beside_it(tmp_path: Path) -> None:
    # Each alert with the series that it needs alone: all rules on all series take a processor half a minute.
    for alert in ALERTS:
        needed = [recording_rule for recording_rule in RECORDING.rules if recording_rule.name in alert.expr]
        group = RuleGroup("test", "1m", (*needed, alert))
        (tmp_path / f"{alert.name}.rules.json").write_text(json.dumps(rule.document((group,))))
        document = {"rule_files": [f"{alert.name}.rules.json"], "tests": list(_tests(alert, CASES[alert.name]))}
        (tmp_path / f"{alert.name}.test.json").write_text(json.dumps(document))
    said_by("promtool", "test", "rules", *sorted(tmp_path.glob("*.test.json")))


@pytest.mark.process
def test_a_critical_alert_calls_a_person_and_a_warning_does_not(tmp_path: Path) -> None:
    config = tmp_path / "alertmanager.yaml"
    config.write_text(json.dumps(routes.alertmanager(routes.EXAMPLE)))
    assert {alert.severity for alert in ALERTS} == {"critical", "warning"}
    for severity, receiver in (("critical", "page"), ("warning", "ticket")):
        arguments = (f"--config.file={config}", f"--verify.receivers={receiver}", f"severity={severity}")
        said_by("amtool", "config", "routes", "test", *arguments)


def test_the_waits_of_the_routes_sum_to_less_than_a_page_may_take() -> None:
    seconds = [float(duration.removesuffix("s")) for duration in (routes.SCRAPE, routes.EVALUATION, routes.WAIT)]
    assert sum(seconds) < PAGE_SECONDS


def test_what_is_rendered_is_up_to_date() -> None:
    texts = render.files()
    assert {path.name for path in texts if path.read_text() != texts[path]} == set()


def test_the_pages_have_the_tables_of_the_code() -> None:
    pages = render.pages()
    assert {path.name for path in pages if path.read_text() != pages[path]} == set()


def _tests(alert: AlertRule, case: AlertCase) -> Iterator[dict[str, Any]]:
    labels = {**case.labels, "severity": alert.severity}
    annotations = rule.annotations(alert)
    annotations["summary"] = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels[match[1]], annotations["summary"])
    expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    for series, alerts in ((case.fires, expected), (case.quiet, [])):
        yield {
            "interval": "1m",
            "name": alert.name,
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": case.at, "alertname": alert.name, "exp_alerts": alerts}],
        }
