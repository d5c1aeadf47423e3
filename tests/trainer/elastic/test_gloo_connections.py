"""Links: the connections of process groups end at once, also where the rank that ends them has run out of something."""

import resource
import socket
import threading
from multiprocessing import get_context

import pytest

from slipway.trainer.elastic import gloo_connections
from slipway.trainer.elastic.gloo_connections import Links

SECONDS = 30.0


def connect(server: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection."""
    client = socket.create_connection(server.getsockname())
    return client, server.accept()[0]


def test_connections_that_came_while_groups_were_made_are_ended_and_no_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        earlier, earlier_peer = connect(server)
        group_links = Links()
        with group_links.opening():
            link, link_peer = connect(server)
        group_links.shut_down()
        assert link_peer.recv(1) == b"", "the other rank sees that it has ended"
        earlier.sendall(b"x")
        assert earlier_peer.recv(1) == b"x"
        for connection in (earlier, earlier_peer, link, link_peer):
            connection.close()


def end_without_descriptors() -> None:
    """Runs in a process of its own, whose limit of descriptors no other test must meet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        group_links = Links()
        with group_links.opening():
            link, peer = connect(server)
        limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard_limit))
        ending = threading.Thread(target=group_links.shut_down)
        ending.start()
        ending.join(5 * gloo_connections.RETRY_SECONDS)
        assert ending.is_alive(), "it waits for a descriptor"
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
        ending.join(SECONDS)
        peer.settimeout(SECONDS)
        assert peer.recv(1) == b""
        link.close()


def test_a_rank_without_a_free_descriptor_ends_its_connections_when_it_has_one() -> None:
    process = get_context("spawn").Process(target=end_without_descriptors)
    process.start()
    process.join(SECONDS)
    assert process.exitcode == 0


def test_a_shortage_that_lasts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out() -> set[str]:
        raise MemoryError("no memory")

    monkeypatch.setattr(gloo_connections, "sockets", run_out)
    monkeypatch.setattr(gloo_connections, "SHORTAGE_SECONDS", 0.0)
    with pytest.raises(MemoryError):
        Links().shut_down()
