"""The circle: new data leads to a champion that answers, and a fall in quality to the one before, with no hand on it.

Sensors are evaluated and the runs that they request are executed, as Dagster's daemon does; people only ask the model.
Everything else is real: the trainer, the gate, MLflow's registry, the server with its canary.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.assets.serving import Serving, champion_of, served_key
from slipway.recipes.renewal import RenewalSection
from slipway.resources.mlflow.registry import CHAMPION, Registry
from slipway.resources.promotions.promotion import history
from slipway.resources.serving import local
from slipway.resources.serving.local import PORT
from slipway.serving import client
from slipway.serving.records import ServingRecords, SwitchPolicy
from tests.conftest import until
from tests.sensors.platform import BY, TINY, Platform

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(5400)]
MODEL = "tiny-model"
SENSORS = ("renewals", "job_watch", "checkpoint_arrivals", "promotions", "serving")
LENGTH = 64
"""Tokens that a model reads: what people ask, and what it answers."""
FOX = "the quick brown fox jumps over the lazy dog "
JUDGED = {"slice_margin": None}
"""What is new here is unlike what was there before, and so small a model forgets the one over the other: a policy that
wants no slice to be worse holds such a champion back, and its fall could not be seen."""
DRIVE_SECONDS = 1500.0
"""What a training, its evaluations, its judgement and a switch take on a machine with much other work."""
POLICY = SwitchPolicy(share=0.5, latency_ratio=50.0)
"""A busy machine answers one of two versions late for a while; how late is no subject here."""


class People:
    """Those who ask the model all the time, about what they have at the moment."""

    def __init__(self, url: str, texts: list[str]) -> None:
        self.url, self.texts = url, texts
        self.failed, self.answered = list[str](), dict[str, int]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "People":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        for number in itertools.count():
            if self._over.is_set():
                return
            prompt = self.texts[number % len(self.texts)][:40]
            try:
                answer = client.complete(self.url, {"model": MODEL, "prompt": prompt, "max_tokens": 4})
                self.answered[answer["model"]] = self.answered.get(answer["model"], 0) + 1
            except client.NotAnswered as error:
                self.failed.append(str(error))


def snapshot(platform: Platform) -> str:
    """What the dataset's own schedule does: build the corpus of now, and point to it."""
    dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
    source = steps.make_documents(dataset, durable).inputs["source"]["digest"]
    steps.make_tokenizer(dataset, durable)
    sha256 = steps.make_snapshot(dataset, durable).result["sha256"]
    pointer.point(durable, dataset.name, sha256, source)
    return str(sha256)


def drive(platform: Platform, done: Callable[[], object], what: str) -> None:
    """Evaluate the sensors, and execute what they ask for, until something is so."""

    def turn() -> object:
        for sensor in SENSORS:
            for request in platform.apply(sensor):
                platform.launch(request)
        return done()

    until(turn, what, DRIVE_SECONDS)


def settled_on(platform: Platform, manifest: str) -> bool:
    """Whether all of the traffic goes to a checkpoint."""
    state = ServingRecords(platform.home.durable).state(MODEL)
    return state.settled is not None and state.settled.checkpoint == manifest and state.coming is None


@pytest.fixture
def renewing(tracked: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """A platform whose first champion answers; its recipe is trained anew on new data, and its quality is watched."""
    monkeypatch.setenv(PORT, "0")
    renewal = RenewalSection(new_data=0.1, quality="0 * * * *", cool_down_hours=0.0)
    batch = dataclasses.replace(tracked.recipe.batch, length=LENGTH)
    judged = tracked.recipe.gate.model_copy(update=JUDGED)
    platform = tracked.with_training(
        tracked.recipe.model_copy(update={"renewal": renewal, "gate": judged, "batch": batch})
    )
    platform.start_training(batch={"length": LENGTH})
    drive(platform, lambda: champion_of(platform.tiers, MODEL), "the first champion")
    serving, first = Serving(platform.tiers, platform.compute, print), champion_of(platform.tiers, MODEL)
    assert first is not None
    serving.serve(first, POLICY, True, BY, "people wait for it")
    until(lambda: settled_on(platform, first.manifest), "the first champion to answer", 300.0)
    yield platform
    serving.stop(MODEL, BY, "the test is over")
    until(lambda: not local.runs(serving.records), "the server to end", 300.0)


def test_new_data_leads_to_a_champion_that_answers_and_a_fall_in_quality_to_the_one_before(renewing: Platform):
    platform, corpus = renewing, renewing.root / "corpus"
    front, first = ServingRecords(platform.home.durable).front(), champion_of(platform.tiers, MODEL)
    assert front is not None and first is not None
    old_texts = [path.read_text() for path in sorted(corpus.rglob("*.py"))]

    for number in range(150):
        (corpus / f"fox-{number}.txt").write_text(FOX * 8 + str(number))
    with People(front.url, [FOX]) as people:
        grown = snapshot(platform)
        drive(platform, lambda: champion_of(platform.tiers, MODEL) != first, "the next champion")
        second = champion_of(platform.tiers, MODEL)
        assert second is not None
        drive(platform, lambda: settled_on(platform, second.manifest), "the next champion to answer")

        [store] = [candidate for candidate in platform.trainings.stores() if candidate.id == second.training]
        assert store.specification().cause == f"new data {grown[:12]}"
        assert store.run_policy().origin["renewal"] == "new data"
        promotion = history(platform.home.durable, MODEL)[-1]
        assert (
            promotion.by.startswith("sensor promotions, run ")
            and promotion.judgement is not None
            and promotion.judgement.passed
        )
        until(lambda: people.answered.get(f"{MODEL}@{second.number}", 0) > 20, "its answers")

        people.texts = old_texts
        for path in corpus.glob("fox-*.txt"):
            path.unlink()
        snapshot(platform)
        watch = platform.repository.get_job(f"{keys.lane(TINY)}_quality")
        assert watch.execute_in_process(instance=platform.instance, raise_on_error=False).success
        back = history(platform.home.durable, MODEL)[-1]
        assert back.by == "quality watch" and "it has fallen" in back.why
        assert (back.manifest, back.before) == (first.manifest, second.number)
        [again] = [
            candidate
            for candidate in platform.trainings.stores()
            if candidate.specification().cause.startswith("quality ")
        ]
        again.want("stop", BY, "what follows is no part of this test")
        drive(platform, lambda: settled_on(platform, first.manifest), "the champion before to answer again")
    assert people.failed == []
    aliased = Registry(platform.tracking, platform.home.durable).aliased(MODEL, CHAMPION)
    assert aliased is not None and aliased.number == first.number
    observations = platform.instance.fetch_observations(
        dg.AssetRecordsFilter(asset_key=served_key(MODEL)), limit=1
    ).records
    assert observations, "what answers is shown on the asset"
