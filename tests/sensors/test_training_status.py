"""Standings: the newest event of a training's partition says where it stands now, and so does its page."""

import dagster as dg

from slipway.assets import keys
from slipway.resources.pages import page_keeper
from slipway.resources.trainings.status import TrainingStatus, keep_wait, wait_reason
from slipway.sensors.training_status import is_due
from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Token
from tests.sensors.platform import BY, TINY, Platform


def newest(platform: Platform, id: str) -> dict[str, object]:
    observation = platform.observations(id)[0]
    return {name: value.value for name, value in observation.metadata.items()}


def test_one_that_waits_says_so_at_the_first_look_and_has_a_page(platform: Platform):
    store = platform.start_training("waiting")
    platform.apply("standings")
    metadata = newest(platform, store.id)
    assert (
        metadata["state"] == "waiting" and metadata["name"] and metadata["report"] == f"/slipway/trainings/{store.id}"
    )
    assert str(metadata["standing"]) in (store.folder / page_keeper.PAGE).read_text().lower()


def test_nothing_is_shown_again_while_nothing_changes(platform: Platform):
    platform.start_training("waiting")
    platform.apply("standings")
    assert not platform.tick("standings").asset_events
    assert not platform.tick("standings").asset_events


def test_an_event_of_somebody_else_does_not_stay_the_newest(platform: Platform):
    store = platform.start_training("running")
    assert store.claim(1, ("node-0",), "first start", BY)
    platform.apply("standings")
    platform.apply("standings")
    old = dg.AssetObservation(keys.key(TINY, "training"), partition=store.id, metadata={"outcome": "stopped"})
    platform.instance.report_runless_asset_event(old)
    platform.apply("standings")
    assert newest(platform, store.id)["state"] == "starting"


def test_one_that_was_stopped_and_is_wanted_again_is_not_shown_as_stopped(platform: Platform):
    store = platform.start_training("again")
    assert store.claim(1, ("node-0",), "first start", BY)
    ledger.note(store.folder, Token(1), "rank-0", "step", step=6, loss=2.5, seconds=1.0)
    store.want("stop", BY, "asked")
    store.record_exit(1, "stopped", "asked to stop", BY, ("node-0",))
    platform.apply("standings")
    stopped = newest(platform, store.id)
    assert stopped["state"] == "stopped" and str(stopped["standing"]).startswith("stopped at ")
    assert stopped["loss"] == 2.5 and "data:image/png" in str(stopped["loss_curve"])
    platform.trainings.start(store, BY, "again")
    platform.apply("standings")
    assert newest(platform, store.id)["state"] == "restarting"


def test_a_reason_is_kept_for_those_who_cannot_ask_the_fleet(platform: Platform):
    store = platform.start_training("waiting")
    keep_wait(store.read(), "found no node")
    assert wait_reason(store.read()) == "found no node"
    assert store.claim(1, ("node-0",), "first start", BY)
    assert wait_reason(store.read()) == "", "of another incarnation it says nothing"


def test_figures_are_shown_sparingly_and_another_state_at_once():
    before = TrainingStatus("running", "running, step 1", 1, 10, 0, 1, ())
    later = TrainingStatus("running", "running, step 2", 2, 10, 0, 1, ())
    hung = TrainingStatus("hanging", "hanging for 6 s", 2, 10, 0, 1, ())
    assert is_due(None, before, 0, 0) and is_due(before, hung, 1, 1)
    assert not is_due(before, later, 10, 10) and is_due(before, later, 16, 16)
    assert not is_due(before, later, 60, 86_400) and is_due(before, later, 601, 86_400)
    assert not is_due(before, before, 9999, 9999)
