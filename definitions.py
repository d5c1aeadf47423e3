"""The one table: every recipe's lane of assets, the sensors and schedules over them, and the resources.

Adding a YAML file under recipes/ adds its assets here, with no Python. The resources are those of the embedded
instance, or those of the cluster that SLIPWAY_PLATFORM describes (`resources.here`).
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import dagster as dg

from assets import keys
from assets.checkpoints import checkpoint_assets
from assets.datasets.assets import dataset_assets
from assets.evaluation import evaluation_assets
from assets.incidents import incident_assets, overview_asset
from assets.models import model_assets
from assets.preflight import preflight
from assets.staging import staging_assets
from assets.sweeps.assets import sweep_assets
from assets.training import training_assets
from operations import (
    branching,
    checkpoint_retention,
    garbage,
    logs,
    metadata_backup,
    nvme_retention,
    restore_drill,
    storage,
)
from recipes.load import Recipes, load, recipes_folder
from resources import platform
from resources.here import Resources, cluster_resources, embedded_resources
from resources.home import Home
from resources.lease import HomeLease
from resources.platform import Platform
from sensors.checkpoint_arrivals import checkpoint_arrivals
from sensors.incidents import incidents_sensor
from sensors.job_watch import job_watch
from sensors.metrics_shipping import metrics_shipping
from sensors.node_failures import node_failures
from sensors.node_health import node_health
from sensors.offers import offers
from sensors.promotions import promotions
from sensors.retraining import retraining
from sensors.staging import staging
from sensors.support import holder
from sensors.sweep_completions import sweep_completions
from sensors.terms import terms

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def assets_of(recipes: Recipes) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """The assets of all recipes."""
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = []
    for dataset in recipes.datasets.values():
        assets += [*dataset_assets(dataset), *staging_assets(dataset)]
    for recipe in recipes.all_trainings.values():
        assets += [*training_assets(recipe), *checkpoint_assets(recipe), *incident_assets(recipe)]
    for training in recipes.trainings.values():
        assets += [*evaluation_assets(training), *model_assets(training)]
    for sweep in recipes.sweeps.values():
        assets += sweep_assets(sweep, recipes.trainings[sweep.training])
    return assets


def sweep_job(recipes: Recipes, name: str) -> "UnresolvedAssetJobDefinition":
    """The job of a sweep with its dataset; assets that have not changed are not made again."""
    dataset = recipes.datasets[recipes.trainings[recipes.sweeps[name].training].dataset]
    data = [asset.key for asset in dataset_assets(dataset)]
    return dg.define_asset_job(
        f"{keys.lane(name)}_sweep",
        dg.AssetSelection.assets(*data, keys.key(name, "sweep")),
        description="Runs the sweep from its corpus on; what has not changed is not made again.",
    )


def schedules_of(recipes: Recipes, own_databases: bool) -> list[dg.ScheduleDefinition]:
    """The schedules: retraining, and what is done periodically."""
    return [
        *(retraining(recipe) for recipe in recipes.all_trainings.values() if recipe.retrain),
        checkpoint_retention.schedule,
        nvme_retention.schedule,
        storage.schedule,
        restore_drill.schedule,
        *([metadata_backup.schedule] if own_databases else []),
    ]


def sensors_of(recipes: Recipes) -> list[dg.SensorDefinition]:
    """The sensors."""
    return [
        job_watch,
        checkpoint_arrivals,
        incidents_sensor(recipes.all_trainings),
        promotions,
        node_failures(recipes.datasets),
        node_health,
        metrics_shipping,
        staging(recipes.datasets),
        sweep_completions(recipes.sweeps, recipes.trainings),
        offers(recipes.all_trainings),
        terms(recipes.all_trainings),
    ]


def build(
    recipes: Recipes,
    resources: Resources,
    executor: dg.ExecutorDefinition = dg.in_process_executor,
    own_databases: bool = True,
    lease: HomeLease | None = None,
) -> dg.Definitions:
    """The definitions of these recipes on these resources.

    `own_databases` says whether the databases of Dagster and MLflow are files in our home, which we back up. With a
    `lease`, sensors and schedules decide only in the process that holds it.
    """
    schedules, sensors = schedules_of(recipes, own_databases), sensors_of(recipes)
    return dg.Definitions(
        assets=[
            *assets_of(recipes),
            overview_asset(),
            preflight,
            storage.storage,
            *([metadata_backup.backup_of_metadata] if own_databases else []),
        ],
        asset_checks=[check for recipe in recipes.trainings.values() for check in restore_drill.restore_checks(recipe)],
        jobs=[
            *(sweep_job(recipes, name) for name in recipes.sweeps),
            *(branching.branch_job(recipe) for recipe in recipes.trainings.values()),
            *(branching.update_job(recipe) for recipe in recipes.all_trainings.values()),
            checkpoint_retention.job,
            nvme_retention.job,
            garbage.job,
            logs.job,
            storage.job,
            restore_drill.job(recipes.trainings),
            *([metadata_backup.job] if own_databases else []),
        ],
        schedules=holder.schedules(schedules, lease) if lease else schedules,
        sensors=holder.sensors(sensors, lease) if lease else sensors,
        resources=resources,
        executor=executor,
    )


def of_cluster(recipes: Recipes, settings: Platform) -> dg.Definitions:
    """The definitions of these recipes on a cluster."""
    from assets.execution.executor import cluster_executor

    return build(recipes, cluster_resources(settings), cluster_executor, own_databases=False)


def here(environ: Mapping[str, str] = os.environ) -> dg.Definitions:
    """The definitions of this code location. Raises InvalidRecipes for recipes and settings that cannot be used."""
    recipes, settings = load(recipes_folder(environ), environ), platform.named(environ)
    if settings is None:
        home = Home.of(environ)
        return build(recipes, embedded_resources(home), lease=HomeLease(home.root))
    return of_cluster(recipes, platform.load(settings))


defs = here()
