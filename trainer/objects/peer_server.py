"""The server process of a node: other nodes fetch its shards and checkpoints from it
(`slipway.trainer.staging.server`)."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from slipway.trainer.record.causes import UnfitNode


class PeerServer:
    """The server of this node's files, a process that ends with the rank that started it.

    The rank itself listens, so early connections are queued and need not wait for the process to start.
    """

    def __init__(self, nvme: Path) -> None:
        """Raises UnfitNode when this node cannot listen."""
        host = _address()
        try:
            listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            node = os.environ.get("SLIPWAY_NODE", "local")
            raise UnfitNode(f"node {node} cannot serve its files at {host}: {error.strerror}", node) from error
        with listener:
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
            command = [sys.executable, "-P", "-m", "slipway.trainer.staging.server", "--nvme", str(nvme)]
            options = ["--listener", str(listener.fileno()), "--parent", str(os.getpid())]
            self._process = subprocess.Popen([*command, *options], pass_fds=[listener.fileno()])

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def _address() -> str:
    """The address of this machine by which the other nodes reach it: that of the way to the ranks' rendezvous."""
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        family, kind, protocol, _, there = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(there)  # no packet is sent
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"
