"""Sources in a real object store: listing, reading, and clear messages when the store changes or refuses."""

import functools
import gzip
import io
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from slipway.assets.datasets.reading.document import Text, UnfitDocument
from slipway.assets.datasets.reading.listed_file import UnreadFile
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.reading.readers import read
from slipway.assets.datasets.reading.sources import SourceListing, list_source
from slipway.recipes.dataset import DatasetRecipe, ReadingSection
from slipway.trainer.base import patience
from slipway.trainer.objects import bucket as objects
from slipway.trainer.objects.bucket import Bucket
from slipway.trainer.objects.origin import Unreachable
from tests.s3 import Server, put

LINES = b"".join(json.dumps({"text": f"document {number}"}).encode() + b"\n" for number in range(2000))
READ = functools.partial(read, reading=ReadingSection())


def recipe(url: str, **selection: object) -> DatasetRecipe:
    source = {"kind": "s3", "url": url, **selection}
    return DatasetRecipe.model_validate({"name": "remote", "description": "d", "owner": "team:d", "source": source})


@pytest.fixture
def bucket(s3: Server) -> Bucket:
    return s3.new_bucket()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    monkeypatch.setattr(objects, "READ_SECONDS", 2.0)


def names(listing: SourceListing) -> list[str]:
    return [file.name for file in listing.files]


def test_a_prefix_gives_its_objects_by_relative_name(bucket):
    for key in ("b.txt", "a/deep/c.jsonl", "a.md"):
        put(bucket, key, b"text")
    listing = list_source(recipe(str(bucket), exclude=("*.md",)))
    assert [(file.name, file.bytes, file.settled) for file in listing.files] == [
        ("a/deep/c.jsonl", 4, True),
        ("b.txt", 4, True),
    ]
    assert listing.description == "a prefix of an object store"


@pytest.mark.slow
def test_more_objects_than_a_page_holds_are_all_listed(bucket):
    for number in range(1005):
        put(bucket, f"{number:04}", b"x")
    assert names(list_source(recipe(str(bucket)))) == [f"{number:04}" for number in range(1005)]


def test_an_object_beside_the_prefix_is_not_listed(bucket):
    put(bucket, "in.txt", b"text")
    put(Bucket(str(bucket) + "-not"), "out.txt", b"text")
    assert names(list_source(recipe(str(bucket)))) == ["in.txt"]


def test_empty_objects_are_left_out_and_folders_skipped(bucket):
    for key, data in {"a": b"text", "empty": b"", "folder/": b""}.items():
        put(bucket, key, data)
    listing = list_source(recipe(str(bucket)))
    assert (names(listing), listing.left_out) == (["a"], {"empty": 1})


def test_a_version_changes_with_the_content(bucket):
    put(bucket, "a", b"one")
    before = list(list_source(recipe(str(bucket))).files)
    assert list(list_source(recipe(str(bucket))).files) == before
    put(bucket, "a", b"two")
    assert next(iter(list_source(recipe(str(bucket))).files)).version != before[0].version


def test_documents_of_every_format_come_with_the_hash_of_the_object(bucket):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["one", "two"]}), buffer)
    contents = {"a.txt": b"text", "b.jsonl.gz": gzip.compress(LINES), "c.parquet": buffer.getvalue()}
    for key, data in contents.items():
        put(bucket, key, data)
    listing = pickle.loads(pickle.dumps(list_source(recipe(str(bucket)))))
    opened = [OpenedFile(listing, file, READ) for file in listing.files]
    text, lines, rows = (list(file) for file in opened)
    assert (text, rows) == ([Text(0, "text")], [Text(0, "one"), Text(1, "two")])
    assert lines == [Text(number, f"document {number}") for number in range(2000)]
    assert [file.blake3 for file in opened] == [blake3(data).hexdigest() for data in contents.values()]


def test_a_truncated_object_gives_what_is_there_and_says_so(bucket):
    put(bucket, "a.jsonl.gz", gzip.compress(LINES)[:-1000])
    listing = list_source(recipe(str(bucket)))
    *documents, last = OpenedFile(listing, next(iter(listing.files)), READ)
    assert documents == [Text(number, f"document {number}") for number in range(len(documents))]
    assert last == UnfitDocument(len(documents), "truncated")


def test_an_object_replaced_after_it_was_listed_is_refused(bucket):
    put(bucket, "a.txt", b"text")
    listing = list_source(recipe(str(bucket)))
    put(bucket, "a.txt", b"same")
    with pytest.raises(
        UnreadFile, match=r"/a\.txt: changed since it was listed or opened: try again when no process writes"
    ):
        listing.open(next(iter(listing.files)))


def test_an_object_replaced_while_it_is_read_is_refused(bucket, monkeypatch):
    monkeypatch.setattr(objects, "READ_AHEAD", 1000)
    put(bucket, "a.txt", b"a" * 1_000_000)
    listing = list_source(recipe(str(bucket)))
    with listing.open(next(iter(listing.files))) as stream:
        assert stream.read(10) == b"a" * 10
        put(bucket, "a.txt", b"b" * 1_000_000)
        with pytest.raises(UnreadFile, match="changed since it was listed or opened"):
            stream.read()


def test_a_removed_object_is_reported(bucket):
    put(bucket, "a.txt", b"text")
    listing = list_source(recipe(str(bucket)))
    bucket.call("delete_object", "a.txt")
    with pytest.raises(UnreadFile, match=r"/a\.txt: missing: it was listed, and is gone now"):
        listing.open(next(iter(listing.files)))


def test_an_empty_prefix_is_one_clear_error(bucket):
    put(bucket, "a.md", b"text")
    with pytest.raises(ValueError, match=rf"dataset remote: found no document in {bucket} \(include \['\*\.py'\]"):
        list_source(recipe(str(bucket), include=("*.py",)))


def test_a_missing_bucket_is_one_clear_error(s3):
    with pytest.raises(ValueError, match=r"dataset remote: s3://no-such-bucket/corpus: found no such bucket"):
        list_source(recipe("s3://no-such-bucket/corpus"))


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_one_clear_error_that_does_not_show_them(bucket, monkeypatch, variable):
    monkeypatch.setenv(variable, "a-wrong-one")
    with pytest.raises(ValueError, match=r"dataset remote: s3://.*: access denied .*: expected credentials") as error:
        list_source(recipe(str(bucket)))
    assert "a-wrong-one" not in str(error.value)


def test_missing_credentials_are_one_clear_error(bucket, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"access denied \(NoCredentialsError\): expected credentials in AWS_ACCESS"):
        list_source(recipe(str(bucket)))


def test_an_unreachable_store_is_reported_after_some_time(bucket, impatient, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ConnectionError, match=r"dataset remote: s3://.*: no answer \(EndpointConnectionError\)"):
        list_source(recipe(str(bucket)))


def test_a_store_that_stops_answering_is_reported_while_reading(bucket, s3, impatient, monkeypatch):
    monkeypatch.setattr(objects, "READ_AHEAD", 1000)
    put(bucket, "a.txt", b"a" * 1_000_000)
    listing = list_source(recipe(str(bucket)))
    with listing.open(next(iter(listing.files))) as stream:
        stream.read(10)
        with s3.frozen(), pytest.raises(Unreachable, match=r"/a\.txt: no answer \(ReadTimeoutError\)"):
            stream.read()
