"""Evaluation: the score of a checkpoint on every token of a split, measured in a process of its own."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from slipway.trainer import evaluate
from slipway.trainer.base import atomic
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.data import shards
from slipway.trainer.record import scores
from tests.trainer.checkpoints import save_of
from tests.trainer.conftest import LENGTH, Training, read_json, wait
from tests.trainer.loaded import model_of


def request(training: Training) -> dict[str, Any]:
    entries = [{"name": c.name, "folder": c.folder, "manifest": c.manifest} for c in training.commits()]
    durable = str(training.durable)
    named = {"tier": durable, "durable": durable, "snapshot": training.snapshot.sha256, "split": "validation"}
    return {**named, "checkpoints": entries}


@pytest.fixture(scope="module")
def measured(finished: Training) -> list[scores.Score]:
    return evaluate.evaluate(request(finished))


def test_every_checkpoint_has_a_score_and_later_ones_are_better(
    finished: Training, measured: list[scores.Score]
) -> None:
    assert [score.checkpoint for score in measured] == [commit.name for commit in finished.commits()]
    losses = [score.loss for score in measured]
    assert losses == sorted(losses, reverse=True)
    assert not any(score.damaged for score in measured)


def test_a_score_is_the_mean_loss_over_every_token_that_has_a_predecessor(
    finished: Training, measured: list[scores.Score]
) -> None:
    commit = finished.commits()[-1]
    model = model_of(contents.open_verified(finished.durable / commit.folder, commit.manifest), finished.snapshot)
    (shard,) = finished.snapshot.splits["validation"].shards
    stream = torch.from_numpy(shards.open_shard(finished.durable, shard, "uint16")[0].astype("int64"))
    losses, right = [], []
    with torch.no_grad():
        for start in range(0, len(stream) - 1, LENGTH):
            row = stream[start : start + LENGTH + 1]
            logits = model(row[None, :-1])[0]
            losses.append(F.cross_entropy(logits, row[1:], reduction="none"))
            right.append(logits.argmax(-1) == row[1:])
    score = measured[-1]
    assert score.tokens == len(stream) - 1 == 499
    assert score.loss == pytest.approx(float(torch.cat(losses).mean()), abs=1e-5)
    assert score.accuracy == pytest.approx(float(torch.cat(right).float().mean()), abs=1e-6)


def test_perplexity_is_exp_of_the_loss_and_bits_per_byte_divide_the_bits_by_the_text(
    finished: Training, measured: list[scores.Score]
) -> None:
    split = finished.snapshot.splits["validation"]
    for score in measured:
        assert score.perplexity == pytest.approx(math.exp(score.loss))
        assert score.bits_per_byte == pytest.approx(score.loss / math.log(2) * split.tokens / split.text_bytes)


def test_a_perplexity_too_high_for_a_float_is_still_a_number() -> None:
    assert math.isfinite(scores.perplexity(1e6))


def test_a_damaged_checkpoint_gets_a_score_with_the_reason_and_the_others_are_measured(
    tmp_path: Path, finished: Training, measured: list[scores.Score]
) -> None:
    evaluation_request = request(finished)
    shutil.copytree(finished.durable, tmp_path / "durable")
    first = tmp_path / "durable" / evaluation_request["checkpoints"][0]["folder"] / "model-00000.safetensors"
    first.write_bytes(first.read_bytes()[:-1] + b"\xff")
    results = evaluate.evaluate({**evaluation_request, "durable": str(tmp_path / "durable")})
    assert "model-00000.safetensors: found BLAKE3" in results[0].damaged
    assert (results[0].loss, results[0].tokens) == (0, 0)
    assert results[1:] == measured[1:]


def test_a_checkpoint_whose_loss_is_not_finite_gets_a_score_with_the_reason(tmp_path: Path, finished: Training) -> None:
    evaluation_request = request(finished)
    entry = evaluation_request["checkpoints"][0]
    checkpoint = contents.open_verified(finished.durable / entry["folder"], entry["manifest"])
    model = model_of(checkpoint, finished.snapshot)
    torch.nn.init.constant_(model.get_parameter("norm.weight"), math.nan)
    commit = save_of(tmp_path, model, checkpoint.progress())
    spoilt = {"name": "spoilt", "folder": commit.folder, "manifest": commit.manifest}
    (score,) = evaluate.evaluate({**evaluation_request, "durable": str(tmp_path / "durable"), "checkpoints": [spoilt]})
    assert score.damaged == "its loss on the validation split is nan"


def figures(score: scores.Score) -> tuple[float, ...]:
    return (score.loss, score.perplexity, score.bits_per_byte, score.accuracy, score.tokens)


@pytest.mark.slow
def test_the_command_writes_all_scores_to_the_output_of_the_request(
    training: Training, finished: Training, measured: list[scores.Score]
) -> None:
    output = training.folder / "scores.json"
    request_path = training.folder / "request.json"
    request_path.write_bytes(atomic.readable_json({**request(finished), "output": str(output)}))
    ended = wait(training.spawn("slipway.trainer.evaluate", str(request_path)))
    assert ended.code == 0, ended.err
    answer = read_json(output)
    assert answer["format"] == scores.FORMAT
    # Another process may add up with another number of threads.
    command_scores = [scores.Score(**score) for score in answer["scores"]]
    assert [score.checkpoint for score in command_scores] == [score.checkpoint for score in measured]
    assert [figures(score) for score in command_scores] == [
        pytest.approx(figures(score), rel=1e-6) for score in measured
    ]


def test_without_a_request_the_usage_is_printed(training: Training) -> None:
    ended = wait(training.spawn("slipway.trainer.evaluate"))
    assert (ended.code, ended.err) == (2, "usage: python -m slipway.trainer.evaluate REQUEST.json\n")


def test_each_document_alone_has_the_loss_of_its_tokens_after_the_end_of_another(finished: Training) -> None:
    commit, snapshot = finished.commits()[-1], finished.snapshot
    evaluation_request = request(finished)
    [score] = evaluate.evaluate(
        {**evaluation_request, "each": True, "checkpoints": evaluation_request["checkpoints"][-1:]}
    )
    model = model_of(contents.open_verified(finished.durable / commit.folder, commit.manifest), snapshot)
    (shard,) = snapshot.splits["validation"].shards
    assert score.examples is not None and len(score.examples.losses) == shard.documents
    assert sum(score.examples.predicted) == shard.tokens  # the first token of each is predicted too
    for index, body in enumerate(shards.documents(finished.durable, shard, snapshot.dtype)):
        end = snapshot.tokenizer.end_of_document
        stream, total = torch.tensor([end, *body.tolist()]), 0.0
        with torch.no_grad():
            for start in range(0, len(stream) - 1, LENGTH):
                row = stream[start : start + LENGTH + 1]
                total += float(F.cross_entropy(model(row[None, :-1])[0], row[1:], reduction="sum"))
        assert score.examples.losses[index] == pytest.approx(total, rel=1e-4)
    assert sum(count for count, _, _ in score.examples.confidence) == shard.tokens
    assert sum(right for _, _, right in score.examples.confidence) == sum(score.examples.right)
