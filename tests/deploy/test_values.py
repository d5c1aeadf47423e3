"""The chart's values: typed, strict, and refused with the path of what is wrong."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import HelmError, HelmValuesError, lint

from slipway.deploy.cluster import pin, values
from slipway.deploy.cluster.render import DEPLOY, helm_notes, workloads
from tests.deploy.rendering import FULL, MINIMAL, WITHOUT


def test_the_committed_schema_is_that_of_the_types():
    assert values.SCHEMA.read_text() == values.schema(), "run `slipway cluster schema`"


def test_the_default_values_are_all_there_is_to_say():
    defaults = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())
    values.Chart.model_validate(_merged(defaults, MINIMAL))
    for example in (FULL, WITHOUT):
        values.Chart.model_validate(_merged(defaults, example))


def test_chart_and_images_have_the_packages_version():
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    named = [
        (file, image)
        for file in pin.files()
        for image in re.findall(r"\S+/(?:platform|trainer)[:@]\S+", file.read_text())
    ]
    assert len({file.parent.name for file, _ in named}) == 3
    assert [reference for reference in named if f":{version}" not in reference[1]] == []


def test_the_digests_of_a_release_are_written_where_images_are_named(tmp_path: Path):
    image = f"registry.example/new/trainer:0.9.0@sha256:{'a' * 64}"
    text = "  platform: r.example/platform:0.2.0 # a\n  trainer: r/s/trainer:0.2.0 # b\n        - image: r/trainer:1\n"
    assert pin.pinned(text, {"trainer": image}) == (
        f"  platform: r.example/platform:0.2.0 # a\n  trainer: {image} # b\n        - image: {image}\n"
    )
    with pytest.raises(ValueError, match="its @sha256: digest"):
        pin.pinned(text, {"trainer": "registry.example/new/trainer:0.9.0"})


def test_every_value_has_a_description():
    described = values.Chart.model_json_schema()
    sections = {
        name: definition for name, definition in described["$defs"].items() if definition.get("type") == "object"
    }
    missing = [
        f"{section}.{field}"
        for section, definition in sections.items()
        for field, schema in definition.get("properties", {}).items()
        if not schema.get("description")
    ]
    assert sections and missing == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({}, "/images/platform"),
        ({"images": {"platform": "registry.example/slipway"}}, "/images/platform"),
        ({"images": {"trainer": "registry.example/slipway:latest"}}, "/images/trainer"),
        ({"webserver": {"replica": 2}}, "'replica'"),
        ({"webserver": {"replicas": "2"}}, "/webserver/replicas"),
        ({"postgresq": {}}, "'postgresq'"),
        ({"postgresql": {"password": "secret"}}, "'password'"),
        ({"platform": {"launcher": "mpi"}}, "/platform/launcher"),
        ({"platform": {"cluster": {"shared_memroy": "1Gi"}}}, "'shared_memroy'"),
        ({"platform": {"cluster": {"image": "other:1"}}}, "'image'"),
        ({"runs": {"resources": {"memory": "2 GB"}}}, "/runs/resources/memory"),
        ({"objectStore": {"artifacts": "/folder"}}, "/objectStore/artifacts"),
        ({"platform": {"tracking": {"uri": "http://user:word@elsewhere"}}}, "/platform/tracking/uri"),
        ({"network": {"apiServer": {"peers": []}}}, "/network/apiServer/peers"),
        ({"postgresql": {"peers": []}}, "/postgresql/peers"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_value_is_refused_with_its_path(overrides: dict[str, Any], message: str):
    with pytest.raises(HelmValuesError) as refused:
        workloads(_merged(MINIMAL, overrides) if overrides else {})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"mlflow": {"enabled": False}}, "platform.tracking.uri: found none"),
        ({"platform": {"tracking": {"uri": "http://elsewhere"}}}, "platform.tracking.uri: found a value"),
        ({"platform": {"tracking": {"secret": "mlflow"}}}, "platform.tracking.uri: found a value"),
        ({"platform": {"tracking": {"uri": "http://a", "secret": "b"}}}, "platform.tracking: found uri and secret"),
        ({"logs": {"image": "r.example/alloy:1"}}, "logs.loki: found none, expected the address that takes lines"),
        ({"dask": {"enabled": True}}, "dask.secret: found none, expected an existing Secret with ca.crt"),
    ],
)
def test_values_that_contradict_each_other_are_refused(overrides: dict[str, Any], message: str):
    with pytest.raises(HelmError) as refused:
        workloads(_merged(MINIMAL, overrides))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("cluster_values", "message"),
    [
        ({}, "may be on one of its own nodes"),
        ({"node_selector": {"fleet": "h200"}}, "takes a node of the fleet where no other has room for it"),
        ({"node_selector": {"fleet": "h200"}, "store_node_selector": {"pool": "cpu"}}, ""),
    ],
)
def test_who_installs_the_chart_is_told_where_a_rendezvous_store_can_be_on_a_node_that_trains(
    cluster_values: dict[str, Any], message: str
):
    notes_text = " ".join(helm_notes(_merged(MINIMAL, {"platform": {"cluster": cluster_values}})).split())
    assert message in notes_text and ("store_node_selector" in notes_text) == bool(message)


def test_helm_lint_finds_nothing():
    report = lint(DEPLOY / "chart", MINIMAL, strict=True, namespace="slipway")
    assert report["total_charts_linted"] == 1
    assert [message for message in report["messages"] if message["severity"] > 1] == [] and report["errors"] == []


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values."""
    merged = copy.deepcopy(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merged(merged[name], value) if both else value
    return merged
