"""The gate on a real checkpoint: its answers to generation tasks count, a suite that it was
trained on refuses it, and one that changes is measured anew."""

import dataclasses

import pytest

from slipway.assets import keys
from slipway.assets.measurement import Measuring
from slipway.assets.promotion.gate import Gate
from slipway.assets.promotion.policy_checks import ANSWERS_TASKS, SUITE_IS_UNSEEN
from slipway.assets.suites import leaks, making, measured
from slipway.assets.suites.generation import answers
from slipway.assets.suites.generation.answers import AnsweredExample
from slipway.recipes.gate import TaskLimit
from slipway.recipes.suite import GenerationSection, SuiteRecipe
from slipway.resources.mlflow.registry import CANDIDATE, Registry, Version
from slipway.resources.promotions.promotion import NotPromoted
from slipway.resources.trainings.records import RunPolicy
from slipway.trainer.data import shards
from slipway.trainer.data.shards import TextSnapshot
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import Score
from tests.sensors.platform import BY, TINY, Platform

SUITE_NAME = "held"
COUNT = 4


def suite(edition: int = 1, generation: GenerationSection | None = None) -> SuiteRecipe:
    return SuiteRecipe(
        name=SUITE_NAME, dataset="texts", continuation=None, arithmetic=None, edition=edition, generation=generation
    )


def gate_of(platform: Platform, held_out: SuiteRecipe, measuring: Measuring | None = None, **limits: TaskLimit) -> Gate:
    policy = platform.recipe.gate.model_copy(update={"tasks": limits})
    recipe = platform.recipe.model_copy(update={"suite": SUITE_NAME, "gate": policy})
    measuring = measuring or platform.measuring
    return Gate(measuring, platform.tracking, recipe.registered_model, {TINY: recipe}, {SUITE_NAME: held_out})


@pytest.fixture
def candidate(tracked: Platform) -> Version:
    """The best checkpoint of the finished training, registered."""
    tracked.materialize([keys.key(TINY, "candidate")], tracked.finished().id)
    version = Registry(tracked.tracking, tracked.home.durable).aliased("tiny-model", CANDIDATE)
    assert version is not None
    return version


def answer(platform: Platform, version: Version, right: int, question: str = "{} + 1 =") -> str:
    """Put answers of a version on record, so many of them right; returns their hash."""
    rows = [
        AnsweredExample(n, question.format(n), str(n + 1), "?", "exact_match", float(n < right)) for n in range(COUNT)
    ]
    return answers.keep(platform.home.durable, version.manifest, "adding", "a test", rows, COUNT).table


def snapshot(platform: Platform) -> TextSnapshot:
    """What the finished training was trained on."""
    return shards.read_manifest(platform.home.durable, platform.finished().specification().snapshot)


@pytest.mark.slow
def test_a_candidate_whose_answers_are_below_the_floor_or_whose_questions_it_has_seen_does_not_pass(
    tracked: Platform, candidate: Version
):
    section = GenerationSection(tasks=("adding",), examples=COUNT)
    gate = gate_of(tracked, suite(generation=section), adding=TaskLimit(at_least=0.5))
    answer(tracked, candidate, right=1)
    low = gate.judge(candidate, BY)
    assert low.failed == [ANSWERS_TASKS]
    with pytest.raises(NotPromoted, match=r"adding: exact_match is 0\.25, expected at least 0\.5"):
        gate.promote(candidate, BY, "asked")
    table = answer(tracked, candidate, right=2)
    high = gate.judge(candidate, BY)
    assert high.passed and high.inputs["candidate_answers_adding"] == table
    assert high.figures["checks"][ANSWERS_TASKS]["tasks"]["adding"]["mean"] == 0.5
    assert high.figures["checks"][SUITE_IS_UNSEEN]["questions"]["adding"]["leaked"] == 0

    learnt = next(leaks.of_split(tracked.home.durable, snapshot(tracked), "train"))
    answer(tracked, candidate, right=COUNT, question="{}. " + learnt.replace("{", "").replace("}", ""))
    judgement = gate.judge(candidate, BY)
    assert judgement.failed == [SUITE_IS_UNSEEN]
    with pytest.raises(NotPromoted, match=r"give away 4 of the 4 questions of task adding"):
        gate.promote(candidate, BY, "asked")


@dataclasses.dataclass(frozen=True)
class Changing(Measuring):
    """Measuring during which somebody raises the suite's edition, once."""

    suites: dict[str, SuiteRecipe] = dataclasses.field(default_factory=dict)

    def measure_each(self, snapshot: str, commit: Commit, policy: RunPolicy, calibrated: int | None = None) -> Score:
        score = super().measure_each(snapshot, commit, policy, calibrated)
        if self.suites[SUITE_NAME].edition == 1:
            self.suites[SUITE_NAME] = suite(edition=2)
            making.named(self.tiers.durable_path, self.suites[SUITE_NAME])
        return score


@pytest.mark.slow
def test_a_suite_that_becomes_another_one_while_models_are_measured_is_measured_on_anew(
    tracked: Platform, candidate: Version
):
    suites, durable = {SUITE_NAME: suite()}, tracked.home.durable
    measuring = Changing(tracked.tiers, tracked.compute, suites=suites)
    gate = dataclasses.replace(gate_of(tracked, suites[SUITE_NAME], measuring), suites=suites)
    before, judgement = making.named(durable, suite()).sha256, gate.judge(candidate, BY)
    after = making.named(durable, suite(edition=2)).sha256
    assert before != after == judgement.inputs["suite"]
    figures = measured.known(durable, after, candidate.manifest)
    assert figures is not None and judgement.inputs["candidate_examples"] == figures.table


@pytest.mark.slow
def test_a_candidate_that_was_trained_on_its_suite_does_not_pass_unless_the_policy_only_tells_it(
    tracked: Platform, candidate: Version
):
    known = suite().model_copy(update={"split": "all"})  # the training documents too
    gate = gate_of(tracked, known)
    refused = gate.judge(candidate, BY)
    assert refused.failed == [SUITE_IS_UNSEEN]
    contamination = refused.figures["checks"][SUITE_IS_UNSEEN]
    assert 0 < contamination["leaked"] < contamination["suite_documents"] and contamination["compared_with"] == [
        tracked.finished().specification().snapshot
    ]
    counts = f"{contamination['leaked']} of the {contamination['suite_documents']} documents"
    message = f"give away {counts} of suite held, expected at most"
    with pytest.raises(NotPromoted, match=message):
        gate.promote(candidate, BY, "asked")
    policy = gate.recipes[TINY].gate.model_copy(update={"leaks": "reported"})
    recipe = gate.recipes[TINY].model_copy(update={"gate": policy})
    lenient = dataclasses.replace(gate, recipes={TINY: recipe}).judge(candidate, BY)
    tolerated = lenient.figures["checks"][SUITE_IS_UNSEEN]
    assert (
        lenient.passed
        and tolerated["leaked"] == contamination["leaked"]
        and "gate.leaks lets it pass" in tolerated["note"]
    )
