"""Contents: what a model must know of a snapshot, and which models are refused for it."""

from pathlib import Path

import pytest

from slipway.trainer.config import resolved
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import contents
from slipway.trainer.models.decoder import DecoderShape
from tests.trainer.conftest import VOCAB, make_snapshot
from tests.trainer.digits import RESNET, VIT, make_digits

DECODER = DecoderShape(layers=1, width=8, heads=1, kv_heads=1, hidden=8)
SHAPES = {"decoder": DECODER, "resnet": resolved.shape(RESNET), "vit": resolved.shape(VIT)}


def test_a_model_of_tokens_gets_the_vocabulary_and_the_length(tmp_path: Path) -> None:
    model_data = contents.data(make_snapshot(tmp_path), DECODER, 32, seed=5)
    assert model_data == Data(vocabulary=VOCAB, length=32, seed=5)


def test_a_model_of_pictures_gets_their_size_and_classes(tmp_path: Path) -> None:
    model_data = contents.data(make_digits(tmp_path), SHAPES["vit"], 0, seed=5)
    assert model_data == Data(picture=(8, 8, 1), classes=10, seed=5)


@pytest.mark.parametrize(
    ("kind", "length", "message"),
    [
        (
            "decoder",
            32,
            "model.kind: found 'decoder', expected a model that reads pictures, as the dataset holds: this",
        ),
        ("resnet", 32, "batch.length: found 32, expected 0, as the dataset holds pictures, for snapshot "),
    ],
)
def test_a_model_that_does_not_fit_pictures_is_refused(tmp_path: Path, kind: str, length: int, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        contents.data(make_digits(tmp_path), SHAPES[kind], length)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "length", "message"),
    [
        ("vit", 0, "model.kind: found 'vit', expected a model that reads tokens, as the dataset holds: this one reads"),
        ("decoder", 0, "batch.length: found 0, expected a number above 0: tokens a sequence, for snapshot "),
    ],
)
def test_a_model_that_does_not_fit_tokens_is_refused(tmp_path: Path, kind: str, length: int, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        contents.data(make_snapshot(tmp_path), SHAPES[kind], length)
    assert str(refused.value).startswith(message)


def test_a_snapshot_of_pictures_has_no_tokenizer(tmp_path: Path) -> None:
    assert contents.tokenizer_digest(make_digits(tmp_path)) == ""
    assert contents.tokenizer_digest(make_snapshot(tmp_path)) == "0" * 64
