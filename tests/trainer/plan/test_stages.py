"""The plan's measure is held to real trainings: the peak of the tensors of real ranks, on the CPU."""

import dataclasses

import pytest

from slipway.trainer.config.sections import Batch
from slipway.trainer.config.shapes import Data
from slipway.trainer.plan import stages
from tests.trainer import recurrent
from tests.trainer.plan.layouts import DECODER, LAYOUTS, TOKENS, measured_peaks, question

QUICK = {"alone", "full-shard"}
CLOSE = 0.10


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_the_peak_is_what_real_ranks_reach_within_ten_per_cent(name: str) -> None:
    _compare(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(LAYOUTS.keys() - QUICK))
def test_the_peak_is_what_real_ranks_reach_in_every_layout(name: str) -> None:
    _compare(name)


def _compare(name: str) -> None:
    planned = sorted(stage.peak for stage in stages.measure(LAYOUTS[name]))
    assert planned[-1] == pytest.approx(measured_peaks(LAYOUTS[name])[-1], rel=CLOSE)


@pytest.mark.parametrize(("name", "context"), [("replicas", 1), ("context", 2)])
def test_ranks_that_average_gradients_are_planned_without_the_answers_of_others(name: str, context: int) -> None:
    """DDP's reducer needs real answers; its buckets, as large as the gradients, are added."""
    [stage_measure] = stages.measure(LAYOUTS[name])
    assert LAYOUTS[name].mesh.context == context
    assert stage_measure.parts["communication"] == stage_measure.trained == stage_measure.sent["replicas"]


@pytest.mark.slow
def test_a_model_that_its_constructor_draws_is_planned_too() -> None:
    [stage_measure] = stages.measure(question(recurrent.Shape(kind="tests.trainer.recurrent", width=32)))
    matrices = {"weight_ih": 96 * 32, "weight_hh": 96 * 32, "biases": 2 * 96}
    assert stage_measure.parameters == sum(matrices.values()) + TOKENS.vocabulary * (32 + 32 + 1)


@pytest.mark.slow
def test_ranks_that_divide_the_vocabulary_have_a_part_of_the_logits() -> None:
    """Logits, and one fp32 buffer of their probabilities, where one rank alone has three tensors of this size."""
    model, tokens = dataclasses.replace(DECODER, layers=2), Data(vocabulary=32001, length=128)
    alone, both = (
        stages.measure(question(model, ranks=ranks, data=tokens, tensor=ranks))[0].peaks["logits"] for ranks in (1, 4)
    )
    logits_bytes = 4 * 4 * 128 * 32001
    assert alone["logits"] == pytest.approx(3 * logits_bytes, rel=0.01)
    assert both["logits"] == pytest.approx(2 * logits_bytes / 4, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("activations", ["keep", "recompute"])
def test_a_deep_model_needs_what_its_few_blocks_say(monkeypatch: pytest.MonkeyPatch, activations: str) -> None:
    """Three and five blocks stand for all: beside it, all of them are run."""
    plan_question = question(ranks=2, shard="full", activations=activations)
    [from_few] = stages.measure(plan_question)
    monkeypatch.setattr(stages, "MORE", 8)
    [of_all_blocks] = stages.measure(plan_question)
    assert from_few.peak == pytest.approx(of_all_blocks.peak, rel=0.01)
    assert from_few.parameters == of_all_blocks.parameters and from_few.checkpoint == of_all_blocks.checkpoint


@pytest.mark.nightly
def test_a_long_pipeline_needs_what_its_first_micro_batches_say(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_question = question(ranks=2, pipeline=2)
    plan_question = dataclasses.replace(plan_question, batch=Batch(sequences=32, length=128, micro=4))
    from_few = stages.measure(plan_question)
    monkeypatch.setattr(stages, "PARTS_PER_STAGE", 4)
    of_all_parts = stages.measure(plan_question)
    for few, every in zip(from_few, of_all_parts, strict=True):
        assert few.peak == pytest.approx(every.peak, rel=0.01)
