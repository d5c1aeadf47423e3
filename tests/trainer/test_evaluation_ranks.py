"""Evaluation by several ranks: real ranks under torchrun that share weights, batches and bytes find what one finds."""

from pathlib import Path
from typing import Any

import pytest

from slipway.trainer import evaluate
from slipway.trainer.base import atomic
from slipway.trainer.config import evaluating, resolved
from slipway.trainer.config.layout import UnfitLayout
from slipway.trainer.config.operation import Evaluation
from slipway.trainer.record import job_result
from slipway.trainer.record.scores import Score
from tests.trainer.conftest import Ended, Training, read_json, wait
from tests.trainer.test_evaluate import figures, request


def request_document(
    training: Training, ranks: int, evaluation: Evaluation, outcome: Path, **more: Any
) -> dict[str, Any]:
    config = evaluating.configuration(read_json(training.config), evaluation, ranks)
    return {**request(training), "config": resolved.dump(config), "outcome": str(outcome), **more}


def run(training: Training, ranks: int, document: dict[str, Any]) -> Ended:
    path = Path(document["outcome"]).with_name("request.json")
    path.write_bytes(atomic.readable_json(document))
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
    return wait(training.spawn(*agent, "slipway.trainer.evaluate", str(path)))


def scores(outcome: Path) -> list[Score]:
    result = job_result.read(outcome)
    assert result is not None and not result.failure
    return [Score(**fields) for fields in result.result["scores"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "tensor", "batch"),
    [(2, 1, 0), pytest.param(2, 2, 0, marks=pytest.mark.nightly), pytest.param(4, 2, 3, marks=pytest.mark.nightly)],
)
def test_ranks_that_share_a_model_find_the_scores_of_one_process(
    finished: Training, tmp_path: Path, ranks: int, tensor: int, batch: int
) -> None:
    document = request_document(finished, ranks, Evaluation(tensor=tensor, batch=batch), tmp_path / "outcome.json")
    ended = run(finished, ranks, document)
    assert ended.code == 0, ended.err
    alone = evaluate.evaluate(request(finished))
    shared_scores = scores(tmp_path / "outcome.json")
    assert [score.checkpoint for score in shared_scores] == [score.checkpoint for score in alone]
    assert [figures(score) for score in shared_scores] == [pytest.approx(figures(score), rel=1e-6) for score in alone]


def test_a_layout_that_does_not_divide_the_model_names_the_field_of_the_recipe(training: Training) -> None:
    settings = read_json(training.config)
    with pytest.raises(UnfitLayout) as fault:
        list(evaluating.fitting(settings, Evaluation(tensor=4), 2, 4))
    assert (fault.value.field, fault.value.actual) == ("evaluation.tensor", "4")
    assert fault.value.expected == "a divisor of model.kv_heads (2)"
    with pytest.raises(UnfitLayout, match=r"found 3, expected 0 or one of 1, 2, 4, 8, for 2 nodes of 4 ranks"):
        list(evaluating.fitting(settings, Evaluation(ranks=3), 2, 4))
    with pytest.raises(UnfitLayout, match="found 3, expected a divisor of one of 1, 2, 4, 8"):
        list(evaluating.fitting(settings, Evaluation(tensor=3), 2, 4))


def test_an_evaluation_takes_a_part_of_a_node_before_whole_nodes() -> None:
    sizes = [(candidate.nodes, candidate.ranks_per_node) for candidate in evaluating.candidates(Evaluation(), 3, 8)]
    assert sizes == [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 8)]
    assert [candidate.ranks for candidate in evaluating.candidates(Evaluation(tensor=4), 2, 8)] == [4, 8, 16]
