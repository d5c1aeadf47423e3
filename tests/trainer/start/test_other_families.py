"""BERT and ViT in the Hugging Face layout: our models compute what `transformers` computes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.start import huggingface, initial
from tests.trainer.start.llama import load_weights
from tests.trainer.start.test_huggingface import CLOSE, LENGTH, SIZES, VOCAB, imported, reference_model, tokens


def test_bert_computes_the_logits_of_transformers(tmp_path: Path) -> None:
    """Of a text of one segment; our last row is the mask, a copy of theirs."""
    config = {name: SIZES[name] for name in SIZES if name not in ("num_key_value_heads", "rms_norm_eps")}
    bert = reference_model(tmp_path, "Bert", "ForMaskedLM", **config)
    (tmp_path / "vocab.txt").write_text("\n".join("[MASK]" if n == 7 else f"word{n}" for n in range(VOCAB)))
    model, token_ids = imported(tmp_path), tokens()
    with torch.no_grad():
        expected, logits = bert(token_ids).logits, model(torch.where(token_ids == 7, VOCAB, token_ids))
    assert (expected - logits[..., :VOCAB]).abs().max() < CLOSE
    assert torch.equal(logits[..., 7], logits[..., VOCAB])


def test_bert_without_its_vocabulary_is_refused(tmp_path: Path) -> None:
    reference_model(tmp_path, "Bert", "ForMaskedLM", **{**SIZES, "max_position_embeddings": LENGTH})
    with pytest.raises(ValueError, match=r"found no id of \[MASK\], expected it in tokenizer.json or vocab.txt"):
        load_weights(tmp_path)


def test_vit_computes_the_logits_of_transformers(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    vit = reference_model(tmp_path, "ViT", "ForImageClassification", **sizes, image_size=8, patch_size=4, num_labels=5)
    data = Data(picture=(8, 8, 3), classes=5)
    assert huggingface.read_settings(tmp_path).data == data
    pixels = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        assert (vit(pixels).logits - imported(tmp_path, data)(pixels)).abs().max() < CLOSE


def test_pictures_and_classes_other_than_those_of_the_weights_are_refused(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    reference_model(tmp_path, "ViT", "ForImageClassification", **sizes, image_size=8, patch_size=4, num_labels=5)
    shape = VisionShape(layers=1, width=8, heads=1, hidden=8, patch=4, augment="crop")
    data = Data(picture=(16, 16, 3), classes=3)
    with pytest.raises(ValueError, match="the weights do not fit") as refused:
        initial.check_fit("huggingface", tmp_path, shape, None, data)
    for message in (
        "model.norm_epsilon: found 1e-12, expected 1e-06",
        "pictures: found 8 x 8 x 3, expected 16 x 16 x 3, the snapshot's",
        "classes: found 5, expected 3, the snapshot's",
    ):
        assert message in str(refused.value)
    assert "augment" not in str(refused.value)
