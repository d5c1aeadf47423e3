"""Lineage: with `lineage: complete` a candidate passes when all of its record is known, and else hears what is not."""

import dataclasses

import dagster as dg

from slipway.assets import keys
from slipway.assets.promotion.policy_checks import HAS_LINEAGE
from slipway.resources import code
from slipway.resources.promotions import model_record
from tests.sensors.platform import STEPS, TINY, Platform


def demanding(platform: Platform) -> Platform:
    """The platform with a recipe whose gate wants a complete record."""
    gate = platform.recipe.gate.model_copy(update={"lineage": "complete"})
    return platform.with_training(platform.recipe.model_copy(update={"gate": gate}))


def judged(platform: Platform) -> dg.AssetCheckEvaluation:
    """The check of the finished training's lineage."""
    result = platform.materialize([keys.key(TINY, "candidate")], platform.finished().id)
    [evaluation] = [
        candidate for candidate in result.get_asset_check_evaluations() if candidate.check_name == HAS_LINEAGE
    ]
    return evaluation


def test_a_checkpoint_of_a_training_here_has_a_complete_record(tracked: Platform):
    platform = demanding(tracked)
    evaluation = judged(platform)
    assert evaluation.passed, evaluation.metadata
    record = model_record.read(platform.home.durable, "tiny-model", platform.finished().commits()[-1].manifest)
    assert record is not None and model_record.missing(record) == []
    assert record.environment["kernel"] and record.hardware["accelerators"]
    assert record.data["stages"].keys() == {"documents", "snapshot", "tokenizer"}
    assert record.state["verified"]["found"] == "whole" and record.state["parent"] == "drawn weights"
    [start] = record.topology["incarnations"]
    assert (start["ranks"], start["first_step"], start["last_step"]) == (1, 1, STEPS)
    revision = record.code["revision"]
    assert not code.is_changed(revision) or code.difference_path(platform.home.durable, revision).exists()


def test_what_the_record_lacks_is_named_with_what_to_do(tracked: Platform, monkeypatch):
    of_checkpoint = model_record.of_checkpoint

    def without_packages(*arguments: object) -> model_record.ModelRecord:
        """The record as a trainer of an earlier version would have left it, outside git."""
        record = of_checkpoint(*arguments)  # type: ignore[arg-type]
        known = {name: value for name, value in record.environment.items() if name not in ("packages", "kernel")}
        return dataclasses.replace(record, environment=known, code={**record.code, "revision": ""})

    monkeypatch.setattr(model_record, "of_checkpoint", without_packages)
    evaluation = judged(demanding(tracked))
    assert not evaluation.passed
    missing = str(evaluation.metadata["missing"])
    assert "environment.packages is not known" in missing and "environment.kernel is not known" in missing
    assert "code.revision is not known: run from a checkout of git, or set revision" in missing
