"""Export: `transformers` loads the model and the tokenizer of an export, which is written whole or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slipway.assets.datasets.texts import tokenizer
from slipway.trainer.checkpoint.disk import contents, verification
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import vocabulary
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.start import export, huggingface
from tests.trainer.checkpoints import save_of
from tests.trainer.conftest import CODE, Training, settings
from tests.trainer.start.llama import load_weights

TEXTS = ["def f(x):\n    return x + 1\n", "Dass Übung den Meister macht, ist 1 alter Satz.", "naïve — 数据 🙂"] * 20


def checkpoint(folder: Path, shape: dict[str, Any] | None = None) -> Path:
    """A checkpoint of new weights on a durable tier that also has its tokenizer."""
    described = tokenizer.write(folder / "durable", tokenizer.train(TEXTS, 300))
    sections = settings()
    sections["model"] = shape or sections["model"]
    torch.manual_seed(0)
    data = Data(vocabulary=described.vocab_size, length=sections["batch"]["length"])
    model = Decoder(DecoderShape(**sections["model"]), data)
    lineage = {"tokenizer": described.sha256}
    commit = save_of(folder, model, TrainingProgress(1, 0, 0, {}, {}, config=sections, lineage=lineage, at=0.0))
    return folder / "durable" / commit.folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return checkpoint(tmp_path)


def test_transformers_loads_the_model_and_the_tokenizer_of_an_export(source: Path, tmp_path: Path) -> None:
    export.export(source, tmp_path / "out")
    trained_tokenizer, model = tokenizer.train(TEXTS, 300), AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    encoding = tokenizer.encoding(trained_tokenizer)
    for text in [*TEXTS, tokenizer.PROBE]:
        assert loaded(text)["input_ids"] == encoding.encode_ordinary(text)
        assert loaded.decode(encoding.encode_ordinary(text)) == text
    end = tokenizer.describe(trained_tokenizer).end_of_document
    assert (loaded.eos_token, loaded.eos_token_id) == (vocabulary.END_OF_DOCUMENT, end)
    assert model.config.eos_token_id == model.generation_config.eos_token_id == end
    assert model.config.bos_token_id is None and model.config.max_position_embeddings == 32


def test_transformers_computes_the_logits_of_a_trained_checkpoint(finished: Training, tmp_path: Path) -> None:
    folder = finished.checkpoint_file(".").resolve()
    export.export(folder, tmp_path / "out", precision="fp32")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    decoder = Decoder(DecoderShape(**settings()["model"]), Data(vocabulary=64, length=32)).eval()
    decoder.load_state_dict(contents.open_verified(folder, finished.commits()[-1].manifest).tensors("model"))
    tokens = torch.randint(0, 64, (4, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (model(tokens).logits - decoder(tokens)).abs().max() < 1e-5


def test_an_export_in_fp32_loads_back_bit_by_bit(source: Path, tmp_path: Path) -> None:
    export.export(source, tmp_path / "out", precision="fp32")
    loaded = state_of(source)
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in load_weights(tmp_path / "out").items())


def test_an_export_is_in_bf16_in_files_of_the_asked_size_with_an_index(source: Path, tmp_path: Path) -> None:
    export.export(source, tmp_path / "out", file_bytes=20_000)
    out, state = tmp_path / "out", state_of(source)
    index = json.loads((out / huggingface.INDEX).read_bytes())
    assert index["metadata"]["total_size"] == sum(2 * tensor.numel() for tensor in state.values())
    sizes = {name: (out / name).stat().st_size for name in huggingface.weight_files(out)}
    assert len(sizes) > 1 and max(sizes.values()) < 20_000 + 4_000, "the header comes on top"
    assert set(sizes) == {f"model-{n:05d}-of-{len(sizes):05d}.safetensors" for n in range(1, len(sizes) + 1)}
    model = AutoModelForCausalLM.from_pretrained(out)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert all(torch.equal(load_weights(out)[name], tensor.bfloat16().float()) for name, tensor in state.items())


def test_gpt2_is_exported_with_its_fused_matrices(tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "kv_heads": 4,
        "hidden": 64,
        "positions": "learned",
        "longest": 32,
        "norm": "layer",
        "activation": "gelu",
        "bias": "all",
        "tied": True,
    }
    source = checkpoint(tmp_path, shape)
    export.export(source, tmp_path / "out", precision="fp32", file_bytes=10_000)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    decoder = Decoder(DecoderShape(**shape), Data(vocabulary=model.config.vocab_size, length=32)).eval()
    decoder.load_state_dict(state_of(source))
    tokens = torch.randint(0, 64, (4, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (model(tokens).logits - decoder(tokens)).abs().max() < 1e-5


def test_an_export_verifies_like_a_checkpoint(source: Path, tmp_path: Path) -> None:
    manifest = export.export(source, tmp_path / "out")
    assert set(verification.read_files(tmp_path / "out", manifest)) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_a_damaged_checkpoint_is_not_exported(source: Path, tmp_path: Path) -> None:
    weights = source / "model-00000.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(DamagedCheckpoint, match=r"model-00000.safetensors: found BLAKE3"):
        export.export(source, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_a_checkpoint_with_another_manifest_than_the_one_given_is_not_exported(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DamagedCheckpoint, match=r"MANIFEST.json: found SHA-256"):
        export.export(source, tmp_path / "out", manifest="0" * 64)


def test_an_existing_folder_is_not_touched(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="the folder exists already, expected a new one"):
        export.export(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_the_tokenizer_of_another_training_is_refused(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(tokenizer.train(["another text"], 300))
    with pytest.raises(ValueError, match=r"other.json: found SHA-256 .* expected the tokenizer of this training"):
        export.export(source, tmp_path / "out", tokenizer=other)


@pytest.mark.slow
def test_a_checkpoint_of_divided_weights_is_exported_whole(training: Training, tmp_path: Path) -> None:
    """Two ranks under FSDP each write their part of every tensor."""
    training.configure(layout={"shard": "full"})
    folder = training.completed(ranks=2).checkpoint_file(".").resolve()
    export.export(folder, tmp_path / "out", precision="fp32")
    state = state_of(folder)
    assert len(list(folder.glob("model-*.safetensors"))) == 2
    assert all(torch.equal(tensor, state[name]) for name, tensor in load_weights(tmp_path / "out").items())


@pytest.mark.slow
def test_an_export_holds_a_few_tensors_and_not_the_model(tmp_path: Path) -> None:
    """90 MB of weights, of which the largest tensor has 4 MB."""

    def checkpoint_of(folder: Path, layers: int, width: int) -> Path:
        shape = {"layers": layers, "width": width, "heads": 4, "kv_heads": 4, "hidden": 4 * width}
        return checkpoint(folder, shape)

    small, large = checkpoint_of(tmp_path / "a", 1, 32), checkpoint_of(tmp_path / "b", 6, 512)
    assert sum(tensor.numel() * 4 for tensor in state_of(large).values()) > 90e6
    command = [sys.executable, "-m", "tests.trainer.export_process", str(small), str(large), str(tmp_path / "out")]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "100000"}
    done = subprocess.run(command, cwd=CODE, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40e6


@pytest.mark.slow
def test_the_command_prints_the_files_it_wrote_or_the_error(source: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "slipway.cli", "checkpoints", "export", "--json", *map(str, arguments)]
        return subprocess.run(command, cwd=CODE, capture_output=True, text=True)

    (source.parents[2] / "tokenizers").rename(tmp_path / "tokenizers")
    done = run(source, "--to", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == ["MANIFEST.json", "config.json", "model.safetensors"]
    refused = run(tmp_path / "nowhere", "--to", tmp_path / "second")
    assert refused.returncode == 1 and "expected a checkpoint's folder" in refused.stderr


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint."""
    return contents.open_verified(folder, export._manifest(folder)).tensors("model")
