"""The record of a model: which of its fields are not known, by what it was trained on."""

import dataclasses
from typing import Any

import pytest

from slipway.assets.promotion import policy_checks
from slipway.resources.promotions.model_record import FIELDS, UNRECORDED, ModelRecord, missing, not_known, verified

KNOWN = ModelRecord("m", "0" * 64, **{section: dict.fromkeys(names, "known") for section, names in FIELDS.items()})


def trained(accelerators: str, **environment: Any) -> ModelRecord:
    merged = {**KNOWN.environment, **environment}
    return dataclasses.replace(KNOWN, hardware={**KNOWN.hardware, "accelerators": accelerators}, environment=merged)


def test_a_record_with_every_field_lacks_nothing():
    assert missing(trained("cpu")) == []


@pytest.mark.parametrize(("section", "field"), [(s, f) for s, fields in FIELDS.items() for f in fields])
def test_each_field_that_is_empty_is_named(section: str, field: str):
    without: dict[str, Any] = {section: {**getattr(KNOWN, section), field: ""}}
    assert f"{section}.{field}" in missing(dataclasses.replace(KNOWN, **without))


def test_on_gpus_the_driver_and_its_libraries_belong_to_the_record():
    fields = ["environment.cuda", "environment.cudnn", "environment.nccl", "environment.driver"]
    assert missing(trained("NVIDIA H200")) == fields


def test_an_image_without_its_digest_is_not_enough():
    assert missing(trained("cpu", image="trainer:1")) == ["environment.image_digest"]
    assert missing(trained("cpu", image="trainer@sha256:12", image_digest="sha256:12")) == []


def test_on_a_cluster_the_image_belongs_to_a_complete_record(tmp_path):
    [fault] = policy_checks.lineage_faults(trained("cpu"), tmp_path, policy_checks.COMPLETE, on_a_cluster=True)
    assert fault.startswith("environment.image_digest is not known")
    assert policy_checks.lineage_faults(trained("cpu"), tmp_path, "checked", on_a_cluster=True) == []


def test_what_nobody_records_of_gpus_is_told_and_asked_of_no_candidate():
    on_gpus = trained("NVIDIA H200", cuda="13", cudnn="9", nccl="2", driver="580")
    assert missing(on_gpus) == [] and not_known(on_gpus) == list(UNRECORDED)
    assert not_known(trained("cpu")) == []


def test_a_training_without_any_of_the_variables_has_them_known():
    assert missing(trained("cpu", variables={})) == []


@pytest.mark.parametrize(
    ("damage", "problem"), [("", "whole"), ("model.safetensors: found 3", "model.safetensors: found 3")]
)
def test_a_record_says_when_every_byte_was_verified_and_what_was_found(damage: str, problem: str):
    verification = verified(KNOWN, damage).state["verified"]
    assert verification["found"] == problem and verification["at"] > 1.7e9
