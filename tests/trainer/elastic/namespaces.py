"""Networks for a test: a namespace of the kernel for each node, joined by a bridge whose cables can be pulled.

What is sent over a cable that is pulled is lost without a word, as behind a switch that has failed. It takes root, and
`ip` (iproute2).
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest


class Networks:
    """The network of each node, and that of the test at the bridge, where the rendezvous store answers."""

    def __init__(self, names: Sequence[str]) -> None:
        number = uuid.uuid4()
        self._own, self._names = f"sw{number.hex[:6]}", list(names)
        # Another test at the same time, or one that was killed, has another network.
        self._prefix = f"10.{128 + number.bytes[0] % 100}.{number.bytes[1]}"
        self.host = f"{self._prefix}.1"

    def address(self, name: str) -> str:
        return f"{self._prefix}.{self._names.index(name) + 2}"

    def inside(self, name: str) -> list[str]:
        """The words before a command that run it in a node's network."""
        return ["ip", "netns", "exec", self._space(name)]

    def cut(self, name: str) -> None:
        """Pull the cable of a node."""
        _ip("link", "set", self._cable(name), "down")

    def mend(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "up")

    def make(self) -> None:
        _ip("link", "add", self._own, "type", "bridge")
        _ip("address", "add", f"{self.host}/24", "dev", self._own)
        _ip("link", "set", self._own, "up")
        for name in self._names:
            space, cable = self._space(name), self._cable(name)
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", self._own, "up")
            _ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Take away what there is of it."""
        for name in self._names:
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._own], capture_output=True, check=False)

    def _space(self, name: str) -> str:
        return f"{self._own}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._own}{name}"


@contextmanager
def networks(names: Sequence[str]) -> Iterator[Networks]:
    """The networks of these nodes; skips the test on a machine that does not let it make any."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("a network namespace takes root and iproute2")
    node_networks = Networks(names)
    try:
        try:
            node_networks.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no network namespaces: {error.stderr}")
        yield node_networks
    finally:
        node_networks.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
