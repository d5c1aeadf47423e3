"""Checkpoints on the NVMe of several nodes, by real agents with disks of their own: one node may be lost."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.record import fence
from tests import disks
from tests.trainer import agents
from tests.trainer.conftest import STEPS, Training

ALWAYS = 1e-6
"""Minutes so short that a save is due at every step."""
pytestmark = pytest.mark.slow


def training(folder: Path, mark: str, nvme: float = ALWAYS, **changed: Any) -> Training:
    """A training of which only the last checkpoint goes to the durable tier; `nvme` are minutes."""
    storage = {
        "cost_share": 1.0,
        "nvme": {"minutes": nvme, "last": 2},
        "durable": {"minutes": 0, "last": 100},
        "backup": {"minutes": 0, "last": 1},
    }
    folder.mkdir(exist_ok=True)
    return Training(folder, mark, **{"storage": storage, "checkpoint": {"every": 1_000_000}, **changed})


def test_a_node_lost_with_its_disk_costs_no_step_and_no_bit(tmp_path: Path, mark: str) -> None:
    """The newest checkpoint is on the NVMe alone; one of the nodes that go on is new and empty."""
    lost = training(tmp_path / "lost", mark)
    agents.killed(lost, ["a", "b"], 9)
    newest = lost.commits()[-1]
    assert newest.tier == "nvme" and not list(lost.durable.glob("checkpoints/*/*"))
    shutil.rmtree(lost.folder / "nvme-b")
    agents.completed(lost, ["a", "c"], 2)
    [restored] = lost.events("restored")
    assert restored["step"] == newest.step
    assert lost.events("source_failed") == lost.events("passed_over") == lost.events("set_aside") == []
    undisturbed = training(tmp_path / "whole", mark, nvme=0.0).completed(2)
    assert lost.losses() == undisturbed.losses()
    assert lost.tensors(STEPS) == undisturbed.tensors(STEPS)


def test_without_both_nodes_the_start_says_which_checkpoint_it_passes_over(tmp_path: Path, mark: str) -> None:
    gone = training(tmp_path / "gone", mark)
    agents.killed(gone, ["a", "b"], 5)
    newest = gone.commits()[-1].name
    errors = agents.completed(gone, ["c", "d"], 2)
    passed = gone.events("passed_over")
    assert newest in {event["commit"] for event in passed}
    assert "on the NVMe of the nodes a, b, which this training has not now" in passed[0]["reason"]
    assert f"checkpoint {newest} is passed over" in errors
    assert fence.set_aside_reasons(gone.store) == {}


def test_when_a_nodes_disk_is_full_the_checkpoints_go_to_the_durable_tier(tmp_path: Path, mark: str) -> None:
    steps = 200  # some are left when the first save has failed
    full = training(tmp_path / "full", mark, run={"steps": steps})
    with disks.mounted(full.folder / "nvme-b", "size=200k"):
        agents.completed(full, ["a", "b"], 1)
    failed = full.events("commit_failed")
    assert failed and all(event["tier"] == "nvme" and "No space left" in event["reason"] for event in failed)
    assert {commit.tier for commit in full.commits()} == {"durable"}
    assert min(commit.step for commit in full.commits()) < steps
