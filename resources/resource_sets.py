"""Resource sets: the resources of an embedded instance, or those of the cluster that the settings describe.

Apart from the resources, the two differ only in the executor of steps and in who backs up the databases.
"""

from typing import Any

import dagster as dg

from slipway.resources import code, cost_settings
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.cost_settings import CostSettings
from slipway.resources.home import NODES, Home
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.openlineage.target import OpenLineage, of_address
from slipway.resources.platform import Platform
from slipway.resources.tiers import Tiers

Resources = dict[str, dg.ConfigurableResource]  # type: ignore[type-arg]
"""`tiers`, `compute`, `tracking` and `openlineage`, by these names."""


def embedded_resources(home: Home) -> Resources:
    """The resources of the embedded instance in `home`."""
    return {
        "tiers": Tiers(durable=str(home.durable), nvme=home.nvme, backup=home.backup),
        "compute": EmbeddedCompute(
            jobs=str(home.jobs),
            nodes=str(home.nodes),
            names=list(NODES),
            revision=code.revision(),
            rank_hours=_rank_hours(cost_settings.of_home(home.root)),
        ),
        "tracking": Tracking(uri=home.tracking_uri, page=home.mlflow_page, dagster_page=home.dagster_page),
        "openlineage": of_address(home.openlineage),
    }


def cluster_resources(settings: Platform) -> Resources:
    """The resources of a cluster. They contain no secret, since Dagster shows and stores their configuration."""
    from slipway.resources.compute.kubernetes import (
        KubernetesCompute,  # imports the Kubernetes client, which an embedded instance does not need
    )

    return {
        "tiers": Tiers(**settings.tiers.model_dump()),
        "compute": KubernetesCompute(
            # Dagster's configuration has no null.
            settings=settings.compute.model_dump(mode="json", exclude_none=True),
            revision=settings.revision or code.revision(),
            rank_hours=_rank_hours(settings),
        ),
        "tracking": Tracking(
            uri=settings.tracking.uri or "",
            uri_file=settings.tracking.uri_file or "",
            token_file=settings.tracking.token_file,
            promoters=settings.promoters,
            page=settings.pages.mlflow,
            dagster_page=settings.dagster_page,
        ),
        "openlineage": OpenLineage(**settings.openlineage.model_dump()),
    }


def _rank_hours(settings: CostSettings) -> dict[str, dict[str, Any]]:
    """The quotas as Dagster configuration."""
    return {owner: dict(vars(quota)) for owner, quota in settings.quotas.items()}
