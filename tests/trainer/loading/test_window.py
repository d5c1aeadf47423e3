"""A window that moves ahead of the steps: the same batches, in the room of a few shards, from peers that may lie."""

import http.server
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from slipway.trainer.base.progress import CopyProgress
from slipway.trainer.data import shards
from slipway.trainer.data.sequences import Sequences
from slipway.trainer.loading import sources as sourcing
from slipway.trainer.loading.batches import Batches
from slipway.trainer.loading.order import Order
from slipway.trainer.loading.sources import Sources
from slipway.trainer.loading.window import DataCourse, ShardWindow
from slipway.trainer.objects import peer
from slipway.trainer.objects.origin import Origin
from slipway.trainer.objects.origins import Folder, origin
from slipway.trainer.staging import leases, parts
from tests.conftest import until
from tests.trainer.counting import snapshot_of
from tests.trainer.peer_process import peer_process
from tests.trainer.staging.folders import flip_a_bit

SHARDS, STEPS, SIZE, LENGTH = 24, 120, 3, 8


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    return tmp_path / "durable"


@pytest.fixture
def nvme(tmp_path: Path) -> Path:
    return tmp_path / "nvme"


@pytest.fixture
def snapshot(durable: Path) -> shards.TextSnapshot:
    snapshot = snapshot_of(durable, *(100 + 7 * number for number in range(SHARDS)))
    shards.write_manifest(durable, snapshot)
    return snapshot


@pytest.fixture
def course(durable: Path, snapshot: shards.TextSnapshot) -> DataCourse:
    """The course of a training that shuffles two shards together, through the data more than once."""
    sequences = Sequences(durable, snapshot, "train", LENGTH)
    assert 2 * len(sequences) > STEPS * SIZE
    return DataCourse(Order(sequences.sizes, 1, 2), sequences.shards, SIZE, STEPS)


def staged(tier: Path) -> set[str]:
    return {path.stem for path in (tier / "shards").glob("*.shard")}


def window_of(course: DataCourse, nvme: Path, sources: Sources) -> ShardWindow:
    return ShardWindow(course, (), course.most_at_once(), sources, nvme)


def only(tier: Path) -> Sources:
    """The durable tier alone."""
    return Sources("node-0", {}, {}, [Folder(tier)])


def started(window: ShardWindow, nvme: Path, snapshot: shards.TextSnapshot, step: int = 0) -> ShardWindow:
    window.hold(leases.hold(nvme, snapshot.sha256))
    window.start(step)
    return window


def test_every_batch_is_the_one_of_a_staged_snapshot_while_few_shards_are_there(
    course: DataCourse, snapshot: shards.TextSnapshot, durable: Path, nvme: Path
) -> None:
    window = started(window_of(course, nvme, only(durable)), nvme, snapshot)
    moving_sequences, resident_sequences = (
        Sequences(tier, snapshot, "train", LENGTH, bring) for tier, bring in ((nvme, window.bring), (durable, None))
    )
    close = lambda step: moving_sequences.opened.close_others(course.at_once(step))  # noqa: E731
    moving = Batches(moving_sequences, course.order, SIZE, slice(0, SIZE), STEPS, begins=close)
    resting = Batches(resident_sequences, course.order, SIZE, slice(0, SIZE), STEPS)
    for step in range(STEPS):
        window.move(step)
        assert np.array_equal(moving.windows(step), resting.windows(step))
    last = {course.files[number].blake3 for number in course.at_once(STEPS - 1)}
    until(lambda: staged(nvme) <= last, "the window to have left all but the last block behind")
    window.release()


def test_the_blocks_of_the_order_are_where_its_samples_lie(course: DataCourse) -> None:
    order = course.order
    sizes = np.array([(shard.tokens - 1) // LENGTH for shard in course.files])  # type: ignore[attr-defined]
    ends = np.cumsum(sizes)
    at = 5
    for block in order.blocks(5, 2 * len(order)):
        assert block.begin <= at < block.end
        numbers = order.samples(at, block.end - at).astype(np.int64)
        assert set(np.searchsorted(ends, numbers, "right").tolist()) <= set(block.shards)
        at = block.end
    assert at >= 2 * len(order)


def test_what_the_steps_in_progress_read_never_exceeds_the_bound(course: DataCourse) -> None:
    for step in range(STEPS):
        bytes_at_once = sum(course.files[number].bytes for number in course.at_once(step))
        assert bytes_at_once <= course.most_at_once()


def test_what_another_training_reads_stays_when_the_window_moves_on(
    course: DataCourse, snapshot: shards.TextSnapshot, durable: Path, nvme: Path
) -> None:
    window = window_of(course, nvme, only(durable))
    first = course.files[course.order.shards(0)[0]]
    with_it = leases.ShardLease(nvme, [first.blake3])
    window.bring(first)
    started(window, nvme, snapshot, STEPS - 1)
    last = course.files[next(iter(course.at_once(STEPS - 1)))]
    until(lambda: last.blake3 in staged(nvme), "the last block")
    assert first.blake3 in staged(nvme)
    with_it.release()
    window.release()


class _Liar(http.server.BaseHTTPRequestHandler):
    """A peer that answers every request with as many other bytes."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "416")
        self.end_headers()
        self.wfile.write(b"x" * 416)

    def log_message(self, *_: object) -> None:
        pass


class _Dribbler(_Liar):
    """A peer that sends a byte now and then, and so never lets a connection time out."""

    over = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "416")
        self.end_headers()
        while not self.over.wait(0.05):
            self.wfile.write(b"x")
            self.wfile.flush()


@pytest.fixture
def serving() -> Iterator[Callable[[type[_Liar]], Origin]]:
    """Serves as a peer of the given kind; the peer's origin."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve(kind: type[_Liar]) -> Origin:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return origin(f"http://127.0.0.1:{server.server_port}")

    yield serve
    _Dribbler.over.set()
    for server in servers:
        server.shutdown()
        server.server_close()
    _Dribbler.over.clear()


@pytest.mark.parametrize(
    ("kind", "named"), [(_Liar, "is not asked again: .*BLAKE3"), (_Dribbler, "rests for 60 s: .*stalls: .* bytes in")]
)
def test_a_peer_that_lies_or_stalls_is_named_and_the_durable_tier_asked(
    course: DataCourse,
    durable: Path,
    nvme: Path,
    serving: Callable[[type[_Liar]], Origin],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: type[_Liar],
    named: str,
) -> None:
    monkeypatch.setattr(peer, "SECONDS", 0.4)
    bad, (one, other) = serving(kind), course.files[:2]
    sources = Sources("node-0", {"node-1": bad}, {shard.blake3: "node-1" for shard in course.files}, [Folder(durable)])
    window = window_of(course, nvme, sources)
    window.bring(one)
    errors = capsys.readouterr().err
    assert f"the peer {bad} " in errors
    assert re.search(named, errors, re.DOTALL), errors
    window.bring(other)
    assert capsys.readouterr().err == "", "it is not asked for the next shard"
    assert staged(nvme) == {one.blake3, other.blake3}


def test_a_shard_comes_from_the_node_that_keeps_it(
    course: DataCourse, durable: Path, nvme: Path, tmp_path: Path
) -> None:
    shard = course.files[0]
    flip_a_bit(shards.shard_path(durable, shard))
    keeper = tmp_path / "keeper"
    fresh = snapshot_of(keeper, *(100 + 7 * number for number in range(SHARDS)))
    assert fresh.splits["train"].shards[0] == shard
    sources = Sources("node-0", {"node-1": Folder(keeper)}, {shard.blake3: "node-1"}, [Folder(durable)])
    window_of(course, nvme, sources).bring(shard)
    assert staged(nvme) == {shard.blake3}


class _Counted(Folder):
    """A durable tier that counts how often each shard is fetched from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fetched = Counter[str]()

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        self.fetched[name] += 1
        return super().open(name, offset)


def test_a_shard_that_two_nodes_need_at_once_leaves_the_durable_tier_once(
    course: DataCourse,
    snapshot: shards.TextSnapshot,
    durable: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank reads before the windows move: it waits for what the other node keeps, as that promised it."""
    monkeypatch.setattr(sourcing, "STILL_SECONDS", 300.0)
    monkeypatch.setattr(sourcing, "WAIT_SECONDS", 300.0)
    disks, tier = {name: tmp_path / name for name in ("node-0", "node-1")}, _Counted(durable)
    keepers = parts.divide(course.files, dict.fromkeys(disks, 10**9))
    assert keepers is not None
    first = {course.files[number] for number in course.at_once(0)}
    with peer_process(disks["node-0"]) as zero, peer_process(disks["node-1"]) as one:
        peers = {"node-0": origin(zero.url), "node-1": origin(one.url)}
        windows = {
            name: window_of(course, disk, Sources(name, {n: p for n, p in peers.items() if n != name}, keepers, [tier]))
            for name, disk in disks.items()
        }
        for name, window in windows.items():
            window.hold(leases.hold(disks[name], snapshot.sha256))
        reader = threading.Thread(target=lambda: list(map(windows["node-0"].bring, first)))
        reader.start()
        for window in windows.values():
            window.start(0)
        for shard in first:
            windows["node-1"].bring(shard)
        reader.join()
        for window in windows.values():
            window.release()
    digests = {shard.blake3 for shard in first}
    assert all(digests <= staged(disk) for disk in disks.values())
    assert {name: tier.fetched[f"shards/{name}.shard"] for name in digests} == dict.fromkeys(digests, 1)


def test_a_keeper_that_never_has_what_it_promised_is_named_and_waited_for_once(
    course: DataCourse,
    durable: Path,
    nvme: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sourcing, "STILL_SECONDS", 0.2)
    one, other = course.files[:2]
    keepers = {shard.blake3: "node-1" for shard in course.files}
    promised = leases.ShardLease(tmp_path / "idle", [shard.blake3 for shard in course.files])
    with peer_process(tmp_path / "idle") as idle:
        window = window_of(course, nvme, Sources("node-0", {"node-1": origin(idle.url)}, keepers, [Folder(durable)]))
        window.bring(one)
        named = f"the peer {idle.url} is not waited for during 60 s: shards/{one.blake3}.shard: 0 bytes after"
        assert named in capsys.readouterr().err
        monkeypatch.setattr(sourcing, "STILL_SECONDS", 10_000.0)
        monkeypatch.setattr(sourcing, "WAIT_SECONDS", 10_000.0)
        window.bring(other)
    promised.release()
    assert staged(nvme) == {one.blake3, other.blake3}


def test_a_keeper_whose_window_does_not_want_a_shard_is_not_waited_for(
    course: DataCourse, durable: Path, nvme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sourcing, "STILL_SECONDS", 10_000.0)
    monkeypatch.setattr(sourcing, "WAIT_SECONDS", 10_000.0)
    one, other = course.files[:2]
    holds = leases.ShardLease(tmp_path / "elsewhere", [other.blake3])
    with peer_process(tmp_path / "elsewhere") as peered:
        sources = Sources("node-0", {"node-1": origin(peered.url)}, {one.blake3: "node-1"}, [Folder(durable)])
        window_of(course, nvme, sources).bring(one)
    holds.release()
    assert staged(nvme) == {one.blake3}


def test_a_window_says_when_it_is_full_for_the_first_time(
    course: DataCourse, snapshot: shards.TextSnapshot, durable: Path, nvme: Path
) -> None:
    reports: list[CopyProgress] = []
    window = ShardWindow(course, (), course.most_at_once(), only(durable), nvme, reports.append)
    started(window, nvme, snapshot)
    until(lambda: bool(reports), "the window to be full")
    window.release()
    [full] = reports
    assert 0 < full.bytes == full.total_bytes <= course.most_at_once() and full.files == len(staged(nvme))
