"""Staging fit: a job whose nodes cannot hold its snapshot is refused, with the sizes, before it is submitted."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings import staging_fit
from slipway.resources.trainings.decision import Action
from slipway.trainer.config import profiles, resolved
from slipway.trainer.script import FORMAT as SCRIPT
from tests import disks
from tests.assets.datasets.snapshots import make_snapshot
from tests.resources.trainings.lab import BRIEF, BY, Lab, numbers

H200 = profiles.named("h200-32")
NODES = ("node-0", "node-1")


def job(folder: Path, format: str = resolved.FORMAT, snapshot: str = "", **placement: Any) -> Job:
    """Of a snapshot of four shards with 2,016 bytes each, on two nodes."""
    tiers = {"store": str(folder), "durable": str(folder), "nvme": str(folder / "{node}")}
    named = {"format": format, "training": "tiny", "snapshot": snapshot or make_snapshot(folder).sha256}
    sections = numbers(20) | {"run": {"steps": 20, "shuffle_shards": 1}} if format == resolved.FORMAT else {}
    config = {**named, **sections, "placement": {**tiers, **placement}}
    return Job(name="tiny-i1", command=(), config=config, nodes=NODES, size=2, least=1, ranks_per_node=2)


@pytest.mark.parametrize(
    ("staging", "kilobytes", "message"),
    [
        (
            "auto",
            1.5,
            "found auto with 1.5 kB of room on the NVMe of node-0, expected .*the largest shard alone has 2.0",
        ),
        ("whole", 7, "found whole, but the snapshot has 8.1 kB, and the least room is 7.0 kB .NVMe of node-0."),
        ("auto", 7, ""),
    ],
)
def test_a_recipe_that_allows_too_little_room_is_refused_with_the_sizes(
    tmp_path: Path, staging: str, kilobytes: float, message: str
) -> None:
    asked = job(tmp_path, staging=staging, nvme_gigabytes=kilobytes / 1e6)
    if message:
        with pytest.raises(ValueError, match=message):
            staging_fit.check(asked, tmp_path, None, sees_nodes=False)
    else:
        staging_fit.check(asked, tmp_path, None, sees_nodes=False)


def test_the_clusters_nvme_counts_where_the_recipe_says_nothing(tmp_path: Path) -> None:
    tiny = dataclasses.replace(H200, nvme_bytes=1500)
    staging_fit.check(job(tmp_path), tmp_path, H200, sees_nodes=False)
    with pytest.raises(ValueError, match=r"with 1\.4 kB of room on the NVMe of node-0, expected"):
        staging_fit.check(job(tmp_path), tmp_path, tiny, sees_nodes=False)


def test_a_disk_that_is_seen_counts_whole_as_others_may_leave_it(tmp_path: Path) -> None:
    """It is full now, of what is not of this training."""
    (tmp_path / "node-0").mkdir()
    with disks.mounted(tmp_path / "node-0", "size=64k"):
        (tmp_path / "node-0" / "other").write_bytes(bytes(60_000))
        staging_fit.check(job(tmp_path, staging="whole"), tmp_path, None, sees_nodes=True)


@pytest.mark.parametrize(
    ("staging", "kilobytes", "message"),
    [
        ("auto", 3, "found auto with 3.0 kB of room"),
        ("whole", 7, "found whole, but the snapshot has 8.1 kB"),
    ],
)
def test_a_script_needs_a_shard_for_each_rank_of_a_node(
    tmp_path: Path, staging: str, kilobytes: float, message: str
) -> None:
    asked = job(tmp_path, SCRIPT, staging=staging, nvme_gigabytes=kilobytes / 1e6)
    with pytest.raises(ValueError, match=message):
        staging_fit.check(asked, tmp_path, None, sees_nodes=False)
    staging_fit.check(job(tmp_path, SCRIPT, nvme_gigabytes=5e-6), tmp_path, None, sees_nodes=False)


def test_nothing_is_refused_where_no_size_is_known_or_the_manifest_cannot_be_read(tmp_path: Path) -> None:
    staging_fit.check(job(tmp_path, snapshot="0" * 64, nvme_gigabytes=1e-9), tmp_path, None, sees_nodes=False)
    staging_fit.check(job(tmp_path, staging="whole"), tmp_path, None, sees_nodes=False)


def test_the_control_refuses_it_and_submits_nothing(lab: Lab) -> None:
    store = lab.wanted(numbers(BRIEF))
    store.change_terms(dataclasses.replace(store.terms(), nvme_gigabytes=1e-6), BY)
    control = lab.control()
    assert [control.advance(store, BY) for _ in range(2)] == [Action.CLAIM, Action.SUBMIT]
    ended = store.exit()
    assert ended is not None and ended.outcome == "failed"
    assert "the snapshot has 8.1 kB, and the least room is 1.0 kB (NVMe of node-0)" in ended.reason
    assert not list(lab.launcher.folder.glob("*"))
