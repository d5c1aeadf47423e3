"""Every kind of model, trained by the real trainer: it learns, goes on exactly, and is measured; or it is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from slipway.trainer import evaluate
from slipway.trainer.base import atomic
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.record.scores import Score
from slipway.trainer.start import initial
from tests.trainer.conftest import VOCAB, Sections, Training, make_snapshot, read_json
from tests.trainer.digits import HELD_OUT, RESNET, VIT, make_digits, sections
from tests.trainer.test_evaluate import request

ENCODER: dict[str, Any] = {"kind": "encoder", "layers": 2, "width": 32, "heads": 4, "hidden": 64}
RECURRENT: dict[str, Any] = {"kind": "tests.trainer.recurrent", "width": 32}


def on_digits(folder: Path, mark: str, model: dict[str, Any], **changed: dict[str, Any]) -> Training:
    return Training(folder, mark, make_digits, **sections(model, **changed))


def on_tokens(folder: Path, mark: str, model: dict[str, Any], steps: int) -> Training:
    changed: Sections = {
        "batch": {"sequences": 16, "micro": 16},
        "run": {"steps": steps},
        "checkpoint": {"every": steps},
    }
    return Training(folder, mark, make_snapshot, **changed, model=model, validation={"every": steps})


def held_out_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The pictures that `make_digits` holds out, as models see them, and their classes."""
    dataset = load_digits()
    pixels = torch.from_numpy((dataset.images * 15).astype(np.uint8)[::5, None])
    return pixels.float() / 127.5 - 1, torch.from_numpy(dataset.target[::5]).long()


def last_score(training: Training) -> Score:
    return evaluate.evaluate(request(training))[-1]


@pytest.mark.slow
def test_a_residual_network_learns_digits(tmp_path: Path, mark: str) -> None:
    """More than 85 % of held-out pictures are classified right; by chance it would be 10 %."""
    changed: Sections = {"optimizer": {"learning_rate": 0.02}, "run": {"steps": 80}}
    score = last_score(on_digits(tmp_path, mark, RESNET, **changed).completed())
    assert score.accuracy > 0.85
    assert score.loss < 0.25 * math.log(10)
    assert (score.tokens, score.bits_per_byte, score.ranking) == (HELD_OUT, 0, score.loss)


@pytest.mark.slow
def test_a_vision_transformer_learns_digits(tmp_path: Path, mark: str) -> None:
    """More than 70 % of held-out pictures are classified right; by chance it would be 10 %."""
    changed: Sections = {"optimizer": {"learning_rate": 0.01}, "run": {"steps": 150}}
    score = last_score(on_digits(tmp_path, mark, VIT, **changed).completed())
    assert score.accuracy > 0.7
    assert score.loss < 0.5 * math.log(10)


@pytest.mark.slow
def test_a_vision_transformer_starts_from_weights_of_transformers(tmp_path: Path, mark: str) -> None:
    """It is measured before its first step as `transformers` measures it."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    vit = ViTForImageClassification(
        ViTConfig(**sizes, image_size=8, patch_size=2, num_channels=1, num_labels=10, initializer_range=0.3)
    )
    vit.eval().save_pretrained(tmp_path / "vit")
    training = on_digits(tmp_path, mark, {**VIT, "norm_epsilon": 1e-12}, run={"steps": 1}, checkpoint={"every": 1})
    document = read_json(training.config)
    document["init"] = {"layout": "huggingface", "digest": initial.digest_of("huggingface", tmp_path / "vit")}
    document["placement"]["init"] = str(tmp_path / "vit")
    training.config.write_bytes(atomic.readable_json(document))
    training.completed()
    pixels, labels = held_out_digits()
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(vit(pixels).logits, labels)
    assert training.events("validated")[0]["loss"] == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.slow
def test_an_encoder_learns_masked_tokens(tmp_path: Path, mark: str) -> None:
    """Four of five tokens follow from the one before."""
    training = on_tokens(tmp_path, mark, ENCODER, 300).completed()
    score = last_score(training)
    assert score.loss < 0.8 * math.log(VOCAB)
    assert score.accuracy > 10 / VOCAB
    assert (score.tokens, score.bits_per_byte) == (15 * 5, 0), "15 sequences of 32 tokens, of which 5 are masked"


@pytest.mark.slow
def test_a_model_from_the_users_module_learns_and_is_measured(tmp_path: Path, mark: str) -> None:
    """The module is the one file tests/trainer/recurrent.py."""
    training = on_tokens(tmp_path, mark, RECURRENT, 60).completed()
    score = last_score(training)
    assert score.loss < 0.7 * math.log(VOCAB)
    assert (score.tokens, score.bits_per_byte > 0) == (499, True)


SHORT: Sections = {
    "batch": {"sequences": 33, "micro": 33},
    "run": {"steps": 12},
    "checkpoint": {"every": 4},
    "validation": {"every": 12, "sequences": 100},
}
CROPPED = {**RESNET, "augment": "crop_flip"}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """A residual network on crops of digits, by one rank without interruption. Read only."""
    return on_digits(tmp_path_factory.mktemp("short"), mark, CROPPED, **SHORT).completed()


@pytest.mark.nightly
def test_a_residual_network_that_is_killed_ends_bit_for_bit_as_one_that_is_not(
    tmp_path: Path, mark: str, short: Training
) -> None:
    """Weights, running statistics, optimiser and losses."""
    killed = on_digits(tmp_path, mark, CROPPED, **SHORT).interrupted(6).completed()
    assert [event["step"] for event in killed.events("restored")] == [4]
    assert killed.tensors(12) == short.tensors(12)
    assert killed.losses() == short.losses()


def model_of(training: Training) -> dict[str, torch.Tensor]:
    """The weights and statistics of the newest checkpoint, whichever rank has written what."""
    commit = training.commits()[-1]
    return contents.open_verified(training.durable / commit.folder, commit.manifest).tensors("model")


@pytest.mark.slow
def test_two_ranks_normalise_like_one_rank(tmp_path: Path, mark: str, short: Training) -> None:
    """Shares of 16 and 17 pictures; losses to 1 in 1,000 and running statistics to 1 in 100 over 12 steps."""
    two = on_digits(tmp_path, mark, CROPPED, **SHORT).completed(ranks=2)
    assert [loss for _, loss in two.losses()] == pytest.approx([loss for _, loss in short.losses()], rel=1e-3)
    there, states_of_one = (model_of(trained) for trained in (two, short))
    names = [name for name in states_of_one if "running" in name]
    assert len(names) == 2 * 9
    for name in names:
        torch.testing.assert_close(there[name], states_of_one[name], rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_a_model_of_pictures_is_refused_for_tokens_in_one_line(tmp_path: Path, mark: str) -> None:
    ended = Training(tmp_path, mark, model=RESNET).run()
    message = "trainer: model.kind: found 'resnet', expected a model that reads tokens, as the dataset holds: this one"
    assert (ended.code, ended.err[: len(message)]) == (2, message)
    assert ended.err.count("\n") == 1


def test_a_missing_module_is_reported_before_anything_is_read(tmp_path: Path, mark: str) -> None:
    ended = Training(tmp_path, mark, model={"kind": "nowhere.rnn"}).run()
    assert ended.code == 2
    assert "field model.kind: found 'nowhere.rnn', expected a module with the classes Shape and Network" in ended.err
    assert ended.err.count("\n") == 1
