"""Incidents: each has a partition that says what happened and what it cost, and one page has all of them."""

import time
from typing import Any

import dagster as dg
import pytest

from slipway.assets import incidents as shown
from slipway.assets import keys
from slipway.resources.trainings import accounts
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import journal
from slipway.trainer.record import causes, files, incidents, ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.incidents import IncidentRecord
from tests.sensors.platform import BY, TINY, Platform

KEY = keys.key(TINY, "incident")


def failed(platform: Platform, reason: str = "node-1: rank 1 was killed", kind: str = "") -> TrainingStore:
    """A wanted training whose first incarnation failed after ten steps of a second."""
    store = platform.start_training("failing")
    assert store.claim(1, ("node-0", "node-1"), "first start", BY)
    with journal.Journal(store.folder / files.LEDGER / f"{Token(1)}.rank-0.jsonl") as ranks:
        ranks.append(*({"event": "step", "t": time.time() - 11 + step, "step": step} for step in range(1, 11)))
    store.record_exit(1, "failed", reason, BY, ("node-0", "node-1"), kind=kind)
    return store


def goes_on(store: TrainingStore, from_step: int = 8) -> None:
    """The next incarnation restores and does a step."""
    assert store.claim(2, ("node-0",), "incarnation 1 failed", BY)
    ledger.note(store.folder, Token(2), "rank-0", "restored", step=from_step, commit="x", seconds=0.1)
    ledger.note(store.folder, Token(2), "rank-0", "step", step=from_step + 1, loss=2.0, seconds=1.0)


def partitions(platform: Platform) -> list[str]:
    return platform.partitions(keys.incident_partitions(TINY))


def metadata_of(platform: Platform, key: dg.AssetKey, partition: str | None = None) -> list[dict[str, Any]]:
    """The metadata of each materialisation, the newest first."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition else None)
    records = platform.instance.fetch_materializations(where, limit=100).records
    materializations = [record.asset_materialization for record in records if record.asset_materialization]
    return [{name: value.value for name, value in every.metadata.items()} for every in materializations]


def test_a_failed_incarnation_is_an_incident_with_its_cause_and_it_says_what_it_cost_once_the_training_goes_on(
    platform: Platform,
):
    store = failed(platform)
    platform.apply("incidents")
    name = f"{store.id}.000001.0000"
    assert partitions(platform) == [name]
    [first] = metadata_of(platform, KEY, name)
    assert (first["state"], first["cause"], first["step"]) == ("recovering", "node-1: rank 1 was killed", 10)
    assert (first["nodes"], first["ranks"], first["to_be_done"]) == ("node-1", "1", "nothing")
    assert "seconds_lost" not in first
    goes_on(store)
    platform.apply("incidents")
    last, _ = metadata_of(platform, KEY, name)
    assert (last["state"], last["steps_lost"], last["resumed_from"]) == ("over", 2, 8)
    assert last["went_on"].startswith("incarnation 2 on node-0 from step 8")
    assert last["seconds_lost"] == pytest.approx(
        accounts.interruption_costs(store.folder)["000001.0000"].seconds, abs=0.01
    )
    assert "data:image/png" in last["timeline"] and "## Seconds" in last["post_mortem"]
    written = incidents.evidence(store.folder, "000001.0000") / "post-mortem.md"
    assert written.read_text() == last["post_mortem"]


def test_what_has_been_shown_is_not_shown_again(platform: Platform):
    store = failed(platform)
    goes_on(store)
    platform.apply("incidents")
    platform.apply("incidents")
    assert not platform.tick("incidents").asset_events
    assert not platform.tick("incidents").dynamic_partitions_requests


def test_an_incident_that_a_generation_survived_has_a_partition_with_its_step(platform: Platform):
    store = platform.start_training("surviving")
    assert store.claim(1, ("node-0",), "first start", BY)
    skipped = IncidentRecord(
        "000001.0002", "spike", "the loss rose to 31", "skipped the batch", "trainer", 1e9, 7, survived=True
    )
    assert store.note_incident(skipped)
    platform.apply("incidents")
    name = f"{store.id}.000001.0002.000000007"
    assert partitions(platform) == [name]
    [only] = metadata_of(platform, KEY, name)
    assert (only["state"], only["action"], only["steps_lost"]) == ("over", "skipped the batch", 0)


def test_a_training_that_was_given_up_waits_for_a_person_and_the_page_says_so_first(platform: Platform):
    store = failed(platform, "model: found 3 heads, expected an even number", causes.CONFIGURATION)
    store.want("stop", "job watch", "it would fail again", by_platform=True)
    platform.apply("incidents")
    [only] = metadata_of(platform, KEY, f"{store.id}.000001.0000")
    assert only["state"] == "waits for a person" and "recipe" in only["to_be_done"]
    [page] = metadata_of(platform, shown.OVERVIEW)
    assert page["waiting_for_a_person"] == 1
    assert "1 waits for a person" in page["summary"] and only["to_be_done"] in page["to_be_done"]
    platform.apply("incidents")
    assert platform.trainings.pending(WorkQueue.INCIDENTS) == []


def test_the_page_of_a_quiet_night_says_that_nothing_is_to_be_done(platform: Platform):
    platform.apply("incidents")
    [page] = metadata_of(platform, shown.OVERVIEW)
    assert page["summary"] == "0 incidents in 24 hours, 0 s and 0 steps lost; nothing is to be done"
    assert page["to_be_done"] == "nothing" and page["page"].endswith("There is no incident.\n")
    assert not platform.tick("incidents").asset_events


def test_a_damaged_record_is_reported_and_keeps_no_other_from_being_shown(platform: Platform):
    store = failed(platform)
    (store.folder / "incidents").mkdir()
    (store.folder / "incidents" / "000001.0009.json").write_text("{torn")
    platform.apply("incidents")
    assert partitions(platform) == [f"{store.id}.000001.0000"]
    assert any(
        "000001.0009.json" in str(observation.metadata["problem"].value)
        for observation in platform.observations(store.id)
    )


def test_incidents_of_a_training_that_is_gone_lose_their_partitions(platform: Platform):
    store = failed(platform)
    platform.add(keys.incident_partitions(TINY), "tiny-0123456789ab.000001.0000")
    platform.apply("incidents")
    assert partitions(platform) == [f"{store.id}.000001.0000"]


def test_partitions_of_trainings_that_went_since_the_process_began_are_removed_a_day_later(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    platform.apply("incidents")
    platform.add(keys.incident_partitions(TINY), "tiny-0123456789ab.000001.0000")
    platform.apply("incidents")
    assert len(partitions(platform)) == 1
    monkeypatch.setattr("slipway.sensors.incidents.PRUNE_SECONDS", 0.0)
    platform.apply("incidents")
    assert partitions(platform) == []
