"""Datasets larger than a node's disk: real trainings on real small disks read the same samples."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from slipway.resources.trainings.metric_series import read_sample
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests import disks
from tests.conftest import until
from tests.trainer import noise
from tests.trainer.conftest import Training, wait
from tests.trainer.staging.folders import flip_a_bit

MEGABYTE = 10**6
Disks = Callable[[Training, int, str], None]


@pytest.fixture
def mount() -> Iterator[Disks]:
    """Gives the nodes of a training disks of their own, of a size such as 24m."""
    with ExitStack() as mounted:

        def disks_of(training: Training, count: int, size: str) -> None:
            for number in range(count):
                folder = training.folder / (f"nvme-node-{number}" if count > 1 else "nvme-local")
                mounted.enter_context(disks.mounted(folder, f"size={size}"))

        yield disks_of


def noisy(folder: Path, mark: str, shards: int, steps: int, **placement: object) -> Training:
    run = {"steps": steps, "shuffle_shards": 2}
    return Training(folder, mark, noise.maker(shards), run=run, placement=placement, **noise.SECTIONS)


def bytes_of(training: Training) -> int:
    return sum(shard.bytes for shard in training.snapshot.shards())


@pytest.mark.slow
def test_a_dataset_three_times_a_nodes_disk_is_trained_on_in_the_order_of_a_large_disk(
    tmp_path: Path, mark: str, mount: Disks
) -> None:
    """Over more than an epoch, so that shards leave the disk and come back."""
    large = noisy(tmp_path / "large", mark, 27, 80, staging="whole").completed()
    small = noisy(tmp_path / "small", mark, 27, 80)
    mount(small, 1, "4600k")
    assert bytes_of(small) > 3 * 4600 * 1000 * 0.98
    small.completed()
    [event] = small.events("staging")
    assert event["kind"] == "window"
    staged = small.events("staged")
    assert staged[-1]["node"] == "local" and staged[-1]["bytes"] <= staged[-1]["total_bytes"] < 4600 * 1000
    assert read_sample(small.store).staging.startswith("window: the snapshot has 13.8 MB")
    assert small.losses() == large.losses()
    assert small.tensors(80) == large.tensors(80)


@pytest.mark.slow
def test_a_disk_smaller_than_what_the_steps_read_is_refused_with_the_sizes(tmp_path: Path, mark: str) -> None:
    training = noisy(tmp_path, mark, 9, 5, nvme_gigabytes=0.0004)
    ended = training.run()
    assert ended.code != 0
    for part in ("400.0 kB of room on the NVMe of local", "the largest shard alone has 491.7 kB", "nvme_gigabytes"):
        assert part in ended.err
    assert not list((training.nvme / "shards").glob("*"))


def node(training: Training, number: int, of: int, port: int, incarnation: int) -> "subprocess.Popen[str]":
    """An agent with one rank, as a node of its own."""
    return training.spawn(
        *("torch.distributed.run", f"--nnodes={of}", "--nproc-per-node=1", "--local-addr=127.0.0.1"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={incarnation}"),
        *("--monitor-interval=0.2", "--max-restarts=0", "-m", "slipway.trainer", str(training.config)),
        SLIPWAY_NODE=f"node-{number}",
        SLIPWAY_INCARNATION=str(incarnation),
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )


def nodes(training: Training, count: int, incarnation: int) -> "list[subprocess.Popen[str]]":
    names = tuple(f"node-{number}" for number in range(count))
    assert fence.claim(training.store, Token(incarnation), nodes=names, cause="a test", by="a test")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return [node(training, number, count, port, incarnation) for number in range(count)]


@pytest.mark.nightly
def test_four_nodes_of_24_mb_train_on_64_mb_and_go_on_when_one_is_lost(tmp_path: Path, mark: str, mount: Disks) -> None:
    """Four nodes together have room for all, so they divide it; three have not, so a window moves on each."""
    training = noisy(tmp_path / "four", mark, 130, 400)
    assert bytes_of(training) > 64 * MEGABYTE
    mount(training, 4, "24m")
    four = nodes(training, 4, 1)
    until(lambda: training.commits(), "the first checkpoint of four nodes", 240)
    lost = four.pop()
    lost.kill()
    wait(lost)
    for node_process in four:
        assert wait(node_process).code != 0
    for node_process in nodes(training, 3, 2):
        ended = wait(node_process)
        assert ended.code == 0, ended.err
    assert [event["kind"] for event in training.events("staging")] == ["parts", "window"]
    assert {event["node"] for event in training.events("staged")} >= {"node-0", "node-1", "node-2"}
    alone = noisy(tmp_path / "alone", mark, 130, 400).completed()
    for (step, loss), (same, expected) in zip(training.losses(), alone.losses(), strict=True):
        assert step == same and loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_shard_that_the_durable_tier_has_damaged_comes_from_a_configured_origin(tmp_path: Path, mark: str) -> None:
    """A replica beside the durable tier; the address of other nodes stands for none here, and is left out."""
    replica = tmp_path / "replica"
    training = noisy(tmp_path / "one", mark, 6, 10, staging="window", origins=[str(replica), "/mnt/{node}"])
    shutil.copytree(training.durable / "shards", replica / "shards")
    for damaged in (training.durable / "shards").glob("*"):
        flip_a_bit(damaged)
    training.completed()
    assert [event["kind"] for event in training.events("staging")] == ["window"]
