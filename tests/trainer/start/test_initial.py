"""Initial weights: a training starts from the weights of another, or fails before its first step with the reason."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from slipway.trainer.base import atomic
from slipway.trainer.config.sections import Init
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import shards
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.node.world import World
from slipway.trainer.record.causes import LackingTier
from slipway.trainer.start import export, huggingface, initial
from tests.trainer.conftest import EVERY, Training, read_json, settings

Layout = Literal["checkpoint", "huggingface"]

MODEL = DecoderShape(**settings()["model"])
TOKENIZER = shards.TokenizerRecord("0" * 64, 64, 63)


@pytest.fixture(scope="module")
def exported(finished: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of the finished training in the Hugging Face layout; tests only read it."""
    folder = tmp_path_factory.mktemp("exported") / "llama"
    export.export(checkpoint(finished), folder, precision="fp32")
    return folder


@pytest.fixture
def llama(exported: Path, tmp_path: Path) -> Path:
    """A copy of the export, which a test may change."""
    return Path(shutil.copytree(exported, tmp_path / "llama"))


def checkpoint(training: Training) -> Path:
    return training.durable / training.commits()[-1].folder


def start_from(training: Training, layout: str, folder: Path, sha256: str = "", **changed: dict[str, Any]) -> Training:
    """Configure `training` to start from the weights in `folder`."""
    training.configure(**changed)
    document = read_json(training.config)
    document["init"] = {"layout": layout, "digest": sha256 or initial.digest_of(layout, folder)}
    document["placement"]["init"] = str(folder)
    training.config.write_bytes(atomic.readable_json(document))
    return training


def init(layout: Layout, folder: Path) -> Init:
    """The configuration of the weights that are in `folder` now."""
    return Init(layout=layout, digest=initial.digest_of(layout, folder))


def decoder() -> Decoder:
    return Decoder(MODEL, Data(vocabulary=64, length=32))


def read_into(model: Decoder, init: Init, folder: Path) -> None:
    """Read the weights in `folder` into a model, as the only rank does."""
    data = Data(vocabulary=64, length=32)
    initial.source(init, folder, MODEL, TOKENIZER, data, World(0, 1, 0, torch.device("cpu")))(model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["checkpoint", "huggingface"])
def test_the_first_loss_is_the_last_loss_of_the_training_that_the_weights_come_from(
    layout: Layout, finished: Training, exported: Path, training: Training
) -> None:
    folder = checkpoint(finished) if layout == "checkpoint" else exported
    start_from(training, layout, folder, run={"steps": 2}, validation={"every": 2}).completed()
    (event,) = training.events("initialized")
    assert event["digest"] == initial.digest_of(layout, folder)
    before, after = finished.events("validated")[-1], training.events("validated")[0]
    assert after["step"] == 0
    assert after["loss"] == pytest.approx(before["loss"], abs=1e-6)
    assert training.losses()[0][1] < finished.losses()[0][1] - 1.5


@pytest.mark.slow
def test_ranks_start_from_the_same_weights(exported: Path, finished: Training, training: Training) -> None:
    start_from(training, "huggingface", exported, run={"steps": 2}, validation={"every": 2}).completed(ranks=2)
    assert training.events("validated")[0]["loss"] == pytest.approx(finished.events("validated")[-1]["loss"], abs=1e-5)


@pytest.mark.slow
def test_a_restart_from_its_own_checkpoint_needs_no_initial_weights(llama: Path, training: Training) -> None:
    start_from(training, "huggingface", llama).interrupted(EVERY + 1)
    shutil.rmtree(llama)
    training.completed()
    assert len(training.events("initialized")) == 1
    assert training.events("restored")[-1]["step"] >= EVERY


@pytest.mark.slow
def test_weights_that_differ_by_one_bit_are_refused_before_the_first_step(llama: Path, training: Training) -> None:
    start_from(training, "huggingface", llama)
    flip(llama / huggingface.WEIGHTS)
    ended = training.run()
    assert ended.code == 2 and f"init: {llama}: found the digest" in ended.err
    assert training.losses() == []


@pytest.mark.slow
def test_weights_of_another_size_are_refused_with_every_differing_number(
    finished: Training, training: Training
) -> None:
    start_from(training, "checkpoint", checkpoint(finished), model={"width": 64, "layers": 3})
    ended = training.run()
    assert ended.code == 2 and training.losses() == []
    assert "model.layers: found 2, expected 3; model.width: found 32, expected 64" in ended.err


@pytest.mark.parametrize("layout", ["checkpoint", "huggingface"])
def test_weights_whose_tier_is_away_are_no_fault_of_the_configuration(
    layout: Layout, finished: Training, exported: Path, tmp_path: Path
) -> None:
    folder = checkpoint(finished) if layout == "checkpoint" else exported
    named = init(layout, folder)
    with pytest.raises(LackingTier, match=str(tmp_path)):
        read_into(decoder(), named, tmp_path / "tier" / "weights")


def test_a_damaged_checkpoint_is_refused_with_the_name_of_its_file(copy_of_finished: Training) -> None:
    folder = checkpoint(copy_of_finished)
    named = init("checkpoint", folder)
    flip(folder / "model-00000.safetensors")
    with pytest.raises(ValueError, match=r"init: .*model-00000.safetensors: found BLAKE3"):
        read_into(decoder(), named, folder)


@pytest.mark.parametrize("layout", ["checkpoint", "huggingface"])
def test_the_loaded_weights_are_bit_by_bit_those_committed(layout: Layout, finished: Training, exported: Path) -> None:
    folder = checkpoint(finished) if layout == "checkpoint" else exported
    loaded = decoder()
    read_into(loaded, init(layout, folder), folder)
    expected = decoder()
    named = init("checkpoint", checkpoint(finished))
    read_into(expected, named, checkpoint(finished))
    assert all(torch.equal(one, other) for one, other in zip(states(loaded), states(expected), strict=True))


def test_the_digest_of_a_checkpoint_is_the_one_on_record(finished: Training) -> None:
    assert initial.digest_of("checkpoint", checkpoint(finished)) == finished.commits()[-1].manifest


def test_the_digest_of_a_model_follows_its_settings_and_weights_and_nothing_else(llama: Path) -> None:
    before = initial.digest_of("huggingface", llama)
    (llama / "README.md").write_text("not part of it")
    assert initial.digest_of("huggingface", llama) == before
    (llama / huggingface.CONFIG).write_text((llama / huggingface.CONFIG).read_text() + "\n")
    changed = initial.digest_of("huggingface", llama)
    flip(llama / huggingface.WEIGHTS)
    assert len({before, changed, initial.digest_of("huggingface", llama)}) == 3


@pytest.mark.parametrize("layout", ["checkpoint", "huggingface"])
def test_another_vocabulary_is_refused_with_both_sizes(layout: Layout, finished: Training, exported: Path) -> None:
    folder = checkpoint(finished) if layout == "checkpoint" else exported
    with pytest.raises(ValueError, match=r"vocabulary: found 64 tokens, expected 300, the snapshot's"):
        initial.check_fit(layout, folder, MODEL, replace(TOKENIZER, vocab_size=300))


def test_a_vocabulary_of_the_same_size_and_another_tokenizer_is_refused(finished: Training) -> None:
    with pytest.raises(ValueError, match=r"tokenizer: found 0{16}\.\.\., expected 1{16}\.\.\."):
        initial.check_fit("checkpoint", checkpoint(finished), MODEL, replace(TOKENIZER, sha256="1" * 64))


def test_another_number_of_heads_with_the_same_shapes_is_refused(exported: Path) -> None:
    with pytest.raises(ValueError, match=r"model.heads: found 4, expected 2; model.kv_heads: found 2, expected 1$"):
        initial.check_fit("huggingface", exported, replace(MODEL, heads=2, kv_heads=1), TOKENIZER)


def test_weights_that_lack_a_tensor_are_refused_from_their_headers(llama: Path) -> None:
    settings = json.loads((llama / huggingface.CONFIG).read_text())
    (llama / huggingface.CONFIG).write_text(json.dumps({**settings, "num_hidden_layers": 3}))
    with pytest.raises(ValueError, match=r"model.layers.2.* found no such tensor, expected one of \[32\]"):
        initial.check_fit("huggingface", llama, MODEL, TOKENIZER)


def test_a_folder_without_weights_is_refused_with_the_name_of_the_missing_file(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a checkpoint's folder: .*MANIFEST.json"):
        initial.digest_of("checkpoint", tmp_path)
    with pytest.raises(ValueError, match=r"found neither model.safetensors nor model.safetensors.index.json"):
        initial.digest_of("huggingface", tmp_path)
    with pytest.raises(ValueError, match=r"found the layout 'huggingface/2', expected 'chunks/2' or 'chunks/1'"):
        initial.check_fit("checkpoint", exported, MODEL, TOKENIZER)


def states(model: Decoder) -> Iterator[torch.Tensor]:
    return iter(model.state_dict().values())


def flip(path: Path) -> None:
    """Flip the last bit of a file."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
