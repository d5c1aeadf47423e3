"""The one table: every recipe's lane of assets, the sensors and schedules over them, and the resources.

Adding a YAML file under recipes/ adds its assets here, with no Python. The resources are those of the embedded
instance, or those of the cluster that SLIPWAY_PLATFORM describes; nothing else differs between the two but where the
steps of a run are executed, and who backs the databases up.
"""

import os
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

import dagster as dg

from assets import keys
from assets.checkpoints import checkpoint_assets
from assets.datasets.assets import dataset_assets
from assets.evaluation import evaluation_assets
from assets.logs import training_logs
from assets.metadata_backup import backup_of_metadata
from assets.models import model_assets
from assets.restore_drill import restore_checks
from assets.staging import staging_assets
from assets.storage import storage
from assets.sweeps.assets import sweep_assets
from assets.training import training_assets
from recipes.load import Recipes, load, recipes_folder
from resources import platform
from resources.compute import CODE, EmbeddedCompute
from resources.home import NODES, Home
from resources.platform import Platform
from resources.tiers import Tiers
from resources.tracking import Tracking
from sensors import checkpoint_retention, upkeep
from sensors.checkpoint_arrivals import checkpoint_arrivals
from sensors.garbage import garbage_collection
from sensors.job_watch import job_watch
from sensors.node_failures import node_failures
from sensors.promotions import promotions
from sensors.retention import nvme_retention, retention
from sensors.retraining import offers, retraining
from sensors.staging import staging
from sensors.sweep_completions import sweep_completions
from sensors.tracking import metrics_shipping

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def embedded_resources(home: Home) -> dict[str, dg.ConfigurableResource]:  # type: ignore[type-arg]
    """The resources of the embedded instance in `home`."""
    return {
        "tiers": Tiers(durable=str(home.durable), nvme=home.nvme, backup=home.backup),
        "compute": EmbeddedCompute(
            jobs=str(home.jobs), nodes=str(home.nodes), names=list(NODES), revision=code_revision()
        ),
        "tracking": Tracking(uri=home.tracking_uri),
    }


def cluster_resources(settings: Platform) -> dict[str, dg.ConfigurableResource]:  # type: ignore[type-arg]
    """The resources of a cluster. Raises OSError for a file of the settings' that cannot be read."""
    from resources.kubernetes.compute import KubernetesCompute  # with Kubernetes' client, which others do not need

    return {
        "tiers": Tiers(**settings.tiers.model_dump()),
        "compute": KubernetesCompute(
            settings=settings.compute.model_dump(mode="json"), revision=settings.revision or code_revision()
        ),
        "tracking": Tracking(uri=settings.tracking.address()),
    }


def code_revision() -> str:
    """The git revision of the code, with "+" when it has been changed since; empty outside a checkout."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        return subprocess.run(command, cwd=CODE, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def assets_of(recipes: Recipes) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """All lanes."""
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = []
    for dataset in recipes.datasets.values():
        assets += [*dataset_assets(dataset), *staging_assets(dataset)]
    for recipe in recipes.all_trainings.values():
        assets += [*training_assets(recipe), *checkpoint_assets(recipe)]
    for training in recipes.trainings.values():
        assets += [*evaluation_assets(training), *model_assets(training)]
    for sweep in recipes.sweeps.values():
        assets += sweep_assets(sweep, recipes.trainings[sweep.training])
    return assets


def sweep_job(recipes: Recipes, name: str) -> "UnresolvedAssetJobDefinition":
    """A sweep with all that it needs: what has not changed is found and not made again."""
    dataset = recipes.datasets[recipes.trainings[recipes.sweeps[name].training].dataset]
    data = [asset.key for asset in dataset_assets(dataset)]
    return dg.define_asset_job(
        f"{keys.lane(name)}_sweep",
        dg.AssetSelection.assets(*data, keys.key(name, "sweep")),
        description="The sweep from its corpus on; what has not changed is not made again",
    )


def build(
    recipes: Recipes,
    resources: dict[str, dg.ConfigurableResource],  # type: ignore[type-arg]
    executor: dg.ExecutorDefinition = dg.in_process_executor,
    own_databases: bool = True,
) -> dg.Definitions:
    """The definitions of these recipes on these resources.

    `own_databases` is whether Dagster's and MLflow's are files in our home, which we back up.
    """
    return dg.Definitions(
        assets=[*assets_of(recipes), storage, *([backup_of_metadata] if own_databases else [])],
        asset_checks=[check for recipe in recipes.trainings.values() for check in restore_checks(recipe)],
        jobs=[
            *(sweep_job(recipes, name) for name in recipes.sweeps),
            nvme_retention,
            garbage_collection,
            training_logs,
            checkpoint_retention.checkpoint_retention,
            *upkeep.jobs(recipes.trainings, own_databases),
        ],
        schedules=[
            *(retraining(recipe) for recipe in recipes.all_trainings.values() if recipe.retrain),
            retention,
            checkpoint_retention.schedule,
            *upkeep.schedules(own_databases),
        ],
        sensors=[
            job_watch,
            checkpoint_arrivals,
            promotions,
            node_failures(recipes.datasets),
            metrics_shipping,
            staging(recipes.datasets),
            sweep_completions(recipes.sweeps, recipes.trainings),
            offers(recipes.all_trainings),
        ],
        resources=resources,
        executor=executor,
    )


def of_cluster(recipes: Recipes, settings: Platform) -> dg.Definitions:
    """The definitions of these recipes on a cluster."""
    from assets.executor import cluster_executor

    return build(recipes, cluster_resources(settings), cluster_executor, own_databases=False)


def here(environ: Mapping[str, str] = os.environ) -> dg.Definitions:
    """The definitions of this code location. Raises InvalidRecipes for recipes and settings that cannot be used."""
    recipes, settings = load(recipes_folder(environ), environ), platform.named(environ)
    if settings is None:
        return build(recipes, embedded_resources(Home.of(environ)))
    return of_cluster(recipes, platform.load(settings))


defs = here()
