"""The engine: answers are those of the trained model, however requests share the batch."""

import threading
from pathlib import Path

import pytest
import torch

from slipway.serving.engine import batching, weights
from slipway.serving.engine.batching import AnswerEngine, Sequence
from slipway.serving.engine.network import Cache, InferenceDecoder
from slipway.serving.engine.sampling_settings import Sampling
from slipway.serving.engine.weights import Refused
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.start.huggingface import StoredWeights, read_settings
from tests.serving.models import LENGTH, SMALL, exported

GREEDY = Sampling(temperature=0.0)
SHAPES = {
    "llama": SMALL,
    "mistral": DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=64, window=12),
    "qwen2": DecoderShape(layers=2, width=32, heads=4, kv_heads=4, hidden=64, bias="query_key_value"),
    "qwen3": DecoderShape(
        layers=2, width=32, heads=4, kv_heads=2, hidden=64, qk_norm=True, tied=True, head_features=16
    ),
    "gpt2": DecoderShape(
        layers=2,
        width=32,
        heads=4,
        kv_heads=4,
        hidden=128,
        positions="learned",
        longest=LENGTH,
        norm="layer",
        activation="gelu",
        bias="all",
        tied=True,
    ),
}


def loaded(folder: Path, rows: int) -> InferenceDecoder:
    read = weights.read(folder, torch.float32, torch.device("cpu"))
    return InferenceDecoder(read, Cache.of(read, rows, read.length))


def trained(folder: Path) -> Decoder:
    """The same weights in the trainer's own model."""
    settings = read_settings(folder)
    assert isinstance(settings.model, DecoderShape)
    model = Decoder(settings.model, Data(vocabulary=257, length=LENGTH))
    state = StoredWeights(folder, settings).state()
    if settings.model.tied:
        state.pop("head.weight")
    model.load_state_dict(state, strict=False)
    return model.eval()


@torch.inference_mode()
def logits_of(model: Decoder, tokens: list[int]) -> torch.Tensor:
    x = model.first(torch.tensor([tokens]))
    return model.last(model.through(x))[0]


def alone(model: Decoder, prompt: list[int], most: int) -> list[int]:
    """The likeliest continuation, each token from the whole sequence anew."""
    tokens = list(prompt)
    for _ in range(most):
        tokens.append(int(logits_of(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def answer(decoder: InferenceDecoder, sequences: list[Sequence]) -> None:
    """All at once."""
    over, unfinished = threading.Event(), set(sequences)

    def deliver(changed: list[Sequence]) -> None:
        unfinished.difference_update(sequence for sequence in changed if sequence.finish)
        if not unfinished:
            over.set()

    engine = AnswerEngine(decoder, deliver)
    for answered in sequences:
        engine.submit(answered)
    engine.start()
    assert over.wait(120)
    engine.stop()


@pytest.mark.parametrize("name", SHAPES)
def test_answers_that_share_a_batch_are_those_of_the_trained_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / exported(tmp_path, 1, shape=SHAPES[name]).folder
    monkeypatch.setattr(batching, "PIECE", 8)  # prompts come in pieces, between the steps of others
    numbers = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, 257, (size,), generator=numbers).tolist() for size in (3, 17, 40, 5, 30, 9)]
    sequences = [Sequence(prompt, 6 + 4 * index, GREEDY) for index, prompt in enumerate(prompts)]
    answer(loaded(folder, rows=3), sequences)
    model = trained(folder)
    assert [sequence.tokens for sequence in sequences] == [
        alone(model, sequence.prompt, sequence.most) for sequence in sequences
    ]


def test_the_log_probabilities_of_a_prompt_are_those_of_the_trained_model(tmp_path: Path):
    folder = tmp_path / exported(tmp_path, 1).folder
    sequence = Sequence(list(b"def main(argument):"), 0, GREEDY, scored=True)
    answer(loaded(folder, rows=1), [sequence])
    logits = logits_of(trained(folder), sequence.prompt)[:-1].log_softmax(-1)
    expected = logits.gather(1, torch.tensor(sequence.prompt[1:])[:, None])[:, 0]
    assert sequence.tokens == [] and sequence.finish == "length"
    assert sequence.chances == pytest.approx(expected.tolist(), abs=1e-4)


def test_an_answer_that_nobody_waits_for_leaves_the_batch(tmp_path: Path):
    folder = tmp_path / exported(tmp_path, 1).folder
    cancelled, waiting = Sequence([1, 2], 100, GREEDY, cancelled=True), Sequence([3], 4, GREEDY)
    answer(loaded(folder, rows=1), [cancelled, waiting])
    assert (cancelled.finish, cancelled.tokens, waiting.finish, len(waiting.tokens)) == ("cancelled", [], "length", 4)


def test_a_model_of_pictures_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "vit", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "patch_size": 2,'
        ' "intermediate_size": 8, "layer_norm_eps": 1e-6, "image_size": 4, "qkv_bias": true, "hidden_act": "gelu"}'
    )
    with pytest.raises(Refused, match="it has no completions"):
        weights.read(tmp_path, torch.float32, torch.device("cpu"))
