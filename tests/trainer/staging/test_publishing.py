"""Replicas: a snapshot published to a real object store, shards first, each object once and whole."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slipway.trainer.base import atomic
from slipway.trainer.data import shards
from slipway.trainer.objects.bucket import Bucket
from slipway.trainer.objects.origin import Missing, Unreachable
from slipway.trainer.objects.origins import origin
from slipway.trainer.objects.uploads import PART, checked
from slipway.trainer.staging import publishing
from slipway.trainer.staging.publishing import publish
from tests.conftest import PATIENCE_SECONDS, Marked
from tests.s3 import Relay, Server, put, relayed

LARGE_TOKENS = 10_000_000
"""Of the largest shard: 40 MB, which goes up in three parts."""


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("durable")


@pytest.fixture(scope="module")
def snapshot(durable: Path) -> shards.TextSnapshot:
    """Five small shards and a large one."""
    draw = np.random.default_rng(0)
    lengths = [1000, 2000, 3000, 4000, LARGE_TOKENS]
    written = [shards.write_shard(durable, [draw.integers(0, 9, length)], "uint32") for length in lengths]
    held_out = shards.write_shard(durable, [draw.integers(0, 9, 500)], "uint32")
    splits = {
        name: shards.TokenSplit(len(part), sum(shard.tokens for shard in part), 1, tuple(part))
        for name, part in {"train": written, "validation": [held_out]}.items()
    }
    text_snapshot = shards.TextSnapshot(
        "d", "0" * 64, {}, {}, shards.TokenizerRecord("0" * 64, 10, 9), "uint32", splits
    )
    shards.write_manifest(durable, text_snapshot)
    return text_snapshot


@pytest.fixture
def bucket(s3: Server) -> Bucket:
    return s3.new_bucket()


def names(bucket: Bucket) -> set[str]:
    return {bucket_object.key for bucket_object in bucket.objects()}


def expected(snapshot: shards.TextSnapshot) -> set[str]:
    return {f"shards/{shard.blake3}.shard" for shard in snapshot.shards()} | {f"snapshots/{snapshot.sha256}.json"}


def unfinished(bucket: Bucket) -> list[str]:
    return [upload["Key"] for upload in bucket.call("list_multipart_uploads", Prefix=bucket.prefix).get("Uploads", ())]


def test_a_published_snapshot_is_there_byte_for_byte(snapshot, durable, bucket):
    progress: list[tuple[int, int]] = []
    published = publish(snapshot.sha256, durable, str(bucket), lambda *done: progress.append(done))
    total = sum(shard.bytes for shard in snapshot.shards())
    assert (published.uploaded_shards, published.uploaded_bytes) == (published.shards, published.bytes) == (6, total)
    assert names(bucket) == expected(snapshot)
    for name in expected(snapshot):
        with origin(str(bucket)).open(name) as stream:
            assert stream.read() == (durable / name).read_bytes()
    assert [total for _, total in progress] == [total] * 6 and progress[-1] == (total, total)


def test_publishing_again_uploads_nothing(snapshot, durable, bucket):
    publish(snapshot.sha256, durable, str(bucket))
    before = list(bucket.objects())
    again = publish(snapshot.sha256, durable, str(bucket))
    assert (again.shards, again.uploaded_shards, again.uploaded_bytes) == (6, 0, 0)
    assert list(bucket.objects()) == before


@pytest.mark.slow
def test_every_object_carries_its_hash(snapshot, durable, bucket):
    publish(snapshot.sha256, durable, str(bucket))
    for shard in snapshot.shards():
        head = bucket.head(f"shards/{shard.blake3}.shard")
        assert (head["ContentLength"], head["Metadata"]) == (shard.bytes, {"blake3": shard.blake3})


def test_the_store_refuses_bytes_that_changed_on_the_way(bucket):
    changed = checked(b"as sent") | {"Body": b"flipped"}
    upload = bucket.call("create_multipart_upload", "a")["UploadId"]
    with pytest.raises(Unreachable, match="BadDigest"):
        bucket.call("upload_part", "a", UploadId=upload, PartNumber=1, **changed)
    bucket.call("abort_multipart_upload", "a", UploadId=upload)
    with pytest.raises(Unreachable, match="BadDigest"):
        bucket.call("put_object", "a", **changed)
    with pytest.raises(Missing):
        bucket.head("a")


def test_an_object_with_other_content_stays_and_is_reported(snapshot, durable, bucket):
    shard = snapshot.shards()[0]
    put(bucket, f"shards/{shard.blake3}.shard", b"another")
    with pytest.raises(
        ValueError,
        match=rf"{shard.blake3}.shard: found another object, of 7 bytes .* remove the object",
    ):
        publish(snapshot.sha256, durable, str(bucket))
    assert not any(name.startswith("snapshots/") for name in names(bucket))
    with bucket.open(f"shards/{shard.blake3}.shard") as stream:
        assert stream.read() == b"another"


@pytest.mark.parametrize("index", [0, 4], ids=["in one request", "in parts"])
def test_a_damaged_shard_is_not_published(snapshot, durable, bucket, tmp_path, index):
    shard = snapshot.splits["train"].shards[index]
    damaged = tmp_path / "damaged"
    for name in expected(snapshot):
        (damaged / name).parent.mkdir(parents=True, exist_ok=True)
        (damaged / name).hardlink_to(durable / name)
    data = bytearray(shards.shard_path(durable, shard).read_bytes())
    data[-20] ^= 1
    atomic.replace(shards.shard_path(damaged, shard), bytes(data))
    with pytest.raises(ValueError, match=rf"{shard.blake3}\.shard: found BLAKE3"):
        publish(snapshot.sha256, damaged, str(bucket))
    assert f"shards/{shard.blake3}.shard" not in names(bucket) and unfinished(bucket) == []
    assert not any(name.startswith("snapshots/") for name in names(bucket))


def test_two_that_publish_at_once_do_not_harm_each_other(snapshot, durable, bucket):
    results: list[publishing.Published] = []
    both = [
        threading.Thread(target=lambda: results.append(publish(snapshot.sha256, durable, str(bucket))))
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(results) == 2
    assert names(bucket) == expected(snapshot) and unfinished(bucket) == []


@pytest.fixture
def relay(s3: Server) -> Iterator[Relay]:
    """Holds an upload in the middle: a part of the large shard is in the store, and the next is not."""
    with relayed(s3, bytes_to_pass=PART + PART // 2) as relay:
        yield relay


@pytest.fixture
def upload(snapshot, durable, bucket, relay: Relay, marked: Marked) -> Iterator[subprocess.Popen[str]]:
    """A publishing in a process of its own, which the relay holds."""
    command = [
        sys.executable,
        "-m",
        "slipway.cli",
        "data",
        "replicate",
        "--json",
        snapshot.sha256,
        "--from",
        str(durable),
        "--to",
        str(bucket),
    ]
    environment = {**os.environ, "AWS_ENDPOINT_URL": relay.endpoint}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as upload:
        relay.until_it_holds()
        assert unfinished(bucket)
        yield upload


def test_a_publishing_killed_in_the_middle_is_finished_by_the_next(snapshot, durable, bucket, upload):
    upload.kill()
    upload.wait()
    assert not any(name.startswith("snapshots/") for name in names(bucket))
    finished = publish(snapshot.sha256, durable, str(bucket))
    assert (finished.shards, finished.uploaded_bytes >= 4 * LARGE_TOKENS) == (6, True)
    assert names(bucket) == expected(snapshot) and unfinished(bucket) == []


def test_a_store_that_stops_in_the_middle_of_an_upload_only_delays_it(snapshot, bucket, s3, relay, upload):
    with s3.frozen():
        relay.release()
        with pytest.raises(subprocess.TimeoutExpired):
            upload.wait(timeout=1)
    out, _ = upload.communicate(timeout=PATIENCE_SECONDS)
    assert upload.returncode == 0 and json.loads(out)["uploaded_shards"] == 6
    assert names(bucket) == expected(snapshot) and unfinished(bucket) == []


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("AWS_SECRET_ACCESS_KEY", "a-wrong-one", "access denied"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "no answer (EndpointConnectionError)"),
    ],
)
def test_a_store_that_cannot_be_used_gives_one_line(snapshot, durable, bucket, variable, value, message):
    imports = "import sys; from slipway.trainer.base import patience; from slipway.cli.main import main"
    program = f"{imports}; patience.SECONDS = 0.3; sys.exit(main())"
    command = [
        sys.executable,
        "-c",
        program,
        "data",
        "replicate",
        snapshot.sha256,
        "--from",
        str(durable),
        "--to",
        str(bucket),
    ]
    failed = subprocess.run(command, env={**os.environ, variable: value}, capture_output=True, text=True)
    assert failed.returncode == 1
    [line] = [line for line in failed.stderr.splitlines() if not line.startswith("replicating ")]  # progress beyond 2 s
    assert line.startswith(f"slipway: {bucket}/") and message in line
    assert "a-wrong-one" not in failed.stderr
