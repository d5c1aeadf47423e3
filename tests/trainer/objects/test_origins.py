"""Origins: a folder, a peer node and an object store give the same bytes, and say in words what they cannot."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slipway.trainer.base import patience
from slipway.trainer.objects import bucket as objects
from slipway.trainer.objects import peer
from slipway.trainer.objects.bucket import Bucket
from slipway.trainer.objects.origin import Missing, Origin, Unreachable
from slipway.trainer.objects.origins import origin
from tests.conftest import PATIENCE_SECONDS, Marked
from tests.s3 import Server, point_at, put, served
from tests.trainer.peer_process import PeerProcess, peer_process

DATA = os.urandom(3_000_000)
SHARD, ABSENT, MANIFEST = f"shards/{'a' * 64}.shard", f"shards/{'b' * 64}.shard", f"snapshots/{'c' * 64}.json"
OUTSIDE = [
    "shards/../secret",
    "../secret",
    "/etc/passwd",
    "secret",
    "shards/",
    "",
    f"shards/{'A' * 64}.shard",
    SHARD + "\n",
]


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    for name in (SHARD, MANIFEST, "secret"):
        path = tmp_path / "tier" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA)
    return tmp_path / "tier"


@pytest.fixture
def served_tier(tier: Path, marked: Marked) -> Iterator[PeerProcess]:
    with peer_process(tier) as process:
        yield process


@pytest.fixture
def bucket(s3: Server) -> Bucket:
    return filled(s3)


def filled(server: Server) -> Bucket:
    bucket = server.new_bucket()
    for name in (SHARD, MANIFEST):
        put(bucket, name, DATA)
    return bucket


@pytest.fixture(params=["folder", "peer", "seaweedfs", pytest.param("gateway", marks=pytest.mark.nightly)])
def any_origin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Origin:
    """The same files behind each kind of origin."""

    def store() -> Bucket:
        server: Server = request.getfixturevalue(request.param)
        point_at(server, monkeypatch)
        return filled(server)

    where: Callable[[], object] = {
        "folder": lambda: request.getfixturevalue("tier"),
        "peer": lambda: request.getfixturevalue("served_tier").url,
    }.get(request.param, store)
    return origin(str(where()))


def test_a_file_is_read_from_any_offset(any_origin):
    for name, offset in ((SHARD, 0), (SHARD, 1), (MANIFEST, 2_999_999)):
        with any_origin.open(name, offset) as stream:
            assert stream.read() == DATA[offset:]


def test_a_file_is_read_into_a_buffer_of_any_size(any_origin):
    buffer, content = bytearray(1_234_567), b""
    with any_origin.open(SHARD) as stream:
        while count := stream.readinto(buffer):
            content += buffer[:count]
    assert content == DATA


def test_a_missing_file_is_named(any_origin):
    with pytest.raises(Missing, match=rf"{ABSENT}: missing"):
        any_origin.open(ABSENT)


@pytest.mark.parametrize("where", ["folder", "s3://a-bucket/a/prefix", "http://127.0.0.1:1"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_other_names_are_refused_before_any_request(where, name):
    with pytest.raises(ValueError, match=r"expected shards/<64 hex digits>\.shard or snapshots/"):
        origin(where).open(name)


def test_an_unknown_scheme_is_one_clear_error():
    with pytest.raises(ValueError, match=r"ftp://…: expected a folder, s3://bucket/prefix, or http\(s\)://node:port"):
        origin("ftp://user:secret@host/")


def test_the_libraries_of_a_network_are_loaded_only_for_origins_on_one():
    program = "import sys, slipway.trainer.data.shards; from slipway.trainer.objects import origins; "
    program += "origins.origin('.'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"s3fs", "fsspec", "botocore", "aiohttp", "starlette", "uvicorn", "http.client"} & set(loaded) == set()


# Peers


@pytest.mark.parametrize("name", ["secret", "shards/../secret", "%2e%2e/secret", "shards/", "shards", "", ABSENT])
def test_a_peer_serves_nothing_else(served_tier, name):
    assert served_tier.status("GET", name) == 404


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_peer_is_read_only(served_tier, tier, method):
    assert served_tier.status(method, SHARD) == 405
    assert (tier / SHARD).read_bytes() == DATA


def test_a_peer_follows_no_link_out_of_its_folder(served_tier, tier):
    (tier / ABSENT).symlink_to(tier / "secret")
    assert served_tier.status("GET", ABSENT) == 404


def test_a_port_that_is_taken_is_one_clear_error(served_tier, tier):
    command = [
        sys.executable,
        "-m",
        "slipway.trainer.staging.server",
        "--nvme",
        str(tier),
        "--port",
        str(served_tier.port),
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"peer: 127.0.0.1:{served_tier.port}: found it unusable (Address already in use), expected a free one\n"
    )


def test_a_peer_killed_in_the_middle_and_back_again_gives_every_byte_once(tier, marked):
    large = os.urandom(64_000_000)
    (tier / SHARD).write_bytes(large)
    with peer_process(tier) as first, closing(origin(first.url).open(SHARD)) as stream:
        begun = stream.read(1_000_000)
        first.kill()
        back = threading.Timer(0.5, first.start)
        back.start()
        assert begun + b"".join(iter(lambda: stream.read(1_000_000), b"")) == large
        back.join()


def test_a_peer_killed_for_good_is_unreachable(tier, marked, monkeypatch):
    monkeypatch.setattr(peer, "PATIENCE_SECONDS", 0.3)
    (tier / SHARD).write_bytes(bytes(64_000_000))
    with peer_process(tier) as process, closing(origin(process.url).open(SHARD)) as stream:
        stream.read(1000)
        process.kill()
        with pytest.raises(Unreachable, match=rf"{SHARD}: .*Connection refused"):
            stream.read()
    with pytest.raises(Unreachable, match=rf"{SHARD}: .*Connection refused"):
        origin(process.url).open(SHARD)


def test_a_peer_that_sends_nothing_is_unreachable(served_tier, monkeypatch):
    monkeypatch.setattr(peer, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(peer, "SECONDS", 0.3)
    served_tier.signal(signal.SIGSTOP)
    with pytest.raises(Unreachable, match=rf"{SHARD}: timed out"):
        origin(served_tier.url).open(SHARD)


def test_an_offset_past_the_end_is_an_error(served_tier):
    with pytest.raises(Unreachable, match="found fewer than 3000002 bytes"):
        origin(served_tier.url).open(SHARD, 3_000_001)


# Object stores


def test_a_missing_bucket_is_one_clear_error(s3):
    with pytest.raises(Unreachable, match=r"s3://no-such-bucket: found no such bucket"):
        origin("s3://no-such-bucket").open(SHARD)


def test_wrong_credentials_are_one_clear_error_at_once(bucket, monkeypatch):
    monkeypatch.setattr(patience, "SECONDS", 1e9)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-one")
    with pytest.raises(Unreachable, match=r"access denied \(403\): expected credentials in AWS_ACCESS_KEY_ID") as error:
        origin(str(bucket)).open(SHARD)
    assert "a-wrong-one" not in str(error.value)


@pytest.mark.slow
def test_a_store_killed_in_the_middle_and_back_again_gives_every_byte_once(tmp_path, monkeypatch, s3):
    monkeypatch.setattr(objects, "READ_AHEAD", 500_000)
    monkeypatch.setattr(patience, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(patience, "SECONDS", PATIENCE_SECONDS)
    with served(tmp_path) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        bucket = server.new_bucket()
        put(bucket, SHARD, DATA)
        with origin(str(bucket)).open(SHARD) as stream:
            begun = stream.read(1000)
            server.kill()
            back = threading.Timer(0.5, server.start)
            back.start()
            assert begun + stream.read() == DATA
            back.join()
