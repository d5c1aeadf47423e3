"""Served: the champion answers, later champions follow, and what came back from its canary is champion no more."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from slipway.assets.serving import SERVES_TAG, Serving, served_key
from slipway.resources.mlflow.registry import CHAMPION, FOLDER_TAG, MANIFEST_TAG, TRAINING_TAG, Registry, Version
from slipway.resources.promotions.promotion import (
    PROMOTION,
    Judgement,
    Promotion,
    Promotions,
    champion,
    history,
    send_back,
)
from slipway.resources.serving import local
from slipway.resources.serving.local import PORT
from slipway.serving import client
from slipway.serving.records import ServedState, ServingRecords, SwitchPolicy, SwitchVerdict
from slipway.trainer.base import codec
from slipway.trainer.record.fence import Commit
from tests.conftest import until
from tests.sensors.platform import BY, TINY, Platform

MODEL = "tiny-model"
KEY = served_key(MODEL)


def promoted(platform: Platform, commit: Commit) -> Version:
    """A checkpoint that has become the champion, as the gate's record of it says."""
    model = Promotions(Registry(platform.tracking, platform.home.durable), platform.home.durable, MODEL)
    training = platform.finished().id
    tags = {MANIFEST_TAG: commit.manifest, FOLDER_TAG: commit.folder, TRAINING_TAG: training}
    version = model.registry.register(MODEL, platform.home.durable / commit.folder, "", tags)
    champion_before = model.champion()
    model.record(
        Judgement(MODEL, commit.manifest, champion_before.manifest if champion_before else "", {"a test": True}, BY)
    )
    model.promote(version, BY, "it passed")
    return version


def served(platform: Platform) -> ServingRecords:
    return ServingRecords(platform.home.durable)


def settled(platform: Platform) -> ServedState:
    until(lambda: served(platform).state(MODEL).verdict, "the verdict")
    return served(platform).state(MODEL)


def served_observations(platform: Platform) -> list[dg.AssetObservation]:
    records = platform.instance.fetch_observations(dg.AssetRecordsFilter(asset_key=KEY), limit=100).records
    return [record.asset_observation for record in records if record.asset_observation]


@pytest.mark.slow
def test_the_champion_answers_and_the_next_one_follows_it(tracked: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PORT, "0")
    first, *_, last = tracked.finished().commits()
    promoted(tracked, first)
    assert tracked.apply("serving") == []  # nobody has asked for it yet
    assert tracked.materialize([KEY]).success
    assert settled(tracked).settled is not None
    front = served(tracked).front()
    assert front is not None
    body = {"model": MODEL, "prompt": "def f", "max_tokens": 5}
    assert client.complete(front.url, body)["model"] == f"{MODEL}@1"
    promoted(tracked, last)
    [request] = tracked.apply("serving")
    assert request.tags[SERVES_TAG].startswith(f"{MODEL}:{last.manifest}:")
    assert tracked.launch(request).success
    assert settled(tracked).number == 2
    assert client.complete(front.url, body)["model"] == f"{MODEL}@2"
    until(
        lambda: len(((answering := served(tracked).answering(MODEL)) and answering.shares) or ()) == 1,
        "the front to say so",
    )
    assert tracked.apply("serving") == []
    assert served_observations(tracked)[0].metadata[f"share of {MODEL}@2"].value == 1.0
    Serving(tracked.tiers, tracked.compute, print).stop(MODEL, BY, "the test is over")
    until(lambda: not local.runs(served(tracked)), "the server to end")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_not_exported_and_the_asset_says_so(tracked: Platform):
    [commit, *_] = tracked.finished().commits()
    promoted(tracked, commit)
    weights = max((tracked.home.durable / commit.folder).rglob("model*"), key=lambda path: path.stat().st_size)
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    result = tracked.materialize([KEY])
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    assert not result.success and "found BLAKE3" in str(event.step_failure_data.error)
    assert served(tracked).state(MODEL).number == 0


def test_a_champion_that_came_back_is_champion_no_more_and_the_record_says_why(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local.LocalServing, "ensure", lambda self, records: None)  # no server is needed here
    first, *_, last = tracked.finished().commits()
    good = promoted(tracked, first)
    records = Serving(tracked.tiers, tracked.compute, print).records
    one = tracked.materialize([KEY])
    assert one.success and records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    bad = promoted(tracked, last)
    [request] = tracked.apply("serving")
    assert tracked.launch(request).success
    assert records.judge(records.state(MODEL), SwitchVerdict("back", "3 of 4 requests failed", {"failed": 0.75}))
    for _ in range(3):
        assert tracked.apply("serving") == []
    *_, last_promotion, back = history(tracked.home.durable, MODEL)
    assert (last_promotion.manifest, back.manifest) == (bad.manifest, good.manifest)
    assert back.by == "sensor serving" and back.before == bad.number
    assert back.why == f"version {bad.number} came back from its canary: 3 of 4 requests failed"
    assert back.judgement is not None and back.judgement.figures["failed"] == 0.75
    [observation] = [candidate for candidate in served_observations(tracked) if "sent_back" in candidate.metadata]
    assert "3 of 4 requests failed" in str(observation.metadata["sent_back"].value)
    tracked.apply("promotions")
    aliased = Registry(tracked.tracking, tracked.home.durable).aliased(MODEL, CHAMPION)
    assert aliased is not None and aliased.number == good.number


def test_a_champion_that_came_back_is_tried_again_when_a_person_promotes_it_again(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local.LocalServing, "ensure", lambda self, records: None)
    first, *_, last = tracked.finished().commits()
    promoted(tracked, first)
    records = Serving(tracked.tiers, tracked.compute, print).records
    tracked.materialize([KEY])
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    promoted(tracked, last)
    [request] = tracked.apply("serving")
    assert tracked.launch(request).success
    records.judge(records.state(MODEL), SwitchVerdict("back", "3 of 4 requests failed"))
    tracked.apply("serving")
    promoted(tracked, last)
    [request] = tracked.apply("serving")
    assert tracked.launch(request).success
    assert records.state(MODEL).coming is not None
    assert len(history(tracked.home.durable, MODEL)) == 4


def registered(platform: Platform, commit: Commit, passed: bool | None) -> Version:
    """A registered version that the gate let pass, rejected, or (None) never judged."""
    registry = Registry(platform.tracking, platform.home.durable)
    tags = {MANIFEST_TAG: commit.manifest, FOLDER_TAG: commit.folder, TRAINING_TAG: platform.finished().id}
    version = registry.register(MODEL, platform.home.durable / commit.folder, "", tags)
    if passed is not None:
        model = Promotions(registry, platform.home.durable, MODEL)
        model.record(Judgement(MODEL, commit.manifest, "", {"a test": passed}, BY))
    return version


def job(platform: Platform, name: str, **config: Any) -> dg.ExecuteInProcessResult:
    [op] = platform.repository.get_job(name).nodes
    return platform.repository.get_job(name).execute_in_process(
        {"ops": {op.name: {"config": config}}},
        instance=platform.instance,
        resources=platform.resources,
        raise_on_error=False,
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    return str(event.step_failure_data.error)


@pytest.mark.parametrize("percent", [100.0, 10.0])
@pytest.mark.parametrize(("passed", "reason"), [(False, "did not pass a test"), (None, "was not judged")])
def test_a_version_that_was_rejected_or_never_judged_is_not_served(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch, passed: bool | None, reason: str, percent: float
):
    monkeypatch.setattr(local.LocalServing, "ensure", lambda self, records: None)
    registered(tracked, tracked.finished().commits()[0], passed)
    result = job(tracked, "tiny_model_serve", want="serve", version=1, percent=percent)
    assert not result.success and f"model {MODEL}: version 1 {reason}" in failure(result)
    assert served(tracked).state(MODEL).number == 0


def test_a_demoted_champion_stops_answering_at_the_next_tick_and_the_next_champion_answers(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local.LocalServing, "ensure", lambda self, records: None)
    first, *_, last = tracked.finished().commits()
    promoted(tracked, first)
    records = served(tracked)
    assert tracked.materialize([KEY]).success
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    demoted = job(tracked, "tiny_model_demote", why="it leaks addresses")
    [output] = [event for event in demoted.all_events if event.event_type_value == "STEP_OUTPUT"]
    result_text = output.step_output_data.metadata["result"].value
    assert result_text == f"version 1 is the champion no more; it stops answering within seconds, and no version of {MODEL} answers after that"  # fmt: skip  # noqa: E501
    assert tracked.apply("serving") == []
    state = records.state(MODEL)
    assert (state.settled, state.coming) == (None, None)
    assert state.desired is not None and "it leaks addresses" in state.desired.why
    [observation] = [candidate for candidate in served_observations(tracked) if "withdrawn" in candidate.metadata]
    assert "it leaks addresses" in str(observation.metadata["withdrawn"].value)
    assert tracked.apply("serving") == [], "there is no champion to follow"
    result = job(tracked, "tiny_model_serve", want="serve", version=1)
    assert not result.success and "version 1 may not answer: " in failure(result)
    promoted(tracked, last)
    [request] = tracked.apply("serving")
    assert tracked.launch(request).success
    coming = records.state(MODEL).coming
    assert coming is not None and coming.checkpoint == last.manifest


def test_a_first_champion_that_came_back_leaves_the_model_without_one(tmp_path: Path):
    folder = tmp_path / "models" / MODEL / "promotions"
    first = Promotion(MODEL, "1", "a" * 64, None, "slipway:/x", {}, "gate", "it passed", 1.0)
    codec.create_only(folder / "000001.json", first, PROMOTION)
    evidence = {"wish": 1}
    assert not send_back(tmp_path, MODEL, "b" * 64, evidence, BY, "another one")
    assert send_back(tmp_path, MODEL, "a" * 64, evidence, BY, "it failed")
    assert champion(tmp_path, MODEL) is None and history(tmp_path, MODEL)[-1].why == "it failed"
    assert not send_back(tmp_path, MODEL, "a" * 64, evidence, BY, "it failed")


def test_a_policy_that_a_person_chose_holds_for_the_champions_that_follow(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local.LocalServing, "ensure", lambda self, records: None)
    first, *_, last = tracked.finished().commits()
    serving, version = Serving(tracked.tiers, tracked.compute, print), promoted(tracked, first)
    serving.serve(version, SwitchPolicy(share=0.25), True, BY, "a quarter at first")
    promoted(tracked, last)
    [request] = tracked.apply("serving")
    assert tracked.launch(request).success
    desired = serving.records.state(MODEL).desired
    assert desired is not None and desired.policy.share == 0.25 and desired.follows


def test_a_model_of_two_recipes_has_one_asset(tracked: Platform):
    other = tracked.recipe.model_copy(update={"name": "second"})
    repository = tracked.with_training(other).repository
    assert repository.asset_graph.get(KEY).parent_keys == {
        dg.AssetKey([TINY, "champion"]),
        dg.AssetKey(["second", "champion"]),
    }
