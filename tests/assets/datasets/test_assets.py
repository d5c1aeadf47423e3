"""The lane of a dataset, materialised by Dagster with real tiers."""

import base64
from typing import Any

import dagster as dg
import pytest

from slipway.assets.datasets import page
from slipway.assets.datasets.assets import build, dataset_assets
from slipway.assets.datasets.inspection import Inspection
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.snapshots.outcomes import Outcome
from slipway.assets.datasets.texts import steps
from slipway.resources.tiers import Tiers
from slipway.trainer.data import shards
from tests.assets.datasets.corpora import recipe_for, write_file


def materialize(recipe, durable, instance=None, only=None) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        dataset_assets(recipe),
        resources={"tiers": Tiers(durable=str(durable), nvme=str(durable.parent / "{node}"))},
        instance=instance,
        selection=only,
        raise_on_error=False,
    )


def metadata_of(result, asset: str) -> dict[str, Any]:
    [event] = [
        event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey(["small_corpus", asset])
    ]
    return {name: value.value for name, value in event.metadata.items()}


def test_the_lane_ends_with_a_snapshot_that_the_dataset_points_at(corpus, durable):
    result = materialize(recipe_for(corpus), durable)
    assert result.success
    sha256 = metadata_of(result, "snapshot")["snapshot"]
    assert pointer.current(durable, "small-corpus") == sha256
    assert steps.up_to_date(recipe_for(corpus), durable) == sha256


def test_the_data_versions_are_the_digests(corpus, durable):
    with dg.instance_for_test() as instance:
        result = materialize(recipe_for(corpus), durable, instance)
        snapshot = shards.read_manifest(durable, metadata_of(result, "snapshot")["snapshot"])
        expected = {
            "documents": snapshot.documents["blake3"],
            "tokenizer": snapshot.tokenizer.sha256,
            "snapshot": snapshot.sha256,
        }
        for asset, version in expected.items():
            event = instance.get_latest_materialization_event(dg.AssetKey(["small_corpus", asset]))
            assert event and event.asset_materialization and event.asset_materialization.tags
            assert event.asset_materialization.tags["dagster/data_version"] == version


def test_documents_show_rows_columns_statistics_and_a_plot(corpus, durable):
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "documents")
    assert metadata["dagster/row_count"] == 60
    assert metadata["dagster/uri"].startswith("file://")
    assert "blake3" in [column.name for column in metadata["dagster/column_schema"].columns]
    assert metadata["train_documents"] + metadata["validation_documents"] == 60
    assert "| package0 | 20 |" in metadata["packages"]
    picture = base64.b64decode(metadata["lengths"].partition("base64,")[2].rstrip(")"))
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 30_000


def test_the_snapshot_shows_tokens_and_the_entropy_to_beat(corpus, durable):
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "snapshot")
    assert metadata["tokens"] == metadata["train_tokens"] + metadata["validation_tokens"]
    assert 0 < metadata["unigram_entropy"] < 6
    assert metadata["shards"] > 3


def test_every_check_passes_with_its_numbers(corpus, durable):
    checks = {
        check.check_name: check for check in materialize(recipe_for(corpus), durable).get_asset_check_evaluations()
    }
    assert {name for name, check in checks.items() if check.passed and check.blocking} == {
        "no_empty_split",
        "no_document_in_both_splits",
        "tokens_decode_to_the_text",
        "enough_is_kept",
        "few_are_contaminated",
        "no_shrinkage",
        "no_drift",
        "removals_are_steady",
        "languages_are_kept",
        "sources_are_kept",
    }
    assert checks["no_document_in_both_splits"].metadata["documents_in_both"].value == 0
    assert checks["tokens_decode_to_the_text"].metadata["documents_decoded"].value == 20


def test_materialising_again_reuses_everything(corpus, durable):
    first = materialize(recipe_for(corpus), durable)
    second = materialize(recipe_for(corpus), durable)
    assert [metadata_of(second, asset)["reused"] for asset in ("documents", "tokenizer", "snapshot")] == [True] * 3
    assert metadata_of(first, "snapshot")["snapshot"] == metadata_of(second, "snapshot")["snapshot"]


def test_documents_show_what_was_left_out_by_which_rule_with_a_sample(corpus, durable):
    write_file(corpus / "zz.py", (corpus / "package0" / "module0.py").read_text())
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "documents")
    assert metadata["left_out"] == {"exact_duplicate": 1}
    assert "| exact_duplicate | 1 | zz.py#0 | package0/module0.py#0 | " in metadata["samples_left_out"]
    assert "return" in metadata["samples_left_out"]


def test_a_snapshot_shows_its_difference_to_its_parent(corpus, durable):
    parent = metadata_of(materialize(recipe_for(corpus), durable), "snapshot")["snapshot"]
    write_file(corpus / "added.py", "added")
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "snapshot")
    assert metadata["parent"] == parent
    assert (metadata["documents_added"], metadata["documents_removed"], metadata["documents_changed"]) == (1, 0, 0)
    assert 0 < metadata["shared_shards"] < metadata["shards"]


def test_drift_from_the_parent_blocks_the_snapshot(corpus, durable):
    materialize(recipe_for(corpus), durable)
    before = pointer.current(durable, "small-corpus")
    for number in range(60):
        write_file(corpus / f"long{number}.md", f"{number} and a much longer text " * 200)
    result = materialize(recipe_for(corpus), durable)
    [failed] = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert failed.check_name == "no_drift"
    drift = {name: value.value for name, value in failed.metadata.items()}
    assert drift["lengths"] > drift["limit"]  # type: ignore[operator]
    assert pointer.current(durable, "small-corpus") == before


def test_a_corpus_that_loses_most_of_itself_blocks_the_snapshot(corpus, durable):
    materialize(recipe_for(corpus), durable)
    before = pointer.current(durable, "small-corpus")
    for file in sorted(corpus.glob("package[12]/*")):
        file.unlink()
    failed = {
        evaluation.check_name: evaluation
        for evaluation in materialize(recipe_for(corpus), durable).get_asset_check_evaluations()
    }
    assert [name for name, evaluation in failed.items() if not evaluation.passed] == [
        "no_shrinkage",
        "languages_are_kept",
        "sources_are_kept",
    ]
    assert failed["no_shrinkage"].metadata["shrinkage"].value == pytest.approx(2 / 3, abs=0.1)
    assert pointer.current(durable, "small-corpus") == before


def test_a_recipe_that_leaves_out_nearly_everything_blocks_the_snapshot_and_names_the_rule(corpus, durable):
    for number in range(600):
        write_file(corpus / "short" / f"{number}.md", f"note {number}")
    recipe = recipe_for(corpus, cleaning={"rules": {"words_at_least": 5}, "near_duplicates": None})
    checks = {
        evaluation.check_name: evaluation for evaluation in materialize(recipe, durable).get_asset_check_evaluations()
    }
    assert not checks["enough_is_kept"].passed
    assert checks["enough_is_kept"].metadata["left_out"].value == {"words_at_least": 600}
    assert pointer.current(durable, "small-corpus") is None


def refusal_of(recipe, durable) -> str:
    """Why the command refuses to point the dataset at the snapshot that it has built."""
    tiers = Tiers(durable=str(durable), nvme=str(durable.parent / "{node}"))
    with dg.instance_for_test() as instance, pytest.raises(ValueError) as refusal:
        build(recipe, tiers, instance, lambda line: None)
    assert pointer.current(durable, "small-corpus") is None
    return str(refusal.value)


def test_a_recipe_that_leaves_out_every_document_ends_in_the_message_of_its_check(corpus, durable):
    recipe = recipe_for(corpus, cleaning={"languages": ("de",), "near_duplicates": None})
    assert refusal_of(recipe, durable).endswith(
        "does not pass no_empty_split: none of its documents is kept; "
        "enough_is_kept: cleaning left out 60 of 60 documents (60 by language), expected 90% or less"
    )


def test_a_corpus_of_which_no_file_can_be_read_ends_in_the_message_of_its_check(corpus, durable):
    for file in corpus.rglob("*.py"):
        file.write_bytes(bytes(100))
    recipe = recipe_for(corpus, reading={"quarantine": 1.0})
    assert refusal_of(recipe, durable).endswith("does not pass no_empty_split: none of its documents is kept")


def test_a_query_of_ones_own_is_a_check_that_blocks_and_shows_the_rows_that_should_not_be_there(corpus, durable):
    queries = {
        "few_in_a_package": "SELECT package, count(*) AS many FROM documents GROUP BY package HAVING many > 9",
        "none_lost": "SELECT name FROM parent ANTI JOIN documents USING (name)",
    }
    checks = materialize(recipe_for(corpus, checks={"queries": queries}), durable).get_asset_check_evaluations()
    [failed] = [check for check in checks if not check.passed]
    assert failed.check_name == "sql_few_in_a_package" and failed.metadata["rows"].value == 3
    first = failed.metadata["first"].value
    assert isinstance(first, list) and {"package": "package0", "many": "20"} in first
    assert "sql_none_lost" in {check.check_name for check in checks}
    assert pointer.current(durable, "small-corpus") is None


def test_the_page_shows_each_check_with_its_figures_and_what_was_left_out_with_its_evidence(corpus, durable):
    write_file(corpus / "zz.py", (corpus / "package0" / "module0.py").read_text())
    write_file(corpus / "nothing.py", "")
    recipe = recipe_for(corpus, checks={"queries": {"no_long_ones": "SELECT name FROM documents WHERE bytes > 1e6"}})
    assert materialize(recipe, durable).success
    write_file(corpus / "added.py", "added")
    assert materialize(recipe, durable).success
    text = (durable / "datasets" / "small-corpus" / "report.html").read_text()
    for row in (
        "<td>sql no long ones</td><td>passed</td><td>rows: 0</td>",
        "<td>sources are kept</td><td>passed</td><td>limit: 0.9, largest: 0</td>",
        "<td>exact duplicate</td><td>1</td><td>1.6%</td>",
        "zz.py#0</td>",
        "package0/module0.py#0</td>",
    ):
        assert row in text
    assert "<h3>Sources are kept</h3>" in text and "<h3>1 file was not read</h3>" in text
    assert "<td>empty</td><td>nothing.py</td>" in text


def test_a_check_of_which_nothing_was_left_out_says_so():
    checks = {"enough_is_kept": Outcome(True, {"share": 0.0, "left_out": {}})}
    inspection = Inspection("x", "0" * 64, 0, 0, 0, (), (), (), ())
    assert "<td>share: 0, left out: none</td>" in page.html("x", "", {}, checks, [], inspection)


@pytest.mark.parametrize("query", ["SELECT nothing FROM documents", "FROM read_text('/etc/passwd')"])
def test_a_query_that_cannot_be_answered_is_refused_before_anything_is_read(corpus, durable, query):
    result = materialize(recipe_for(corpus, checks={"queries": {"mine": query}}), durable)
    failure = result.failure_data_for_node("small_corpus__documents")
    assert failure and failure.error and failure.error.cause
    assert "checks.queries.mine: query" in failure.error.cause.message and not durable.exists()


def test_pictures_beside_the_texts_are_named_and_fail_no_build(corpus, durable):
    for number in range(30):
        (corpus / f"figure{number}.png").write_bytes(b"\x89PNG\r\n" + bytes(number + 1))
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "documents")
    assert metadata["left_out"] == {"no text: a picture, a font or a sound": 30}


def test_the_documents_show_what_each_rule_measured_as_a_picture(corpus, durable):
    with_rules = recipe_for(corpus, cleaning={"rules": {"words_at_least": 20}, "near_duplicates": None})
    assert "rules" not in metadata_of(materialize(recipe_for(corpus), durable), "documents")
    assert metadata_of(materialize(with_rules, durable), "documents")["rules"].startswith(
        "![what the rules measured](data"
    )


def test_each_asset_can_be_materialised_alone(corpus, durable):
    for asset in ("documents", "tokenizer", "snapshot"):
        assert materialize(recipe_for(corpus), durable, only=[f"small_corpus/{asset}"]).success
    assert pointer.current(durable, "small-corpus") is not None


def test_a_failed_check_leaves_the_dataset_pointing_where_it_pointed(corpus, durable):
    materialize(recipe_for(corpus), durable)
    before = pointer.current(durable, "small-corpus")
    result = materialize(recipe_for(corpus, validation=1e-9), durable)
    [failed] = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert failed.check_name == "no_empty_split"
    assert pointer.current(durable, "small-corpus") == before
    failure = result.failure_data_for_node("small_corpus__snapshot")
    assert failure and failure.error and failure.error.cause
    assert "documents is in the validation split: raise split.validation, found 1e-09" in failure.error.cause.message


def test_a_missing_corpus_fails_with_one_clear_message_and_writes_nothing(tmp_path, durable):
    result = materialize(recipe_for(tmp_path / "missing"), durable)
    assert not result.success
    failure = result.failure_data_for_node("small_corpus__documents")
    assert failure and failure.error and failure.error.cause
    assert "dataset small-corpus: source.path: found nothing at" in failure.error.cause.message
    assert not durable.exists()


def test_the_catalog_describes_every_asset(corpus):
    for asset in dataset_assets(recipe_for(corpus)):
        [spec] = asset.specs
        assert spec.key.path[0] == spec.group_name == "small_corpus"
        assert spec.description
        assert spec.owners == ["team:data"]
        assert spec.kinds
        assert spec.code_version


@pytest.mark.slow
def test_the_standard_library_becomes_a_snapshot(durable):
    metadata = metadata_of(materialize(recipe_for(None, vocab_size=2048, validation=0.05), durable), "snapshot")
    assert metadata["tokens"] > 2_000_000
    assert metadata["bytes_per_token"] > 2
