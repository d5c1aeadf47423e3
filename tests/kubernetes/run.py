"""A Dagster run that materialises a training on a cluster: ``python -m tests.kubernetes.run FILE``.

The JSON file says where: `home` (Dagster's), `tiers`, `compute` (the section of the platform's settings), `training`.
It ends when the training has, as the pod of a run would; killed, it leaves the job alone.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import keys
from slipway.assets.training import training_assets
from slipway.recipes.load import load
from slipway.resources.compute.kubernetes import KubernetesCompute
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore
from tests.drills import small_recipes
from tests.kubernetes.lab import ClusterLab


def described(lab: ClusterLab, store: TrainingStore, home: Path) -> dict[str, Any]:
    """The content of the file for a training of the lab."""
    lab_cluster, client = lab.ground.cluster, lab.ground.client
    cluster = {
        "image": lab_cluster.image,
        "namespace": lab_cluster.namespace,
        "pull_policy": lab_cluster.pull_policy,
        "grace_seconds": lab_cluster.grace_seconds,
        "patch": dict(lab_cluster.patch),
    }
    assert isinstance(lab.on_pods.workload, JobSet)
    return {
        "home": str(home),
        "tiers": {"durable": str(lab.durable), "nvme": lab.paths.nvme},
        "compute": {"launcher": "jobset", "kubeconfig": client.kubeconfig, "cluster": cluster},
        "training": store.id,
    }


def execute(described: dict[str, Any]) -> bool:
    """Materialise the training; returns whether the run succeeded."""
    resources = {"tiers": Tiers(**described["tiers"]), "compute": KubernetesCompute(settings=described["compute"])}
    with (
        tempfile.TemporaryDirectory() as folder,
        dg.DagsterInstance.local_temp(described["home"]) as instance,
    ):
        recipe = load(small_recipes.write(Path(folder), trial_steps=20), {}).trainings[small_recipes.ALONE]
        partitions = keys.training_partitions(recipe.name)
        assert partitions.name is not None
        instance.add_dynamic_partitions(partitions.name, [described["training"]])
        assets = training_assets(recipe)
        return dg.materialize(
            assets, partition_key=described["training"], instance=instance, resources=resources
        ).success


if __name__ == "__main__":
    sys.exit(0 if execute(json.loads(Path(sys.argv[1]).read_bytes())) else 1)
