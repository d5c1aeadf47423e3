"""A dataset in an object store: it equals one of the same files in a folder, and a failing store loses nothing."""

import gzip
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.documents import extraction
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.texts import steps
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import patience
from slipway.trainer.objects import bucket as objects
from slipway.trainer.objects.bucket import Bucket
from tests.assets.datasets.builds import build, content, strays
from tests.assets.datasets.corpora import make_corpus, recipe_for
from tests.assets.datasets.test_assets import materialize
from tests.s3 import Server, put

FILES = 26


@pytest.fixture
def corpus(tmp_path):
    """Texts as single files, compressed lines and rows of Parquet."""
    folder = make_corpus(tmp_path / "corpus", files=FILES - 2)
    lines = "".join(json.dumps({"text": f"line {number} of many"}) + "\n" for number in range(50))
    (folder / "lines.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.table({"text": [f"row {number} of many" for number in range(50)]}), folder / "rows.parquet")
    return folder


def upload(corpus, bucket: Bucket) -> None:
    for path in corpus.rglob("*"):
        if path.is_file():
            put(bucket, path.relative_to(corpus).as_posix(), path.read_bytes())


def remote(bucket: Bucket) -> DatasetRecipe:
    recipe = recipe_for(None, shard_tokens=400)
    source = {"kind": "s3", "url": str(bucket)}
    return DatasetRecipe.model_validate({**recipe.model_dump(), "source": source})


@pytest.fixture
def bucket(s3: Server, corpus) -> Bucket:
    new = s3.new_bucket()
    upload(corpus, new)
    return new


def test_an_object_store_gives_the_documents_tokenizer_and_shards_of_the_same_files_in_a_folder(
    bucket, corpus, tmp_path
):
    there = build(remote(bucket), tmp_path / "there")
    local = build(recipe_for(corpus, shard_tokens=400), tmp_path / "here")
    assert (there.splits, there.tokenizer, there.documents) == (local.splits, local.tokenizer, local.documents)
    assert there.source["digest"] == local.source["digest"]
    for folder in ("shards", "documents", "tokenizers"):
        from_bucket, from_folder = content(tmp_path / "there"), content(tmp_path / "here")
        assert {name: data for name, data in from_bucket.items() if name.startswith(folder)} == {
            name: data for name, data in from_folder.items() if name.startswith(folder)
        }


@pytest.mark.slow
def test_worker_processes_read_from_the_store_too(bucket, tmp_path, monkeypatch):
    alone = build(remote(bucket), tmp_path / "alone")
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(extraction, "UNIT_FILES", 5)
    assert build(remote(bucket), tmp_path / "together").manifest() == alone.manifest()


def test_an_incremental_build_opens_only_the_changed_object(bucket, durable, monkeypatch):
    build(remote(bucket), durable)
    put(bucket, "package1/module1.py", b"changed")
    opened = []

    def recording(listing, file, how):
        opened.append(file.name)
        return OpenedFile(listing, file, how)

    monkeypatch.setattr(extraction, "OpenedFile", recording)
    build(remote(bucket), durable)
    assert opened == ["package1/module1.py"]


class Interruption:
    """Calls `stop` when a build gets to its third file; `opened` counts the files."""

    def __init__(self, stop: Callable[[], object], monkeypatch) -> None:
        self._stop, self.opened = stop, 0
        monkeypatch.setattr(extraction, "OpenedFile", self)

    def __call__(self, listing, file, how):
        self.opened += 1
        if self.opened == 3:
            self._stop()
        return OpenedFile(listing, file, how)


def test_a_store_that_answers_again_in_time_changes_nothing(s3, bucket, tmp_path, monkeypatch):
    undisturbed = build(remote(bucket), tmp_path / "undisturbed")
    monkeypatch.setattr(objects, "READ_SECONDS", 0.5)
    with ExitStack() as frozen:

        def freeze() -> None:
            frozen.enter_context(s3.frozen())
            threading.Timer(1.5, frozen.close).start()

        Interruption(freeze, monkeypatch)
        assert build(remote(bucket), tmp_path / "durable").manifest() == undisturbed.manifest()


@pytest.mark.slow
def test_a_store_that_stays_unreachable_is_one_clear_failure_and_finished_segments_are_kept(
    s3, bucket, durable, tmp_path, monkeypatch
):
    undisturbed = build(remote(bucket), tmp_path / "undisturbed")
    monkeypatch.setattr(extraction, "UNIT_FILES", 2)
    monkeypatch.setattr(patience, "SECONDS", 1.0)
    monkeypatch.setattr(objects, "READ_SECONDS", 2.0)
    with ExitStack() as frozen:
        interruption = Interruption(lambda: frozen.enter_context(s3.frozen()), monkeypatch)
        failure = materialize(remote(bucket), durable).failure_data_for_node("small_corpus__documents")
    assert failure and failure.error and failure.error.cause
    assert failure.error.cause.message.startswith(f"ConnectionError: dataset small-corpus: {bucket}/")
    assert ": no answer (ReadTimeoutError)" in failure.error.cause.message
    assert strays(durable) == []
    assert content(durable) == {}

    opened = interruption.opened
    assert build(remote(bucket), durable).manifest() == undisturbed.manifest()
    assert interruption.opened - opened == FILES - 2
    assert steps.up_to_date(remote(bucket), durable) == undisturbed.sha256
