"""Candidate and champion answer the same questions by real jobs; where they were asked others, both are asked anew."""

import pytest

from slipway.assets.generating import Generating
from slipway.assets.promotion import gate
from slipway.assets.suites.generation import answers
from slipway.assets.suites.generation.answers import AnsweredExample
from slipway.recipes.suite import GenerationSection
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, Version
from slipway.serving.records import ServingRecords
from tests.sensors.platform import Platform
from tests.serving.models import exported

MODEL, COUNT = "small", 2
SECTION = GenerationSection(tasks=("adding",), examples=COUNT)


def version(platform: Platform, number: int) -> Version:
    """A version whose export is there already."""
    durable, manifest = platform.home.durable, str(number) * 64
    target = ServingRecords(durable).export(MODEL, manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    (durable / exported(durable, number).folder).rename(target)
    return Version(MODEL, str(number), "", {MANIFEST_TAG: manifest, FOLDER_TAG: f"checkpoints/{number}"})


@pytest.mark.nightly
def test_two_versions_that_were_asked_other_questions_are_both_asked_anew(platform: Platform):
    generating, durable = Generating(platform.measuring, MODEL), platform.home.durable
    candidate, champion = version(platform, 1), version(platform, 2)
    other = [AnsweredExample(n, "asked by an earlier version", "0", "0", "exact_match", 1.0) for n in range(COUNT)]
    old = answers.keep(durable, champion.manifest, "adding", "an earlier version", other, COUNT)
    task_answers = gate.answers_of_rivals(generating, SECTION, candidate, champion)
    champion_figures = answers.known(durable, champion.manifest, "adding", COUNT)
    assert (
        champion_figures is not None
        and champion_figures.table == task_answers.hashes["champion_answers_adding"] != old.table
    )
    prompts = [[row.prompt for row in answers.examples(durable, answered_by)] for answered_by in _both(platform)]
    assert prompts[0] == prompts[1] and len(prompts[0]) == COUNT
    rivals = task_answers.rivals["adding"]
    assert rivals.champion is not None and len(rivals.candidate["exact_match"]) == COUNT
    assert len(task_answers.questions["adding"]) == COUNT
    jobs = [job.name for job in (durable / "short-jobs").iterdir()]
    assert len(jobs) == 2 and all(name.startswith("generate-") for name in jobs)


def _both(platform: Platform) -> list[answers.TaskFigures]:
    figures_of_both = [answers.known(platform.home.durable, str(n) * 64, "adding", COUNT) for n in (1, 2)]
    return [figures for figures in figures_of_both if figures is not None]
