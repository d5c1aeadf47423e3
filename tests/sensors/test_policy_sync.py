"""Terms: a change of a recipe reaches the trainings that go on, once, and it is on record what changed."""

from typing import Any

import pytest

from slipway.assets import keys
from slipway.assets.training_commands import start, update
from slipway.recipes.training import ModelRecipe
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.record import changes, ledger
from slipway.trainer.record.changes import AppliedChange
from slipway.trainer.record.fence import Token
from tests.sensors.platform import BY, TINY, Platform


def changed(platform: Platform, **changes: dict[str, Any]) -> Platform:
    """The platform after its recipe was changed, and the code location read it."""
    value = platform.recipe.model_dump(mode="json")
    for section, fields in changes.items():
        value[section].update(fields)
    return platform.with_training(ModelRecipe.model_validate(value, strict=False))


def start_again(platform: Platform, *fields: str) -> TrainingStore:
    """The training of the recipe, once more, with these fields set for it alone."""
    return start(platform.recipe, platform.tiers, platform.tracking, BY, "again", fields)


def followed(platform: Platform) -> None:
    """The tick that shows the change, and the one that finds it shown."""
    for _ in range(2):
        platform.apply("terms")


def test_a_changed_deadline_and_a_changed_number_of_nodes_reach_a_training_that_should_run(platform: Platform):
    store = start_again(platform)
    after = changed(
        platform,
        recovery={"no_progress_seconds": 77.0},
        placement={"nodes": {"min": 1, "max": 2}},
        storage={"durable": {"minutes": 3.0, "last": 2}},
    )
    followed(after)
    policy = store.run_policy()
    assert (policy.no_progress_seconds, policy.max_nodes) == (77.0, 2)
    assert policy.operation["storage"]["durable"]["minutes"] == 3.0
    [observation] = platform.observations(store.id)
    metadata = {name: value.value for name, value in observation.metadata.items()}
    assert "max_nodes: 1 to 2" in str(metadata["changed"]) and "no_progress_seconds: 30.0 to 77.0" in str(
        metadata["changed"]
    )
    assert str(metadata["by"]).startswith("recipe tiny, owned by team:training")
    assert str(metadata["takes_effect"]).startswith("at once, but max_nodes, operation.storage.durable")


def test_the_ledger_of_a_training_has_what_changed_and_who_changed_it(platform: Platform):
    store = start_again(platform)
    store.claim(1, ("node-0",), "a test", BY)
    followed(changed(platform, recovery={"no_progress_seconds": 77.0}))
    [event] = [event for event in ledger.read(store.folder) if event["event"] == "terms_changed"]
    assert event["changed"] == {"no_progress_seconds": [30.0, 77.0]}
    assert event["by"] == "terms" and event["source"].startswith("recipe tiny, owned by team:training")


def test_a_recipe_that_did_not_change_changes_nothing(platform: Platform):
    store = start_again(platform)
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")}
    followed(platform)
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")} == before
    assert platform.observations(store.id) == []


def test_terms_are_not_replaced_before_the_event_log_has_the_change(platform: Platform):
    """As when the daemon dies before it has stored what the tick gave it."""
    store = start_again(platform)
    after = changed(platform, recovery={"no_progress_seconds": 77.0})
    for _ in range(2):
        assert len(after.tick("terms").asset_events) == 1
    assert store.run_policy().no_progress_seconds == 30.0


def test_a_change_that_is_taken_back_and_made_again_is_shown_each_time(platform: Platform):
    store = start_again(platform)
    after = changed(platform, recovery={"no_progress_seconds": 77.0})
    for edition in (after, platform, after):
        followed(edition)
    assert store.run_policy().no_progress_seconds == 77.0 and store.run_policy().edition == 4
    assert len(platform.observations(store.id)) == 3


def test_what_a_person_set_for_one_training_stays_as_it_was_set(platform: Platform):
    store = start_again(platform, "placement.nodes.max=2", "recovery.no_progress_seconds=600", "run.steps=50")
    followed(changed(platform, recovery={"no_progress_seconds": 77.0, "pending_seconds": 7.0}))
    policy = store.run_policy()
    assert (policy.max_nodes, policy.no_progress_seconds, policy.pending_seconds) == (2, 600.0, 7.0)
    assert list(policy.fields) == ["placement.nodes.max=2", "recovery.no_progress_seconds=600"]


def test_a_training_of_another_origin_keeps_its_origin_and_its_weights(platform: Platform):
    other = platform.proposed("best of a sweep", origin={"sweep": "s", "trial": 3}, init="/weights")
    platform.trainings.start(other, BY, "a test")
    followed(changed(platform, recovery={"no_progress_seconds": 77.0}))
    policy = other.run_policy()
    assert (policy.origin, policy.init) == ({"sweep": "s", "trial": 3}, "/weights")
    assert policy.no_progress_seconds == 77.0


def test_a_layout_that_does_not_fit_the_training_is_refused_and_the_others_follow(platform: Platform):
    """The recipe is another model now, with more layers to divide."""
    model = {"layers": 4, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 64}
    pipeline = {"pipeline": 4, "schedule": "gpipe"}
    store, fits = start_again(platform), platform.start_training("fits", model=model)
    after = changed(platform, model=model, layout=pipeline, placement={"ranks_per_node": 4})
    followed(after)
    assert store.run_policy().ranks_per_node == 1 and store.run_policy().operation["layout"]["pipeline"] == 1
    assert fits.run_policy().ranks_per_node == 4


@pytest.mark.slow
def test_a_training_that_was_offered_long_ago_starts_with_the_terms_of_its_recipe_now(platform: Platform):
    store = platform.proposed("offered", run={"steps": 2})
    after = changed(platform, placement={"nodes": {"min": 1, "max": 2}})
    assert after.materialize([keys.key(TINY, "training")], store.id).success
    claim = store.newest_claim()
    assert claim is not None and claim.nodes == ("node-0", "node-1")


def test_a_training_that_is_not_wanted_any_more_keeps_its_terms(platform: Platform):
    store = start_again(platform)
    store.want("stop", BY, "a test")
    followed(changed(platform, recovery={"no_progress_seconds": 77.0}))
    assert store.run_policy().no_progress_seconds == 30.0
    assert platform.trainings.pending(WorkQueue.RUN) == [store.id]


def test_a_change_that_ranks_took_over_is_shown_once_with_who_why_and_the_values(platform: Platform):
    store = start_again(platform)
    assert store.claim(1, ("node-0",), "a test", BY)
    [set_] = update(store, ["optimizer.learning_rate=0.5"], {TINY: platform.recipe}, "ada", "the loss rises")
    assert set_.old == 0.01
    followed(platform)
    assert platform.observations(store.id) == []  # no rank has taken it over yet
    changes.record(
        store.folder,
        AppliedChange(1, 41, Token(1), {"optimizer.learning_rate": (0.01, 0.5)}, "ada", "the loss rises"),
    )
    for _ in range(2):
        followed(platform)
    [observation] = platform.observations(store.id)
    metadata = {name: value.value for name, value in observation.metadata.items()}
    assert (metadata["change"], metadata["step"], metadata["by"], metadata["why"]) == (1, 41, "ada", "the loss rises")
    assert metadata["diff"] == "```diff\n- optimizer.learning_rate: 0.01\n+ optimizer.learning_rate: 0.5\n```"
    assert metadata["state"] == "since step 42"


def test_a_term_that_was_set_by_hand_stays_when_the_recipe_says_otherwise(platform: Platform):
    store = start_again(platform)
    field_updates = update(
        store, ["observation.window_steps=7", "recovery.pending_seconds=9.0"], {TINY: platform.recipe}, "ada", "a test"
    )
    assert [field_update.takes_effect for field_update in field_updates] == ["in place, between two steps", "at once"]
    followed(changed(platform, observation={"window_steps": 11}, recovery={"pending_seconds": 77.0}))
    policy = store.run_policy()
    assert (policy.operation["observation"]["window_steps"], policy.pending_seconds) == (7, 9.0)
    with pytest.raises(ValueError, match=r"layout\.tensor: .*"):
        update(store, ["layout.tensor=64"], {TINY: platform.recipe}, "ada", "a test")
    assert store.run_policy() == policy
