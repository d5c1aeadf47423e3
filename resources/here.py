"""The resources of this place: those of the embedded instance in a home, or of the cluster that settings describe.

Nothing else differs between the two but where the steps of a run are executed, and who backs the databases up.
"""

import subprocess

import dagster as dg

from resources.compute.embedded import EmbeddedCompute
from resources.home import CODE, NODES, Home
from resources.mlflow.tracking import Tracking
from resources.platform import Platform
from resources.tiers import Tiers

GIT_SECONDS = 10.0
Resources = dict[str, dg.ConfigurableResource]  # type: ignore[type-arg]
"""`tiers`, `compute` and `tracking`, by these names."""


def embedded_resources(home: Home) -> Resources:
    """The resources of the embedded instance in `home`."""
    return {
        "tiers": Tiers(durable=str(home.durable), nvme=home.nvme, backup=home.backup),
        "compute": EmbeddedCompute(
            jobs=str(home.jobs), nodes=str(home.nodes), names=list(NODES), revision=code_revision()
        ),
        "tracking": Tracking(uri=home.tracking_uri),
    }


def cluster_resources(settings: Platform) -> Resources:
    """The resources of a cluster. No secret is read here: what a resource holds is shown and stored."""
    from resources.compute.kubernetes import KubernetesCompute  # with Kubernetes' client, which others do not need

    return {
        "tiers": Tiers(**settings.tiers.model_dump()),
        "compute": KubernetesCompute(
            settings=settings.compute.model_dump(mode="json"), revision=settings.revision or code_revision()
        ),
        "tracking": Tracking(uri=settings.tracking.uri or "", uri_file=settings.tracking.uri_file or ""),
    }


def code_revision() -> str:
    """The git revision of the code, with "+" when it has been changed since; empty outside a checkout."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        done = subprocess.run(command, cwd=CODE, capture_output=True, text=True, check=True, timeout=GIT_SECONDS)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
