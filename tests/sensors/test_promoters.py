"""Promoters: with a list of them, nobody else promotes, rolls back, demotes, approves or thaws a model."""

from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.storage.tags import PARENT_BACKFILL_ID_TAG
from dagster._core.workspace.context import WorkspaceRequestContext

from slipway.resources.identity import USER_TAG, Asker
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, TRAINING_TAG, Registry, Version
from slipway.resources.promotions import promotion_holds
from slipway.resources.promotions.promotion import Judgement, NotAPromoter, Promotions, history
from slipway.resources.run_coordinator import AttributingRunCoordinator
from tests.sensors.platform import BY, Platform

MODEL = "tiny-model"
ANN, EVE = Asker("ann, run 1", "ann"), Asker("eve by hand", "eve")


@pytest.fixture
def candidate(tracked: Platform) -> tuple[Promotions, Version]:
    """A version that passes, of a model for which only Ann decides."""
    tracking = tracked.tracking.model_copy(update={"promoters": ["ann"]})
    model = Promotions(Registry(tracking, tracked.home.durable), tracked.home.durable, MODEL)
    store = tracked.finished()
    commit = store.commits()[-1]
    tags = {MANIFEST_TAG: commit.manifest, FOLDER_TAG: commit.folder, TRAINING_TAG: store.id}
    version = model.registry.register(MODEL, tracked.home.durable / commit.folder, "", tags)
    model.record(Judgement(MODEL, commit.manifest, "", {"a test": True}, BY))
    return model, version


def test_only_a_promoter_decides_and_a_refusal_says_who_was_found_and_who_is_expected(
    candidate: tuple[Promotions, Version],
):
    model, version = candidate
    refused = f"model {MODEL}: cannot promote version 1: found eve, expected one of the platform's promoters: ann"
    with pytest.raises(NotAPromoter, match=refused):
        model.promote(version, EVE, "it is time")
    for attempt in (
        lambda: model.demote(EVE, "it is old"),
        lambda: model.approve(version, promotion_holds.Approval(True, EVE, "it reads well")),
        lambda: model.thaw(EVE),
    ):
        with pytest.raises(NotAPromoter, match="found eve"):
            attempt()
    assert history(model.durable, MODEL) == []
    model.promote(version, ANN, "it is time")
    model.demote("sensor serving", "it came back")
    assert [record.by for record in history(model.durable, MODEL)] == ["ann, run 1", "sensor serving"]


def test_the_embedded_queue_notes_people_too():
    settings = yaml.safe_load(Path("deploy/embedded/dagster.yaml").read_text())["run_coordinator"]
    assert f"{settings['module']}.{settings['class']}".endswith("run_coordinator.AttributingRunCoordinator")


def test_a_backfill_that_is_launched_again_is_not_of_the_person_who_launched_the_first(platform: Platform):
    queue = AttributingRunCoordinator()
    queue.register_instance(platform.instance)
    daemons = WorkspaceRequestContext.__new__(WorkspaceRequestContext)
    daemons._source = None

    def noted(tags: dict[str, str]) -> str | None:
        """Whose a run is that the daemon submits for a backfill with these tags."""
        run = platform.instance.create_run_for_job(
            platform.repository.get_implicit_global_asset_job_def(), tags=tags, status=dg.DagsterRunStatus.STARTED
        )
        return queue.submit_run(SubmitRunContext(run, daemons)).tags.get(USER_TAG)

    assert noted({USER_TAG: "ann"}) == "ann"
    assert noted({USER_TAG: "ann", PARENT_BACKFILL_ID_TAG: "first"}) == ""
