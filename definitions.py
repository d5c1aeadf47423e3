"""The Dagster definitions: the assets of every recipe, the sensors and schedules, and the resources.

A new YAML file under recipes/ adds its assets here, without any Python; an unusable recipe becomes an asset that says
why. A run uses the recipes with which its code location was loaded, even if the files have changed since. The resources
are those of the embedded instance, or of the cluster that SLIPWAY_PLATFORM describes
(`slipway.resources.resource_sets`).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from slipway.assets import keys
from slipway.assets.broken_recipes import broken_assets
from slipway.assets.checkpoints import checkpoint_assets
from slipway.assets.datasets.assets import dataset_assets
from slipway.assets.execution.run_config import without_run_config
from slipway.assets.execution.user_errors import advised, advising, as_advice
from slipway.assets.incidents import incident_assets, overview_asset
from slipway.assets.models import model_assets
from slipway.assets.preflight import preflight
from slipway.assets.promotion.evaluation import evaluation_assets
from slipway.assets.serving import served_assets
from slipway.assets.staging import staging_assets
from slipway.assets.suites.assets import suite_assets
from slipway.assets.sweeps.assets import sweep_assets
from slipway.assets.training import training_assets
from slipway.operations import (
    branching,
    checkpoint_retention,
    daily_report,
    export_retention,
    exporting,
    garbage,
    logs,
    metadata_backup,
    nodes,
    notices,
    nvme_retention,
    promotion,
    quality,
    resealing,
    restore_drill,
    scrub,
    serving,
    steering,
    storage,
    trainings,
)
from slipway.recipes import texts
from slipway.recipes.load import Recipes, recipes_folder
from slipway.recipes.texts import Texts
from slipway.recipes.usable import BrokenRecipe, UsableRecipes, made_of, usable
from slipway.resources import platform, state
from slipway.resources.home import Home
from slipway.resources.lease import HomeLease
from slipway.resources.notify import settings as notify_settings
from slipway.resources.notify.settings import NotificationSettings
from slipway.resources.platform import Platform
from slipway.resources.resource_sets import Resources, cluster_resources, embedded_resources
from slipway.sensors.checkpoint_arrivals import checkpoint_arrivals
from slipway.sensors.incidents import incidents_sensor
from slipway.sensors.job_watch import job_watch
from slipway.sensors.metrics_shipping import metrics_shipping
from slipway.sensors.network_faults import network_faults
from slipway.sensors.node_demand import node_demand
from slipway.sensors.node_failures import node_failures
from slipway.sensors.node_health import node_health
from slipway.sensors.notifications import notifications_sensor
from slipway.sensors.openlineage import openlineage
from slipway.sensors.policy_sync import policy_sync
from slipway.sensors.promotions import promotions
from slipway.sensors.proposals import proposals
from slipway.sensors.retraining import retraining_schedule, retraining_sensor
from slipway.sensors.run_starts import run_starts
from slipway.sensors.serving import serving as serving_sensor
from slipway.sensors.staging import staging
from slipway.sensors.suites import suites
from slipway.sensors.support import leader_only, wrap
from slipway.sensors.sweep_completions import sweep_completions
from slipway.sensors.traces import traces
from slipway.sensors.training_status import training_status
from slipway.trainer.base import proxy_bypass

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def assets_of(recipes: Recipes) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = []
    for dataset in recipes.datasets.values():
        assets += [*dataset_assets(dataset), *staging_assets(dataset)]
    for suite in recipes.suites.values():
        assets += suite_assets(suite, recipes)
    for recipe in recipes.all_trainings.values():
        assets += [*training_assets(recipe), *checkpoint_assets(recipe), *incident_assets(recipe)]
    for training in recipes.trainings.values():
        assets += [*evaluation_assets(training), *model_assets(training, recipes.suites)]
    for sweep in recipes.sweeps.values():
        assets += sweep_assets(sweep, recipes.trainings[sweep.training])
    assets += served_assets(list(recipes.trainings.values()))
    return assets


def sweep_job(recipes: Recipes, name: str) -> "UnresolvedAssetJobDefinition":
    """The job of a sweep and its datasets. Unchanged assets are skipped."""
    datasets = [recipes.datasets[each] for each in recipes.trainings[recipes.sweeps[name].training].datasets]
    data = [asset.key for dataset in datasets for asset in dataset_assets(dataset)]
    return dg.define_asset_job(
        f"{keys.lane(name)}_sweep",
        dg.AssetSelection.assets(*data, keys.key(name, "sweep")),
        description="Builds the datasets of the sweep and runs the sweep; skips what has not changed.",
    )


def schedules_of(recipes: Recipes) -> list[dg.ScheduleDefinition]:
    """The schedules of retraining and of periodic jobs."""
    return [
        *(quality.schedule_of(recipe) for recipe in quality.watched_recipes(recipes)),
        *(retraining_schedule(recipe) for recipe in recipes.all_trainings.values() if recipe.retrain),
        checkpoint_retention.schedule,
        export_retention.schedule,
        nvme_retention.schedule,
        storage.schedule,
        daily_report.schedule,
        restore_drill.schedule,
        metadata_backup.schedule,
        scrub.schedule,
    ]


def sensors_of(recipes: Recipes, notifications: NotificationSettings | None) -> list[dg.SensorDefinition]:
    return [
        job_watch,
        run_starts,
        training_status,
        checkpoint_arrivals,
        incidents_sensor(recipes.all_trainings),
        promotions,
        node_failures(recipes.datasets),
        node_health,
        network_faults,
        node_demand(recipes.sweeps, recipes.trainings),
        metrics_shipping,
        notifications_sensor(notifications),
        staging(recipes.datasets),
        sweep_completions(recipes.sweeps, recipes.trainings),
        proposals(recipes.all_trainings),
        serving_sensor(list(recipes.trainings.values())),
        retraining_sensor(recipes.all_trainings),
        suites(recipes),
        policy_sync(recipes.all_trainings),
        openlineage,
        traces,
    ]


def build(
    recipes: Recipes,
    resources: Resources,
    executor: dg.ExecutorDefinition = dg.in_process_executor,
    lease: HomeLease | None = None,
    notifications: NotificationSettings | None = None,
    broken: Sequence[BrokenRecipe] = (),
) -> dg.Definitions:
    """The definitions for these recipes and resources.

    With a `lease`, sensors and schedules decide only in the process that holds it. `notifications` says who is
    notified. `broken` holds the unusable recipes.
    """
    schedules = [wrap.schedule(each, advising) for each in schedules_of(recipes)]
    sensors = [wrap.sensor(each, advising) for each in sensors_of(recipes, notifications)]
    made = dg.Definitions(
        assets=[
            *assets_of(recipes),
            *broken_assets(broken),
            overview_asset(),
            preflight,
            storage.storage,
            daily_report.morning_page,
            metadata_backup.backup_of_metadata,
        ],
        asset_checks=[check for recipe in recipes.trainings.values() for check in restore_drill.restore_checks(recipe)],
        jobs=[
            *(sweep_job(recipes, name) for name in recipes.sweeps),
            *(steering.steer_job(sweep, recipes.trainings[sweep.training]) for sweep in recipes.sweeps.values()),
            *(branching.branch_job(recipe) for recipe in recipes.trainings.values()),
            *(branching.replay_job(recipe) for recipe in recipes.trainings.values()),
            *(branching.update_job(recipe) for recipe in recipes.all_trainings.values()),
            *(trainings.start_job(recipe) for recipe in recipes.all_trainings.values()),
            *(job for recipe in recipes.all_trainings.values() for job in trainings.operation_jobs(recipe)),
            *(exporting.export_job(recipe) for recipe in recipes.trainings.values()),
            *serving.serve_jobs(list(recipes.trainings.values())),
            *promotion.promotion_jobs(recipes),
            *(quality.job_of(recipe) for recipe in quality.watched_recipes(recipes)),
            checkpoint_retention.job,
            resealing.job,
            export_retention.job(recipes),
            nvme_retention.job,
            nodes.set_job,
            nodes.diagnose_job,
            nodes.bisect_job,
            garbage.job,
            scrub.job,
            logs.job,
            notices.job(notifications),
            storage.job,
            daily_report.job,
            restore_drill.job(recipes.trainings),
            metadata_backup.job,
        ],
        schedules=leader_only.schedules(schedules, lease) if lease else schedules,
        sensors=leader_only.sensors(sensors, lease) if lease else sensors,
        resources=without_run_config(resources),
        executor=executor,
    )
    return advised(made)


def of_cluster(recipes: Recipes, settings: Platform, broken: Sequence[BrokenRecipe] = ()) -> dg.Definitions:
    """The definitions for these recipes on a cluster."""
    from slipway.assets.execution.executor import cluster_executor

    resources = cluster_resources(settings)
    executor = cluster_executor(settings.compute)
    return build(recipes, resources, executor, notifications=settings.notifications, broken=broken)


RECIPES = "slipway/recipes"
"""The metadata key under which a code location passes the texts of its recipes to its runs."""


def here(environ: Mapping[str, str] = os.environ) -> dg.Definitions:
    """The definitions of this code location.

    Raises InvalidRecipes for unusable settings or if there are no recipes at all, and ValueError for a tier that a
    newer release wrote.
    """
    proxy_bypass.bypass()
    folder = recipes_folder(environ)
    written = _texts(folder)
    settings = platform.named(environ)
    found = usable(folder, written, environ)
    if settings is None:
        home = Home.of(environ)
        state.refuse_newer(home.durable)
        resources = embedded_resources(home)
        notifications = notify_settings.of_home(home.root)
        lease = HomeLease(home.root)

        def embedded(some: UsableRecipes) -> dg.Definitions:
            return build(some.recipes, resources, lease=lease, notifications=notifications, broken=some.broken)

        return made_of(found, embedded)
    read = platform.load(settings)
    state.refuse_newer(Path(read.tiers.durable))  # type: ignore[attr-defined]
    return made_of(found, lambda some: of_cluster(some.recipes, read, some.broken))


def _texts(folder: Path) -> Texts:
    """The texts of the recipes: in a run, those with which its code location was loaded; else those in the folder."""
    loading = DefinitionsLoadContext.get()
    if loading.load_type is DefinitionsLoadType.RECONSTRUCTION:
        packed = loading.reconstruction_metadata.get(RECIPES)
        return texts.read(folder) if packed is None else texts.unpacked(packed)
    written = texts.read(folder)
    loading.add_to_pending_reconstruction_metadata(RECIPES, texts.packed(written))
    return written


with as_advice():
    defs = here()
