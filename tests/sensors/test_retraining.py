"""Renewal: new data starts a training whose id says why, once, and within the limits of the recipe."""

import json

import dagster as dg
import pytest

from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.assets.drift import count_trained
from slipway.assets.retraining import NotRenewed, RenewedBefore, of_recipe, renew
from slipway.assets.serving import served_key
from slipway.assets.suites import making, measured, suite
from slipway.recipes.renewal import RenewalSection
from slipway.recipes.suite import HeldOutSection
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, SNAPSHOT_TAG
from slipway.resources.promotions.promotion import PROMOTION, Promotion
from slipway.resources.serving import local, wishes
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.serving import request_statistics
from slipway.serving.records import ServedVersion, ServingRecords, SwitchPolicy, SwitchVerdict
from slipway.trainer.base import codec, lock
from slipway.trainer.data import shards
from tests.sensors.platform import BY, Platform
from tests.serving.models import exported

MODEL = "tiny-model"


def renewing(platform: Platform, cool_down_hours: float = 0.0, gpu_hours: float | None = None) -> Platform:
    """The platform with a recipe that is trained anew when a tenth of its documents is new."""
    section = RenewalSection(new_data=0.1, cool_down_hours=cool_down_hours, gpu_hours=gpu_hours)
    return platform.with_training(platform.recipe.model_copy(update={"renewal": section}))


def grow(platform: Platform, documents: int) -> str:
    """Add documents to the corpus and build its snapshot; returns its SHA-256."""
    for number in range(documents):
        text = " ".join(f"fresh{number}word{word}" for word in range(50))
        (platform.root / "corpus" / f"fresh-{number}.txt").write_text(text)
    dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
    source = steps.make_documents(dataset, durable).inputs["source"]["digest"]
    steps.make_tokenizer(dataset, durable)
    sha256 = steps.make_snapshot(dataset, durable).result["sha256"]
    pointer.point(durable, dataset.name, sha256, source)
    return str(sha256)


def documents(platform: Platform) -> int:
    current = pointer.current(platform.home.durable, "texts")
    assert current is not None
    return int(shards.read_manifest(platform.home.durable, current).documents["kept"])


def test_a_snapshot_with_enough_new_documents_starts_one_training_whose_cause_is_the_snapshot(platform: Platform):
    before = {store.id for store in platform.trainings.stores()}
    platform = renewing(platform)
    current = grow(platform, documents(platform) // 4)
    for _ in range(2):
        platform.apply("renewals")
    [store] = [candidate for candidate in platform.trainings.stores() if candidate.id not in before]
    assert store.specification().cause == f"new data {current[:12]}"
    assert store.specification().snapshot == current
    assert store.run_policy().origin["renewal"] == "new data"
    assert platform.trainings.pending(WorkQueue.RUN) == [store.id]


def test_a_few_new_documents_start_nothing(platform: Platform):
    platform = renewing(platform)
    grow(platform, 1)
    platform.apply("renewals")
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_what_the_cool_down_holds_back_is_looked_at_again(platform: Platform):
    platform = renewing(platform, cool_down_hours=1000.0)
    grow(platform, documents(platform) // 4)
    platform.apply("renewals")
    assert platform.trainings.pending(WorkQueue.RUN) == []
    assert json.loads(platform.cursors["renewals"] or "{}") == {}


def test_a_spent_budget_holds_a_training_back(platform: Platform):
    platform = renewing(platform, gpu_hours=1e-9)
    grow(platform, documents(platform) // 4)
    platform.apply("renewals")
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_a_cause_that_is_found_again_starts_no_training_that_a_person_has_stopped(platform: Platform):
    platform = renewing(platform)
    current = grow(platform, documents(platform) // 4)
    store = renewed(platform, f"new data {current[:12]}")
    store.want("stop", BY, "not now")
    with pytest.raises(RenewedBefore, match=f"{store.id} was already started for new data {current[:12]}"):
        renewed(platform, f"new data {current[:12]}")
    desired = store.desired()
    assert desired is not None and desired.want == "stop"


def test_an_earlier_training_that_is_stopped_late_is_not_the_newest_one(platform: Platform):
    """What it was trained on is older than the newest training's data: it would begin again on the same."""
    known = {store.id for store in platform.trainings.stores()}
    [first] = [store for store in platform.trainings.stores() if store.desired()]
    platform = renewing(platform)
    current = grow(platform, documents(platform) // 4)
    again = renewed(platform, "a fall")
    first.want("stop", BY, "it is not needed any more")
    assert [entry.store.id for entry in of_recipe(platform.trainings, platform.recipe.name)][-1] == again.id
    platform.apply("renewals")
    assert json.loads(platform.cursors["renewals"] or "{}") == {platform.recipe.name: current}
    assert {store.id for store in platform.trainings.stores()} == {*known, again.id}


def test_a_renewal_waits_for_another_one_that_has_not_begun_its_training(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    """Both would find that the cool-down is over."""
    platform = renewing(platform)
    monkeypatch.setattr("slipway.assets.retraining.STARTING_SECONDS", 0.1)
    with (
        lock.exclusive(platform.trainings.root),
        pytest.raises(NotRenewed, match=r"another training is being started: .* is locked by process"),
    ):
        renewed(platform, "a fall")


def renewed(platform: Platform, cause: str) -> TrainingStore:
    return renew(
        platform.recipes.trainings[platform.recipe.name],
        cause,
        {"renewal": "quality"},
        platform.tiers,
        platform.tracking,
        platform.instance,
        BY,
    )


def test_a_checkpoint_is_measured_on_each_document_of_a_suite_once(platform: Platform):
    from slipway.assets.promotion.evaluation_set import EvaluationSet

    store, durable = platform.finished(), platform.home.durable
    snapshot = shards.read_manifest(durable, store.specification().snapshot)
    suite_record = making.of_snapshot(durable, snapshot, HeldOutSection())
    assert (
        making.of_snapshot(durable, snapshot, HeldOutSection())
        == suite_record
        == suite.read(durable, suite_record.sha256)
    )
    examples = tuple(suite.examples(durable, suite_record))
    evaluation_set = EvaluationSet(platform.measuring, suite_record.sha256, suite_record, examples)
    measurement, table = evaluation_set.measure(store.commits()[-1], store.run_policy(), snapshot)
    assert len(table.losses) == len(examples) == snapshot.splits["validation"].documents
    assert measurement.compared == measurement.bits_per_byte > 0
    assert measured.known(durable, suite_record.sha256, store.commits()[-1].manifest) == measurement


def test_documents_of_another_kind_start_one_training_whose_cause_is_the_drift(platform: Platform):
    before = {store.id for store in platform.trainings.stores()}
    section = RenewalSection(new_data=0.9, drift=0.25, cool_down_hours=0.0)
    platform = platform.with_training(platform.recipe.model_copy(update={"renewal": section}))
    current = grow(platform, documents(platform) // 2)
    for _ in range(2):
        platform.apply("renewals")
    [store] = [candidate for candidate in platform.trainings.stores() if candidate.id not in before]
    assert store.specification().cause == f"drift {current[:12]}"
    assert store.run_policy().origin["renewal"] == "drift" and store.run_policy().origin["lengths"] >= 0.25


def test_new_documents_like_the_others_are_no_drift(platform: Platform):
    section = RenewalSection(drift=10.0, cool_down_hours=0.0)
    platform = platform.with_training(platform.recipe.model_copy(update={"renewal": section}))
    grow(platform, documents(platform) // 2)
    platform.apply("renewals")
    assert platform.trainings.pending(WorkQueue.RUN) == []
    assert json.loads(platform.cursors["renewals"] or "{}") != {}


def answering_champion(platform: Platform) -> ServedVersion:
    """The first training's last checkpoint is the champion, has all of the traffic, and its documents are counted."""
    durable, trained = platform.home.durable, platform.finished()
    snapshot, commit = trained.specification().snapshot, trained.commits()[-1]
    tags = {SNAPSHOT_TAG: snapshot, FOLDER_TAG: commit.folder, MANIFEST_TAG: commit.manifest}
    promotion_record = Promotion(MODEL, "1", commit.manifest, None, "slipway:/x", tags, "gate", "it passed", 1.0)
    codec.create_only(durable / "models" / MODEL / "promotions" / "000001.json", promotion_record, PROMOTION)
    export = exported(durable, 1)
    version = ServedVersion("1", commit.manifest, export.folder, export.manifest)
    records = ServingRecords(durable)
    state = wishes.serve(records, MODEL, version, SwitchPolicy(), True, BY, "a test")
    assert records.judge(state, SwitchVerdict("all", "seen"))
    count_trained(durable, MODEL, version, snapshot)
    return version


def ask(platform: Platform, version: ServedVersion, text: str) -> None:
    """What a front counts of 300 questions."""
    durable, counts = platform.home.durable, request_statistics.TextCounts()
    for _ in range(300):
        counts.add(text, list(text.encode()))
    name = request_statistics.tokenizer_of(durable / version.folder)
    request_statistics.RequestRecords(durable, MODEL).keep(request_statistics.today(), name, "a-front", counts)


def test_questions_unlike_the_training_data_start_one_training_once_there_are_newer_data(platform: Platform):
    section = RenewalSection(live_drift=0.5, cool_down_hours=0.0)
    platform = platform.with_training(platform.recipe.model_copy(update={"renewal": section}))
    version, before = answering_champion(platform), {store.id for store in platform.trainings.stores()}

    def began() -> list[TrainingStore]:
        for _ in range(2):
            platform.apply("renewals")
        return [candidate for candidate in platform.trainings.stores() if candidate.id not in before]

    assert began() == []
    ask(platform, version, "Der schnelle braune Fuchs springt über den faulen Hund, und niemand stört sich daran.")
    assert began() == []  # on the same data it would be the same training
    current = grow(platform, 1)
    [store] = began()
    assert store.specification().cause == f"live requests {current[:12]}"
    assert store.run_policy().origin["renewal"] == "live requests" and store.run_policy().origin["asked"] == 300
    [store] = began()


def test_the_asset_shows_once_a_day_what_is_asked_beside_what_was_trained_on(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local.LocalServing, "ensure", lambda self, records: None)
    ask(platform, answering_champion(platform), "Der schnelle braune Fuchs springt über den faulen Hund.")
    for _ in range(2):
        platform.apply("serving")
    where = dg.AssetRecordsFilter(asset_key=served_key(MODEL))
    observations = [
        record.asset_observation for record in platform.instance.fetch_observations(where, limit=10).records
    ]
    [observation] = [candidate for candidate in observations if candidate is not None and "asked" in candidate.metadata]
    assert observation.metadata["asked"].value == 300 and observation.metadata["asked_languages_drift"].value > 0.25  # type: ignore[operator]
    assert "300 requests in 7 days (de 100%)" in str(observation.description)
