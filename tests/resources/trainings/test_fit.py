"""Fit: a job that cannot fit the cluster's nodes is refused by name and numbers, before it is submitted."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings import fit
from slipway.resources.trainings.job import with_fabric
from slipway.trainer.config import profiles, resolved
from tests.assets.datasets.snapshots import make_snapshot
from tests.resources.trainings.lab import numbers

TINY = dataclasses.replace(profiles.named("h200-32"), card="A100", pod_bytes=2**20)
"""Nodes whose pods have less memory than any process."""


def job(folder: Path, nodes: int = 1) -> Job:
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
    fit.check(job(tmp_path), tmp_path, profiles.named("h200-32"))
    assert list((tmp_path / fit.FOLDER).iterdir()), "its measure is kept for the next incarnation"
    with pytest.raises(ValueError, match=r"^it does not fit 1 nodes of h200-32: a node's processes need .* GiB"):
        fit.check(job(tmp_path), tmp_path, TINY)


@pytest.mark.slow
def test_an_embedded_training_that_cannot_fit_this_machine_is_refused_before_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """2^17 x 2^17 weights, a plan of which takes no memory."""
    monkeypatch.setattr(fit, "SECONDS", 500.0)  # a plan that a busy machine has not made in time refuses nothing
    asked = job(tmp_path)
    size = {"layers": 2, "width": 2**17, "heads": 8, "kv_heads": 8, "hidden": 2**17}
    model: Any = asked.config["model"]
    huge = dataclasses.replace(asked, config={**asked.config, "model": {**model, **size}})
    with pytest.raises(ValueError, match=r"^it does not fit 1 ranks on this machine: a rank needs .* GiB, and has "):
        fit.check_here(huge, tmp_path)


def test_a_small_embedded_training_is_not_kept_waiting_for_a_plan(tmp_path: Path):
    fit.check_here(job(tmp_path), tmp_path)
    assert not (tmp_path / fit.FOLDER).exists()


def test_more_nodes_than_the_cluster_has_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="found 256, expected 32 at most"):
        fit.check(job(tmp_path, nodes=256), tmp_path, profiles.named("h200-32"))


def test_a_training_has_the_clusters_network_settings_where_its_recipe_names_none():
    assert with_fabric({"hardware": {"profile": "none"}}, "h200-infiniband")["hardware"] == {
        "profile": "h200-infiniband"
    }
    assert with_fabric({"hardware": {"profile": "ethernet"}}, "h200-infiniband")["hardware"] == {"profile": "ethernet"}
