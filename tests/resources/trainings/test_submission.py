"""A job that cannot fit the memory or the disks of its nodes is refused before it is submitted."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings import submission
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.job import with_fabric
from slipway.trainer.config import profiles, resolved
from slipway.trainer.script import FORMAT as SCRIPT
from tests import disks
from tests.assets.datasets.snapshots import make_snapshot
from tests.resources.trainings.lab import BRIEF, BY, Lab, numbers

TINY = dataclasses.replace(profiles.named("h200-32"), card="A100", pod_bytes=2**20)
"""Nodes whose pods have less memory than any process."""


def job_of_model(folder: Path, nodes: int = 1) -> Job:
    snapshot = make_snapshot(folder).sha256
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    named = {"format": resolved.FORMAT, "training": "tiny", "snapshot": snapshot, "placement": placement}
    return Job(
        name="tiny-i1",
        command=(),
        config={**named, **numbers(20)},
        nodes=("a",),
        size=nodes,
        least=1,
        ranks_per_node=1,
    )


@pytest.mark.slow
def test_a_job_that_cannot_fit_is_refused_with_the_numbers_and_one_that_fits_is_not(tmp_path: Path):
    submission.check_layout(job_of_model(tmp_path), tmp_path, profiles.named("h200-32"))
    assert list((tmp_path / submission.PLANS_FOLDER).iterdir()), "its measure is kept for the next incarnation"
    with pytest.raises(
        ValueError, match=r"^the training does not fit 1 nodes of h200-32: a node's processes need .* GiB"
    ):
        submission.check_layout(job_of_model(tmp_path), tmp_path, TINY)


@pytest.mark.slow
def test_an_embedded_training_that_cannot_fit_this_machine_is_refused_before_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """2^17 x 2^17 weights, a plan of which takes no memory."""
    monkeypatch.setattr(
        submission, "MEASURE_SECONDS", 500.0
    )  # a plan that a busy machine has not made in time refuses nothing
    job = job_of_model(tmp_path)
    size = {"layers": 2, "width": 2**17, "heads": 8, "kv_heads": 8, "hidden": 2**17}
    model: Any = job.config["model"]
    huge = dataclasses.replace(job, config={**job.config, "model": {**model, **size}})
    with pytest.raises(
        ValueError, match=r"^the training does not fit 1 ranks on this machine: a rank needs .* GiB, and has "
    ):
        submission.check_layout_here(huge, tmp_path)


def test_a_small_embedded_training_is_not_kept_waiting_for_a_plan(tmp_path: Path):
    submission.check_layout_here(job_of_model(tmp_path), tmp_path)
    assert not (tmp_path / submission.PLANS_FOLDER).exists()


def test_more_nodes_than_the_cluster_has_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="found 256, expected 32 at most"):
        submission.check_layout(job_of_model(tmp_path, nodes=256), tmp_path, profiles.named("h200-32"))


def test_a_training_has_the_clusters_network_settings_where_its_recipe_names_none():
    assert with_fabric({"hardware": {"profile": "none"}}, "h200-infiniband")["hardware"] == {
        "profile": "h200-infiniband"
    }
    assert with_fabric({"hardware": {"profile": "ethernet"}}, "h200-infiniband")["hardware"] == {"profile": "ethernet"}


H200 = profiles.named("h200-32")


NODES = ("node-0", "node-1")


def job_of_snapshot(folder: Path, format: str = resolved.FORMAT, snapshot: str = "", **placement: Any) -> Job:
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
    job = job_of_snapshot(tmp_path, staging=staging, nvme_gigabytes=kilobytes / 1e6)
    if message:
        with pytest.raises(ValueError, match=message):
            submission.check_staging(job, tmp_path, None, sees_nodes=False)
    else:
        submission.check_staging(job, tmp_path, None, sees_nodes=False)


def test_the_clusters_nvme_counts_where_the_recipe_says_nothing(tmp_path: Path) -> None:
    tiny = dataclasses.replace(H200, nvme_bytes=1500)
    submission.check_staging(job_of_snapshot(tmp_path), tmp_path, H200, sees_nodes=False)
    with pytest.raises(ValueError, match=r"with 1\.4 kB of room on the NVMe of node-0, expected"):
        submission.check_staging(job_of_snapshot(tmp_path), tmp_path, tiny, sees_nodes=False)


def test_a_disk_that_is_seen_counts_whole_as_others_may_leave_it(tmp_path: Path) -> None:
    """It is full now, of what is not of this training."""
    (tmp_path / "node-0").mkdir()
    with disks.mounted(tmp_path / "node-0", "size=64k"):
        (tmp_path / "node-0" / "other").write_bytes(bytes(60_000))
        submission.check_staging(job_of_snapshot(tmp_path, staging="whole"), tmp_path, None, sees_nodes=True)


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
    job = job_of_snapshot(tmp_path, SCRIPT, staging=staging, nvme_gigabytes=kilobytes / 1e6)
    with pytest.raises(ValueError, match=message):
        submission.check_staging(job, tmp_path, None, sees_nodes=False)
    submission.check_staging(job_of_snapshot(tmp_path, SCRIPT, nvme_gigabytes=5e-6), tmp_path, None, sees_nodes=False)


def test_nothing_is_refused_where_no_size_is_known_or_the_manifest_cannot_be_read(tmp_path: Path) -> None:
    submission.check_staging(
        job_of_snapshot(tmp_path, snapshot="0" * 64, nvme_gigabytes=1e-9), tmp_path, None, sees_nodes=False
    )
    submission.check_staging(job_of_snapshot(tmp_path, staging="whole"), tmp_path, None, sees_nodes=False)


def test_the_control_refuses_it_and_submits_nothing(lab: Lab) -> None:
    store = lab.start_training(numbers(BRIEF))
    store.change_run_policy(dataclasses.replace(store.run_policy(), nvme_gigabytes=1e-6), BY)
    control = lab.control()
    assert [control.advance(store, BY) for _ in range(2)] == [Action.CLAIM, Action.SUBMIT]
    ended = store.exit()
    assert ended is not None and ended.outcome == "failed"
    assert "the snapshot has 8.1 kB, and the least room is 1.0 kB (NVMe of node-0)" in ended.reason
    assert not list(lab.launcher.folder.glob("*"))
