"""Attention inside documents and sequences that ranks share, in whole trainings: through the loader and checkpoints."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from slipway.trainer import evaluate
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.data import shards
from tests.trainer.conftest import LENGTH, Training
from tests.trainer.loaded import model_of

DOCUMENTS: dict[str, Any] = {"model": {"attention": "documents"}}


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """A training inside documents that one process took to its end without interruption. Read only."""
    return Training(tmp_path_factory.mktemp("documented"), mark, **DOCUMENTS).completed()


def close(one: Training, other: Training) -> None:
    """The same losses but for the rounding of sums in another order."""
    assert [step for step, _ in one.losses()] == [step for step, _ in other.losses()]
    assert [loss for _, loss in one.losses()] == pytest.approx([loss for _, loss in other.losses()], abs=1e-4)


@pytest.mark.slow
def test_a_training_inside_documents_that_is_killed_ends_bit_for_bit_as_one_that_is_not(
    another: Callable[..., Training], documented: Training
) -> None:
    killed = another(**DOCUMENTS).interrupted(12).completed()
    assert [event["step"] for event in killed.events("restored")] == [10]
    assert killed.losses() == documented.losses()
    assert killed.tensors() == documented.tensors()


@pytest.mark.slow
def test_ranks_that_share_sequences_leave_checkpoints_for_one_process(
    another: Callable[..., Training], documented: Training
) -> None:
    training = another(**DOCUMENTS, layout={"context": 2, "shard": "full"}).interrupted(12, ranks=2)
    training.configure(**DOCUMENTS)
    training.completed()
    assert [event["world"] for event in training.events("started")] == [2, 1]
    assert [event["step"] for event in training.events("restored")] == [10]
    close(training, documented)


@pytest.mark.slow
def test_an_evaluation_attends_inside_documents_as_the_training_did(documented: Training) -> None:
    """As long as the model sees each document of each window alone."""
    commit = documented.commits()[-1]
    checkpoint = contents.open_verified(documented.durable / commit.folder, commit.manifest)
    model = model_of(checkpoint, documented.snapshot)
    (shard,) = documented.snapshot.splits["validation"].shards
    stream, offsets = shards.open_shard(documented.durable, shard, "uint16")
    tokens = torch.from_numpy(stream.astype("int64"))
    cuts = sorted({*range(0, len(tokens) - 1, LENGTH), *offsets[:-1].tolist(), len(tokens) - 1})
    with torch.no_grad():
        losses = [
            F.cross_entropy(model(tokens[None, first:after])[0], tokens[first + 1 : after + 1], reduction="sum")
            for first, after in pairwise(cuts)
        ]
    durable = str(documented.durable)
    entry = {"name": commit.name, "folder": commit.folder, "manifest": commit.manifest}
    named = {"tier": durable, "durable": durable, "snapshot": documented.snapshot.sha256, "split": "validation"}
    [score] = evaluate.evaluate({**named, "checkpoints": [entry]})
    assert score.loss == pytest.approx(float(sum(losses)) / (len(tokens) - 1), abs=1e-5)


@pytest.mark.slow
def test_a_sequence_that_the_ranks_cannot_share_is_refused_with_a_message(training: Training) -> None:
    training.configure(layout={"context": 2}, batch={"length": LENGTH - 2})
    ended = training.run(ranks=2)
    assert ended.code == 1
    assert "trainer: field layout.context: found 2, expected a number whose double (4) divides batch.len" in ended.err
