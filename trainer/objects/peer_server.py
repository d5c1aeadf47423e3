"""The server process of a node: other nodes fetch its shards and checkpoints from it (`trainer.staging.server`)."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path


class PeerServer:
    """The server of this node's files, a process that ends with the rank that started it."""

    def __init__(self, nvme: Path) -> None:
        """Raises ValueError when it does not start."""
        command = [sys.executable, "-m", "trainer.staging.server", "--nvme", str(nvme), "--host", _address()]
        self._process = subprocess.Popen([*command, "--parent", str(os.getpid())], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise ValueError(
                f"the server of files on node {os.environ.get('SLIPWAY_NODE', 'local')} did not start; "
                "see its message above"
            )
        self.url = str(json.loads(said)["url"])

    def close(self) -> None:
        """End it."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def _address() -> str:
    """The address of this machine by which the other nodes reach it: that of the way to the ranks' rendezvous."""
    meeting = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        family, kind, protocol, _, there = socket.getaddrinfo(meeting, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(there)  # no packet is sent
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"
