"""Kinds of runs: each has one, limits are by kind alone, and Dagster's own queue lets nobody wait behind trainings."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.context import WorkspaceRequestContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from slipway.assets.execution import user_errors
from slipway.definitions import build
from slipway.deploy.embedded.instance import SETTINGS
from slipway.recipes.load import Recipes, load
from slipway.resources import run_kinds
from slipway.resources.home import Home
from slipway.resources.resource_sets import embedded_resources
from slipway.resources.run_kinds import UNLIMITED, RunKind
from tests.deploy.dagster_runs import instance as of_cluster
from tests.deploy.rendering import VALUES
from tests.sensors.platform import TINY, write_recipes

VERBS = {
    *(f"{TINY}_{verb}" for verb in ("start", "stop", "pause", "resume", "delete", "branch", "set")),
    *(f"tiny_model_{verb}" for verb in ("promote", "rollback", "demote", "approve", "refuse", "freeze", "thaw")),
    *("tiny_model_serve", "tiny_search_steer", "node_set", "training_logs", "notifications_test"),
}
KINDS = {
    RunKind.DATA: ["texts/documents", "texts/tokenizer", "texts/snapshot"],
    RunKind.STAGING: ["texts/staged_shards"],
    RunKind.TRAINING: ["tiny/training"],
    RunKind.EVALUATION: ["tiny/evaluation"],
    RunKind.MODEL: ["tiny/candidate", "tiny/champion", "tiny_model/served"],
    RunKind.SWEEP: ["tiny_search/sweep"],
    RunKind.RECOVERY: ["platform/preflight"],
    RunKind.UPKEEP: ["platform/storage", "platform/morning", "platform/metadata_backup"],
}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Recipes:
    folder = tmp_path_factory.mktemp("kinds")
    write_recipes(folder / "recipes")
    return load(folder / "recipes", {})


@pytest.fixture(scope="module")
def defs(recipes: Recipes, tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    return build(recipes, embedded_resources(Home(tmp_path_factory.mktemp("home"))))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """With the embedded instance's queue, and a launcher of Dagster's own that only notes what is launched."""
    launcher = {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"}
    queue = yaml.safe_load(SETTINGS.read_text())["run_coordinator"]
    with dg.instance_for_test(
        {"run_launcher": launcher, "run_coordinator": queue}, temp_dir=str(tmp_path)
    ) as dagster_instance:
        yield dagster_instance


def kinds_of(job: dg.JobDefinition) -> set[str]:
    return {op.tags.get(run_kinds.TAG, "none") for op in job.graph.iterate_op_defs()}


def of_asset(defs: dg.Definitions, asset: str) -> dg.JobDefinition:
    """The job of an asset that is materialised alone, by a sensor or by hand."""
    of_all = defs.get_repository_def().get_implicit_global_asset_job_def()
    return of_all.get_subset(asset_selection=frozenset({dg.AssetKey.from_user_string(asset)}))


def submitted(
    instance: dg.DagsterInstance, job: dg.JobDefinition, tags: Mapping[str, str] | None = None
) -> dg.DagsterRun:
    """A run as the daemon submits it for a sensor, a schedule or a backfill, and the webserver for a person."""
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("slipway"), "all"), job.name)
    run = instance.create_run_for_job(
        job,
        status=dg.DagsterRunStatus.NOT_STARTED,
        tags=tags,
        asset_selection=job.asset_selection,
        remote_job_origin=origin,
    )
    context = WorkspaceRequestContext.__new__(WorkspaceRequestContext)
    context._source = None
    return instance.run_coordinator.submit_run(SubmitRunContext(run, context))


def launched(instance: dg.DagsterInstance) -> set[str]:
    """The runs that Dagster's queue has let begin, after one more round of it."""
    with create_test_daemon_workspace_context(EmptyWorkspaceTarget(), instance) as context:
        list(QueuedRunCoordinatorDaemon(interval_seconds=1).run_iteration(context))
    return {run.run_id for run in instance.run_launcher.queue()}  # type: ignore[attr-defined]


def limits_of(queue: Mapping[str, Any]) -> dict[str, int]:
    """The limits by kind. Fails for one on anything else."""
    assert queue["max_concurrent_runs"] == -1, "one number for all"
    assert {limit["key"] for limit in queue["tag_concurrency_limits"]} == {run_kinds.TAG}
    return {limit["value"]: limit["limit"] for limit in queue["tag_concurrency_limits"]}


def test_every_asset_check_and_job_says_what_its_runs_count_as(defs: dg.Definitions):
    kinds = {op.name: op.tags.get(run_kinds.TAG) for op in user_errors.steps(defs)}
    assert len(kinds) > 40
    assert {name: kind for name, kind in kinds.items() if kind not in set(RunKind)} == {}


def test_what_a_person_asks_for_and_waits_for_is_a_verb(defs: dg.Definitions):
    jobs = {job.name: kinds_of(job) for job in defs.get_repository_def().get_all_jobs()}
    assert {name for name, kinds in jobs.items() if kinds == {RunKind.VERB}} == VERBS


def test_assets_count_as_what_they_do(defs: dg.Definitions):
    repository = defs.get_repository_def()
    kinds = {
        key.to_user_string(): definition.node_def.tags[run_kinds.TAG]
        for key, definition in repository.assets_defs_by_key.items()
        if definition.is_executable
    }
    assert kinds == {key: kind for kind, named in KINDS.items() for key in named}


@pytest.mark.parametrize("deployment", ["embedded", *VALUES])
def test_limits_are_by_kind_alone_and_verbs_and_recovery_have_none(deployment: str):
    if deployment == "embedded":
        queue = yaml.safe_load(SETTINGS.read_text())["run_coordinator"]["config"]
    else:
        described = of_cluster(deployment).run_coordinator_data
        assert described is not None
        queue = yaml.safe_load(described.config_yaml)
    limits = limits_of(queue)
    assert set(limits) == set(RunKind) - set(UNLIMITED)
    assert min(limits.values()) >= 1


def test_a_run_counts_as_what_its_steps_do_whatever_it_is_tagged_with(
    defs: dg.Definitions, instance: dg.DagsterInstance
):
    repository = defs.get_repository_def()
    stop = submitted(instance, repository.get_job("tiny_stop"))
    assert (stop.tags[run_kinds.TAG], stop.tags["dagster/priority"]) == ("verb", "2")
    typed = submitted(instance, of_asset(defs, "tiny/training"), {run_kinds.TAG: "verb"})
    assert typed.tags[run_kinds.TAG] == "training" and "dagster/priority" not in typed.tags
    whole_run = submitted(instance, repository.get_job("tiny_search_sweep"))
    assert whole_run.tags[run_kinds.TAG] == "sweep", "its data is made first, and its trials take longest"


def test_with_twice_as_many_trainings_as_slots_everything_else_begins_at_once(
    defs: dg.Definitions, instance: dg.DagsterInstance
):
    limits = limits_of(yaml.safe_load(SETTINGS.read_text())["run_coordinator"]["config"])
    training = of_asset(defs, "tiny/training")
    waiting = [submitted(instance, training).run_id for _ in range(2 * max(limits.values()))]
    begun = set(waiting[: limits["training"]])
    assert launched(instance) == begun
    others = [of_asset(defs, f"tiny/{noun}") for noun in ("evaluation", "champion")]
    others += [of_asset(defs, "texts/staged_shards"), defs.get_repository_def().get_job("tiny_stop")]
    begun |= {submitted(instance, other).run_id for other in others}
    assert launched(instance) == begun
