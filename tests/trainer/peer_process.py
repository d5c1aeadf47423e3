"""A real peer: its server as a process of its own."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PeerProcess:
    """A peer's server over a folder; started again, it has the same port."""

    def __init__(self, tier: Path) -> None:
        self._tier, self.port = tier, 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "slipway.trainer.staging.server",
            "--nvme",
            str(self._tier),
            "--port",
            str(self.port),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(json.loads(self._process.stdout.readline())["url"].rpartition(":")[2])

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def status(self, method: str, name: str) -> int:
        """The status of one request, its path sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, f"/{name}")
        try:
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def peer_process(tier: Path) -> Iterator[PeerProcess]:
    process = PeerProcess(tier)
    try:
        yield process
    finally:
        process.signal(signal.SIGCONT)
        process.kill()
