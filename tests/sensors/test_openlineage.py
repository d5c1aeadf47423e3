"""OpenLineage: a catalogue hears of every snapshot, start, checkpoint and end, once, whatever breaks in between.

`SCHEMA` is what version 2-0-2 of the standard requires of a run event and of every facet, in JSON Schema.
"""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from slipway.resources.openlineage.target import OpenLineage
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import fence
from tests.resources.openlineage.test_target import Catalog, catalog  # noqa: F401 - a fixture
from tests.sensors.platform import BY, Platform

FACETS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {name: {"type": "string", "pattern": "^https?://"} for name in ("_producer", "_schemaURL")},
    },
}
NAMED: dict[str, Any] = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {"namespace": {"type": "string"}, "name": {"type": "string"}, "facets": FACETS},
}
TIME = r"^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["run", "job", "eventTime", "producer", "schemaURL"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time", "pattern": TIME},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
                           "facets": FACETS},
        },
        "job": NAMED,
        "inputs": {"type": "array", "items": NAMED},
        "outputs": {"type": "array", "items": NAMED},
        "producer": {"type": "string", "pattern": "^https?://"},
        "schemaURL": {"type": "string", "pattern": "^https://openlineage.io/spec/2-0-2/"},
    },
}  # fmt: skip


def telling(platform: Platform, target: OpenLineage) -> Platform:
    platform.resources["openlineage"] = target
    return platform


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds(events: list[dict[str, Any]], store: TrainingStore) -> list[str]:
    """The types of the events of a training's run, in their order."""
    own = [event for event in events if event["run"]["facets"].get("slipway_training", {}).get("training") == store.id]
    return [event["eventType"] for event in own]


def test_without_a_target_nothing_is_sent_and_nothing_is_noted(platform: Platform):
    assert "no target" in str(platform.tick("openlineage").skip_message)
    assert not (platform.home.durable / "openlineage").exists()


def test_snapshot_training_and_checkpoints_are_reported_once_in_valid_events(platform: Platform):
    store, path = platform.finished(), platform.root / "events.jsonl"
    telling(platform, OpenLineage(file=str(path)))
    for _ in range(2):
        platform.apply("openlineage")
    events = written(path)
    for event in events:
        jsonschema.validate(event, SCHEMA)
    assert kinds(events, store) == ["START", "RUNNING", "RUNNING", "RUNNING", "COMPLETE"]
    [snapshot_event] = [event for event in events if event["job"]["name"] == "texts/snapshot"]
    snapshot = store.specification().snapshot
    assert snapshot_event["outputs"][0]["facets"]["version"]["datasetVersion"] == snapshot
    start, *checkpoints = [event for event in events if event["job"]["name"] == "tiny"][:-1]
    assert start["inputs"][0] | {"facets": {}} == {"namespace": "slipway", "name": "texts", "facets": {}}
    assert start["inputs"][0]["facets"]["version"]["datasetVersion"] == snapshot
    versions = [event["outputs"][0]["facets"]["version"]["datasetVersion"] for event in checkpoints]
    assert versions == [commit.manifest for commit in store.commits()]


def test_a_server_hears_of_a_checkpoint_when_it_is_there(platform: Platform, catalog: Catalog):  # noqa: F811
    telling(platform, OpenLineage(url=catalog.url))
    store = platform.start_training("told as it goes")
    assert store.claim(1, ("node-0",), "first start", BY)
    platform.apply("openlineage")
    assert kinds(catalog.events, store) == ["START"]
    fence.commit(store.folder, fence.Commit(5, fence.Token(1), "checkpoints/5", "0" * 64, {"loss": 1.0}, 1e9))
    platform.apply("openlineage")
    platform.apply("openlineage")
    assert kinds(catalog.events, store) == ["START", "RUNNING"]
    store.record_exit(1, "failed", "the disk is full", BY)
    store.want("stop", BY, "a test")
    platform.apply("openlineage")
    assert kinds(catalog.events, store) == ["START", "RUNNING", "FAIL"]
    assert catalog.events[-1]["run"]["facets"]["errorMessage"]["message"] == "the disk is full"


def test_while_the_catalogue_is_away_nothing_is_lost_and_the_tick_says_so(
    platform: Platform,
    catalog: Catalog,  # noqa: F811
):
    store = platform.finished()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        telling(platform, OpenLineage(url=f"http://127.0.0.1:{nobody.getsockname()[1]}"))
        assert "events are not sent yet" in str(platform.tick("openlineage").skip_message)
    telling(platform, OpenLineage(url=catalog.url))
    platform.apply("openlineage")
    assert kinds(catalog.events, store) == ["START", "RUNNING", "RUNNING", "RUNNING", "COMPLETE"]


def test_a_catalogue_that_goes_away_in_the_middle_gets_the_rest_later(
    platform: Platform,
    catalog: Catalog,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    store, send = platform.finished(), OpenLineage.send

    def breaking(self: OpenLineage, event: dict[str, Any]) -> None:
        catalog.answer = 503 if len(catalog.events) == 3 else 201
        send(self, event)

    telling(platform, OpenLineage(url=catalog.url))
    with monkeypatch.context() as broken:
        broken.setattr(OpenLineage, "send", breaking)
        platform.apply("openlineage")
    assert len(catalog.events) == 3
    catalog.answer = 201
    platform.apply("openlineage")
    assert kinds(catalog.events, store) == ["START", "RUNNING", "RUNNING", "RUNNING", "COMPLETE"]
    ids = [json.dumps(event, sort_keys=True) for event in catalog.events]
    assert len(ids) == len(set(ids))


def test_one_damaged_snapshot_keeps_no_other_subject_back(platform: Platform, catalog: Catalog):  # noqa: F811
    store = platform.finished()
    folder = platform.home.durable / "snapshots"
    shutil.copyfile(folder / f"{store.specification().snapshot}.json", folder / f"{'0' * 64}.json")
    telling(platform, OpenLineage(url=catalog.url))
    platform.apply("openlineage")
    assert kinds(catalog.events, store)[-1] == "COMPLETE"
