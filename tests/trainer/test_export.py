"""Export: a checkpoint becomes a folder that `transformers` loads, tokenizer and all, or nothing at all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from assets.datasets import tokenizer
from tests.trainer.conftest import CODE, Training, settings
from tests.trainer.keeping import save_of
from trainer import export, huggingface, vocabulary
from trainer.checkpoint import contents, format
from trainer.checkpoint.progress import Progress
from trainer.models.decoder import Decoder
from trainer.shapes import DecoderShape

TEXTS = ["def f(x):\n    return x + 1\n", "Dass Übung den Meister macht, ist 1 alter Satz.", "naïve — 数据 🙂"] * 20


def checkpoint(folder: Path) -> Path:
    """A checkpoint of fresh weights in a durable tier that also has its tokenizer."""
    described = tokenizer.write(folder / "durable", tokenizer.train(TEXTS, 300))
    sections = settings()
    torch.manual_seed(0)
    model = Decoder(DecoderShape(**sections["model"]), described.vocab_size, sections["batch"]["length"])
    lineage = {"tokenizer": described.sha256}
    commit = save_of(folder, model, Progress(1, 0, 0, {}, {}, config=sections, lineage=lineage, at=0.0))
    return folder / "durable" / commit.folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return checkpoint(tmp_path)


def test_an_export_is_a_model_and_a_tokenizer_that_transformers_loads(source: Path, tmp_path: Path) -> None:
    export.export(source, tmp_path / "out")
    ours, model = tokenizer.train(TEXTS, 300), AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    encoding = tokenizer.encoding(ours)
    for text in [*TEXTS, tokenizer.PROBE]:
        assert loaded(text)["input_ids"] == encoding.encode_ordinary(text)
        assert loaded.decode(encoding.encode_ordinary(text)) == text
    end = encoding.n_vocab - 1
    assert (loaded.eos_token, loaded.eos_token_id) == (vocabulary.END_OF_DOCUMENT, end)
    assert model.config.eos_token_id == model.generation_config.eos_token_id == end
    assert model.config.bos_token_id is None and model.config.max_position_embeddings == 32


def test_the_logits_of_a_trained_checkpoint_are_the_ones_that_transformers_computes(
    finished: Training, tmp_path: Path
) -> None:
    folder = finished.checkpoint_file(".").resolve()
    export.export(folder, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ours = Decoder(DecoderShape(**settings()["model"]), 64, 32).eval()
    ours.load_state_dict(contents.read(folder, finished.commits()[-1].manifest).tensors("model"))
    tokens = torch.randint(0, 64, (4, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (model(tokens).logits - ours(tokens)).abs().max() < 1e-5


def test_an_export_loads_back_bit_by_bit(source: Path, tmp_path: Path) -> None:
    export.export(source, tmp_path / "out")
    loaded = state_of(source)
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in huggingface.load(tmp_path / "out").items())


def test_an_export_verifies_like_a_checkpoint(source: Path, tmp_path: Path) -> None:
    manifest = export.export(source, tmp_path / "out")
    assert set(format.read(tmp_path / "out", manifest)) == {
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
    with pytest.raises(format.Damaged, match=r"model-00000.safetensors: found BLAKE3"):
        export.export(source, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_another_manifest_than_the_one_on_record_is_not_exported(source: Path, tmp_path: Path) -> None:
    with pytest.raises(format.Damaged, match=r"MANIFEST.json: found SHA-256"):
        export.export(source, tmp_path / "out", manifest="0" * 64)


def test_what_is_there_already_is_not_touched(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="is there already, expected a new folder"):
        export.export(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_the_tokenizer_of_another_training_is_refused(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(tokenizer.train(["another text"], 300))
    with pytest.raises(ValueError, match=r"other.json: found SHA-256 .* expected the tokenizer of this training"):
        export.export(source, tmp_path / "out", tokenizer=other)


def test_the_command_says_what_it_wrote_or_why_it_did_not(source: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainer.export", *map(str, arguments)]
        return subprocess.run(command, cwd=CODE, capture_output=True, text=True)

    (source.parents[2] / "tokenizers").rename(tmp_path / "tokenizers")
    done = run(source, "--to", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == ["MANIFEST.json", "config.json", "model.safetensors"]
    refused = run(tmp_path / "nowhere", "--to", tmp_path / "second")
    assert refused.returncode == 1 and "expected a checkpoint's folder" in refused.stderr


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint."""
    return contents.read(folder, export._manifest(folder)).tensors("model")
