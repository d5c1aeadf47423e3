"""The resources of this place: those of the embedded instance in a home, or of the cluster that settings describe.

Nothing else differs between the two but where the steps of a run are executed, and who backs the databases up.
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
    """The resources of a cluster. No secret is read here: what a resource holds is shown and stored."""
    from slipway.resources.compute.kubernetes import (
        KubernetesCompute,  # with Kubernetes' client, which others do not need
    )

    return {
        "tiers": Tiers(**settings.tiers.model_dump()),
        "compute": KubernetesCompute(
            # Dagster's configurations have no null.
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
    """The quotas as a configuration of Dagster has them."""
    return {owner: dict(vars(quota)) for owner, quota in settings.quotas.items()}
