"""Changes of terms: named one by one, with both values and the moment when they take effect."""

import dataclasses
from typing import Any

import pytest

from slipway.resources.trainings.records import RunPolicy, changes_sentence, policy_changes, takes_effect

pytestmark = pytest.mark.pure

RUN_POLICY = RunPolicy(
    1,
    2,
    8,
    no_progress_seconds=60.0,
    failures_without_checkpoint=3,
    operation={"storage": {"nvme": {"minutes": 15, "last": 2}, "key_file": ""}},
    kubernetes={"queue": "night", "resources": {"nvidia.com/gpu": "8"}},
)


def changed(**fields: Any) -> RunPolicy:
    return dataclasses.replace(RUN_POLICY, **fields)


def test_equal_terms_have_no_changes_whatever_their_origin_and_their_edition():
    assert policy_changes(RUN_POLICY, changed(origin={"sweep": "s"}, edition=7, fields=[])) == {}


def test_a_change_is_named_by_the_way_to_it():
    storage = {"storage": {"nvme": {"minutes": 5, "last": 2}, "key_file": ""}}
    assert policy_changes(RUN_POLICY, changed(operation=storage)) == {"operation.storage.nvme.minutes": (15, 5)}
    assert policy_changes(RUN_POLICY, changed(kubernetes={"resources": {"nvidia.com/gpu": "1"}})) == {
        "kubernetes.queue": ("night", None),
        "kubernetes.resources.nvidia.com/gpu": ("8", "1"),
    }


def test_changes_are_said_in_one_line():
    differences = policy_changes(RUN_POLICY, changed(max_nodes=4, kubernetes={"resources": {"nvidia.com/gpu": "8"}}))
    assert changes_sentence(differences) == 'max_nodes: 2 to 4, kubernetes.queue: "night" to nothing'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"no_progress_seconds": 7.0}, "at once"),
        ({"max_nodes": 4}, "when the next incarnation starts"),
        ({"min_nodes": 2, "max_nodes": 4}, "at once, but max_nodes when the next incarnation starts"),
    ],
)
def test_what_a_job_was_started_with_holds_until_the_next_one(fields: dict[str, Any], message: str):
    assert takes_effect(policy_changes(RUN_POLICY, changed(**fields))) == message
