"""OpenLineage's own client reads our events: each becomes its objects and comes out as it was.

The client's classes are generated from the published schema of each facet, so a field that a facet does not have, one
that it requires, and the schema's version are checked by them.
"""

import importlib
import json
from typing import Any

import pytest
from openlineage.client import event_v2

from slipway.resources.openlineage.target import OpenLineage
from tests.sensors.platform import BY, Platform

MODULES = {
    "DatasetVersionDatasetFacet": "dataset_version_dataset",
    "ErrorMessageRunFacet": "error_message_run",
    "JobTypeJobFacet": "job_type_job",
}
"""The module of the client's generated classes that has the class of a facet."""


def read(event: dict[str, Any]) -> Any:
    """The client's object. Raises TypeError and ValueError for an event that is none of the standard's."""
    fields = {key: value for key, value in event.items() if key != "schemaURL"}
    fields["eventType"] = event_v2.RunState(event["eventType"])
    fields["run"] = event_v2.Run(event["run"]["runId"], facets(event["run"]))
    fields["job"] = event_v2.Job(**{**event["job"], "facets": facets(event["job"])})
    for side, of in (("inputs", event_v2.InputDataset), ("outputs", event_v2.OutputDataset)):
        fields[side] = [of(**{**dataset, "facets": facets(dataset)}) for dataset in event[side]]
    return event_v2.RunEvent(**fields)


def facets(entity: dict[str, Any]) -> dict[str, Any]:
    """The client's object of each facet: that of its own class, or of the base that a facet of ours extends."""
    return {name: facet(name, fields_of) for name, fields_of in entity["facets"].items()}


def facet(name: str, document: dict[str, Any]) -> Any:
    kind = document["_schemaURL"].rpartition("/")[2]
    fields = {key: value for key, value in document.items() if key not in ("_producer", "_schemaURL")}
    if name.startswith("slipway_"):
        base = getattr(importlib.import_module("openlineage.client.generated.base"), kind)
        return base(producer=document["_producer"]).with_additional_properties(**fields)
    module = importlib.import_module(f"openlineage.client.generated.{MODULES[kind]}")
    return getattr(module, kind)(producer=document["_producer"], **fields)


def rebuilt(event: dict[str, Any]) -> dict[str, Any]:
    """An event as the client writes it: without the empty facets that it adds to every dataset."""
    written = importlib.import_module("openlineage.client.serde").Serde.to_dict(read(event))
    for side, added in (("inputs", "inputFacets"), ("outputs", "outputFacets")):
        for dataset in written[side]:
            assert dataset.pop(added) == {}
    return dict(written)


def events(platform: Platform) -> list[dict[str, Any]]:
    path = platform.root / "events.jsonl"
    platform.resources["openlineage"] = OpenLineage(file=str(path))
    platform.apply("openlineage")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_events_of_a_snapshot_and_a_training_that_succeeds_come_out_as_they_were(platform: Platform):
    platform.finished()
    event_list = events(platform)
    assert {event["job"]["facets"]["jobType"]["jobType"] for event in event_list} == {"DATASET", "TRAINING"}
    assert [rebuilt(event) for event in event_list] == event_list


def test_the_events_of_a_training_that_fails_come_out_as_they_were(platform: Platform):
    store = platform.start_training("told at its end")
    assert store.claim(1, ("node-0",), "first start", BY)
    store.record_exit(1, "failed", "the disk is full", BY)
    store.want("stop", BY, "a test")
    *_, last = event_list = events(platform)
    assert (last["eventType"], last["run"]["facets"]["errorMessage"]["message"]) == ("FAIL", "the disk is full")
    assert [rebuilt(event) for event in event_list] == event_list


def test_a_facet_with_a_field_that_the_standard_lacks_is_refused(platform: Platform):
    platform.finished()
    event = events(platform)[0]
    event["job"]["facets"]["jobType"]["color"] = "blue"
    with pytest.raises(TypeError, match="color"):
        read(event)
