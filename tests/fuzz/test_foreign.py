"""Fuzzing of recipes, image manifests, shards, models of others, and Kubernetes' objects.

As in `test_readers.py`, a reader gives a value or its clear error. A header that speaks of more bytes than there
are allocates nothing.
"""

import contextlib
import json
import struct
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.assets.datasets.snapshots import pointer
from slipway.assets.suites import suite
from slipway.recipes import yaml_lines
from slipway.recipes.load import load
from slipway.recipes.problems import InvalidRecipes
from slipway.resources.fleet.kubernetes import cordon, node_health
from slipway.resources.kubernetes import answers
from slipway.resources.kubernetes.objects import CONFIG_MAPS
from slipway.resources.launchers.kubernetes import orders
from slipway.trainer.base import digest
from slipway.trainer.data import images, shards
from slipway.trainer.start import huggingface
from tests.fuzz.test_readers import VALUES, as_bytes, bytes_like, damaged, gives_or_refuses

SAME_FOLDER = [HealthCheck.function_scoped_fixture]
FEW = settings(max_examples=40, deadline=None, suppress_health_check=SAME_FOLDER)
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=SAME_FOLDER)
RECIPE = {
    "slipway": "dataset/1", "description": "Small texts", "owner": "team:data",
    "source": {"kind": "directory", "path": "."}, "tokenizer": {"vocab_size": 300}, "split": {"validation": 0.25},
    "shards": {"tokens": 5000}, "cleaning": {"near_duplicates": None, "decontamination": None},
}  # fmt: skip
IMAGES = {
    "format": images.FORMAT, "dataset": "d", "recipe": "r", "source": {}, "documents": {},
    "height": 2, "width": 2, "channels": 1, "classes": ["a"],
    "splits": {"train": {"images": 2, "shards": [{"blake3": "0" * 64, "bytes": 12, "images": 2}]}},
}  # fmt: skip
SUITE = {
    "format": suite.FORMAT, "name": "s", "recipe": {}, "snapshot": "0" * 64, "table": "1" * 64, "examples": 2,
    "tasks": {"documents": 2}, "left_out": 0,
}  # fmt: skip
CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2,
    "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 16,
    "rope_theta": 1e4, "max_position_embeddings": 8, "hidden_act": "silu", "tie_word_embeddings": True,
}  # fmt: skip
WEIGHTS = {"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
NODE = {
    "metadata": {"name": "n", "annotations": {cordon.CORDONED: '{"who": "ann", "why": "Xid 79"}'}},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
}
FAILURE = {"kind": "Status", "message": "no", "details": {"name": "x", "causes": [{"field": "spec", "message": "m"}]}}
LATE = 1_800_000_000.0


def read_recipe(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "datasets" / "texts.yaml"
        file.parent.mkdir()
        file.write_bytes(data)
        try:
            load(Path(folder), {})
        except InvalidRecipes as refused:
            assert all(problem.location.file.endswith("texts.yaml") and str(problem) for problem in refused.problems)


def read_images(data: bytes) -> None:
    def opened() -> None:
        manifest = images.parse_manifest(data, digest.sha256(data), "snapshots/x.json")
        for split in manifest.splits.values():
            for shard in split.shards:
                images.open_images(Path("/nonexistent"), shard, images.ImageShape(2, 2, 1))

    with contextlib.suppress(FileNotFoundError):
        gives_or_refuses(opened)


def read_pointer(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "datasets" / "texts" / "current.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        try:
            pointer.current(Path(folder), "texts")
        except ValueError as error:
            assert str(file) in str(error) and str(error).endswith("slipway data build texts")


def read_suite(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = digest.sha256(data)
        file = suite.manifest_path(Path(folder), name)
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        gives_or_refuses(lambda: suite.read(Path(folder), name))


def read_failure(data: bytes) -> None:
    answer = answers.parsed(data)
    call = answers.Call("create", CONFIG_MAPS, "n", "x")
    for status in (403, 404, 409, 422, 500):
        assert str(answers.failure(call, status, answer))
        answers.is_of_a_missing_object(call, status, answer)


def read_note(data: bytes) -> None:
    node = {"metadata": {"name": "n", "annotations": {cordon.CORDONED: data.decode(errors="replace")}}}
    assert cordon._by_whom(node).startswith(", ")


def read_order(data: bytes) -> None:
    metadata = {"name": "j", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    gives_or_refuses(lambda: orders.read({"metadata": metadata, "data": {orders.JOB_FILE: data.decode("latin-1")}}))


def read_event(data: bytes) -> None:
    event = {"metadata": {}, "message": data.decode("latin-1"), "lastTimestamp": "2026-01-02T00:00:00Z"}
    node_health.read(NODE, [event], node_health.NodeRules(), LATE)


def text_of_recipe(value: object) -> st.SearchStrategy[bytes]:
    return bytes_like(value) | st.text(alphabet="{}[]:,-&*!|>'\"#%@ \n\tab01", max_size=40).map(str.encode)


READERS: dict[str, tuple[Callable[[bytes], None], st.SearchStrategy[bytes]]] = {
    "recipe": (read_recipe, text_of_recipe(RECIPE)),
    "pointer of a dataset": (read_pointer, bytes_like({"snapshot": "0" * 64, "source": "1" * 64})),
    "manifest of a suite": (read_suite, bytes_like(SUITE)),
    "manifest of images": (read_images, bytes_like(IMAGES)),
    "answer of the API server": (read_failure, bytes_like(FAILURE)),
    "note on a node": (read_note, bytes_like({"who": "ann", "why": "Xid 79"})),
    "order of a job": (read_order, bytes_like({"name": "j"})),
    "event of a node": (read_event, st.binary(max_size=64)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_gives_a_value_or_its_clear_error(name: str):
    read, data = READERS[name]
    FEW(given(data)(read))()


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_a_reader_gives_a_value_or_its_clear_error_for_thousands(name: str):
    read, data = READERS[name]
    MANY(given(data)(read))()


@pytest.mark.parametrize("data", [b"[" * 500, b"a: " + b"{a: " * 500, b"- " * 500, b"a: 1e999", b"\xff\xfe"])
def test_a_recipe_without_an_end_is_refused_with_its_file(data: bytes):
    document, problems = yaml_lines.read(data, "x.yaml")
    assert document is not None or str(problems[0]).startswith("x.yaml:1")


@FEW
@given(damaged(CONFIG) | VALUES)
def test_a_model_of_others_has_settings_or_a_clear_error(tmp_path: Path, config: object):
    (tmp_path / huggingface.CONFIG).write_bytes(as_bytes(config))
    try:
        huggingface.read_settings(tmp_path)
    except ValueError as error:
        assert str(tmp_path) in str(error)


@FEW
@given(damaged({"weight_map": {"a": "model-1.safetensors"}}) | VALUES)
def test_an_index_of_others_names_files_of_its_own_folder(tmp_path: Path, index: object):
    (tmp_path / huggingface.INDEX).write_bytes(as_bytes(index))
    try:
        names = huggingface.weight_files(tmp_path)
    except ValueError as error:
        assert str(tmp_path) in str(error)
    else:
        assert all((tmp_path / name).parent == tmp_path and name not in ("", ".", "..") for name in names)


@pytest.mark.parametrize("name", ["..", "../..", "a/..", "", ".", "/", "/etc/passwd", "a\0b", 3, None, ["a"]])
def test_a_name_in_an_index_leads_out_of_no_folder(tmp_path: Path, name: object):
    (tmp_path / huggingface.INDEX).write_bytes(as_bytes({"weight_map": {"a": name}}))
    try:
        assert huggingface.weight_files(tmp_path) == ["passwd"]
    except ValueError as error:
        assert huggingface.INDEX in str(error)


@FEW
@given(damaged(WEIGHTS) | VALUES, st.integers(0, 2**64 - 1) | st.none())
def test_weights_of_others_have_shapes_or_a_clear_error_and_take_no_memory(
    tmp_path: Path, header: object, length: int | None
):
    text = as_bytes(header)
    path = tmp_path / huggingface.WEIGHTS
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + bytes(8))
    tracemalloc.start()
    try:
        huggingface._shapes(path)
    except ValueError as error:
        assert str(path) in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20


@FEW
@given(st.integers(-5, 2**70), st.integers(-5, 2**70), st.integers(-5, 2**70))
def test_a_shard_that_says_more_than_it_has_is_refused_before_it_is_read(
    tmp_path: Path, size: int, tokens: int, documents: int
):
    name = "0" * 64
    path = shards.shard_path(tmp_path, shards.ShardFile(name, 16))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(24))
    gives_or_refuses(lambda: shards.open_shard(tmp_path, shards.TokenShard(name, size, tokens, documents), "uint16"))


@pytest.mark.parametrize("count", [None, [], "2", True, 2.0, -1])
def test_a_count_of_a_manifest_is_a_count(count: object):
    split = {"images": 2, "shards": [{"blake3": "0" * 64, "bytes": 12, "images": count}]}
    data = as_bytes({**IMAGES, "splits": {"train": split}})
    with pytest.raises(ValueError, match=r"^x: not a manifest of format .*: images: found .*, expected a whole number"):
        images.parse_manifest(data, digest.sha256(data), "x")


def test_what_was_damaged_is_what_would_be_read():
    """The values that are damaged above are whole before that: the readers take them."""
    assert json.loads(as_bytes(IMAGES)) == IMAGES
    images.parse_manifest(as_bytes(IMAGES), digest.sha256(as_bytes(IMAGES)), "x")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "datasets" / "texts.yaml"
        file.parent.mkdir()
        file.write_bytes(as_bytes(RECIPE))
        assert set(load(Path(folder), {}).datasets) == {"texts"}
