"""Suites: a suite that was made is compared with the training documents of each new snapshot, once."""

import copy
import dataclasses

import dagster as dg
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.assets.suites import making, suite
from slipway.assets.suites.assets import DECONTAMINATED
from slipway.definitions import build
from slipway.recipes.suite import SuiteRecipe
from slipway.trainer.data import shards
from tests.sensors.platform import Platform

SUITE = SuiteRecipe(name="held", dataset="texts", continuation=None, arithmetic=None)


def with_suite(platform: Platform) -> Platform:
    more = copy.copy(platform)
    more.recipes = dataclasses.replace(platform.recipes, suites={SUITE.name: SUITE})
    more.repository = build(more.recipes, platform.resources).get_repository_def()
    return more


def give_away(platform: Platform, text: str) -> None:
    """Build a snapshot of a corpus that has new documents with this text in them."""
    for number in range(4):  # of which one at least is a training document
        (platform.root / "corpus" / f"copied-{number}.txt").write_text(f"copy number {number} of it: {text}")
    dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
    source = steps.make_documents(dataset, durable).inputs["source"]["digest"]
    steps.make_tokenizer(dataset, durable)
    pointer.point(durable, dataset.name, steps.make_snapshot(dataset, durable).result["sha256"], source)


def check(platform: Platform, result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    [evaluation] = [
        candidate for candidate in result.get_asset_check_evaluations() if candidate.check_name == DECONTAMINATED
    ]
    return evaluation


def test_a_suite_that_a_new_snapshot_gives_away_is_found_out_by_one_run(platform: Platform):
    platform, durable = with_suite(platform), platform.home.durable
    assert platform.apply("suites") == []  # nobody has needed it yet
    suite_record = making.named(durable, SUITE)
    assert platform.apply("suites") == []  # it was made without what this snapshot gives away
    examples_with_text = [
        example for example in suite.examples(durable, suite_record) if example.task == suite.DOCUMENTS
    ]
    longest = max(examples_with_text, key=lambda example: example.bytes)
    give_away(platform, longest.text)
    current = pointer.current(durable, "texts")
    assert current is not None and shards.read_manifest(durable, current).sha256 != suite_record.snapshot
    [request] = platform.apply("suites")
    assert request.asset_selection == [keys.key("held", "suite")]
    evaluation = check(platform, platform.launch(request))
    assert not evaluation.passed and evaluation.metadata["leaked"].value == 1
    assert longest.text[:20] in str(evaluation.metadata["such_as"].value)
    assert platform.apply("suites") == []


def test_a_run_that_failed_is_not_requested_again_at_once(platform: Platform):
    platform = with_suite(platform)
    making.named(platform.home.durable, SUITE)
    give_away(platform, "words that were in no document before")
    [request] = platform.apply("suites")
    run = platform.queue(request)
    assert platform.apply("suites") == []
    platform.end(run, DagsterRunStatus.FAILURE)
    assert platform.apply("suites") == []
