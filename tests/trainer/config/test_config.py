"""The configuration file: read back equal, and every mistake in it gets one message that says where it is."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.config import resolved, sections
from slipway.trainer.models.decoder import DecoderShape

pytestmark = pytest.mark.pure


def loaded(tmp_path: Path, document: dict[str, Any]) -> resolved.Config:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    return resolved.load(path)


def message(tmp_path: Path, document: dict[str, Any]) -> str:
    """The one message, without the file's name that it begins with."""
    with pytest.raises(ValueError) as raised:
        loaded(tmp_path, document)
    head, _, rest = str(raised.value).partition(": ")
    assert head == str(tmp_path / "config.json")
    assert "\n" not in rest
    return rest


def test_a_configuration_reads_back_as_it_was_written(tmp_path: Path, document: dict[str, Any]) -> None:
    read = loaded(tmp_path, document)
    assert loaded(tmp_path, resolved.dump(read)) == read
    assert isinstance(read.model, DecoderShape)
    assert read.model.width == 32
    assert read.validation.every == 10


def test_a_field_that_is_left_out_has_its_default(tmp_path: Path, document: dict[str, Any]) -> None:
    del document["validation"], document["run"]["seed"]
    read = loaded(tmp_path, document)
    assert (read.validation, read.run.seed) == (sections.Validation(), 0)


def test_a_whole_number_is_a_fine_float(tmp_path: Path, document: dict[str, Any]) -> None:
    document["optimizer"]["clip"] = 2
    clip = loaded(tmp_path, document).optimizer.clip
    assert (clip, type(clip)) == (2.0, float)


BAD = [
    ("model", "layers", 0, "expected a number above 0"),
    ("model", "layers", "2", "found '2', expected a whole number"),
    ("model", "layers", 2.0, "found 2.0, expected a whole number"),
    ("model", "layers", True, "found True, expected a whole number"),
    ("model", "heads", 5, "expected a divisor of width (32)"),
    ("model", "heads", 32, "expected an even number of features a head"),
    ("model", "kv_heads", 3, "expected a divisor of heads (4)"),
    ("model", "hidden", -1, "expected a number above 0"),
    ("model", "rope_base", 0, "expected a number above 0"),
    ("batch", "sequences", 0, "expected a number above 0"),
    ("batch", "length", None, "found None, expected a whole number"),
    ("batch", "micro", -2, "expected a number above 0"),
    ("optimizer", "learning_rate", 0, "expected a number above 0"),
    ("optimizer", "learning_rate", math.nan, "found nan, expected a finite number"),
    ("optimizer", "learning_rate", False, "found False, expected a number"),
    ("optimizer", "warmup_steps", -1, "expected 0 or more"),
    ("optimizer", "final_fraction", 1.5, "expected 0 to 1"),
    ("optimizer", "beta1", 1, "expected 0 or more, below 1"),
    ("optimizer", "beta2", -0.1, "expected 0 or more, below 1"),
    ("optimizer", "weight_decay", math.inf, "found inf, expected a finite number"),
    ("optimizer", "clip", 0, "expected a number above 0"),
    ("run", "steps", 0, "expected a number above 0"),
    ("run", "seed", -1, "expected 0 to 2^63 - 1"),
    ("run", "seed", 2**63, "expected 0 to 2^63 - 1"),
    ("run", "precision", "fp4", "found 'fp4', expected one of 'fp32', 'bf16', 'fp16', 'fp8'"),
    ("checkpoint", "every", 0, "expected a number above 0"),
    ("validation", "every", -1, "expected 0 or more"),
    ("validation", "sequences", 0, "expected a number above 0"),
    ("placement", "store", 3, "found 3, expected text"),
]


@pytest.mark.parametrize(("section", "field", "value", "expected"), BAD)
def test_a_bad_value_is_named_by_file_and_dotted_field(
    tmp_path: Path, document: dict[str, Any], section: str, field: str, value: Any, expected: str
) -> None:
    document[section][field] = value
    assert message(tmp_path, document) == f"field {section}.{field}: {expected}"


def test_an_unknown_field_is_named_with_the_known_ones(tmp_path: Path, document: dict[str, Any]) -> None:
    document["batch"]["size"] = 8
    assert message(tmp_path, document) == "field batch.size: unknown; expected one of sequences, length, micro"


def test_a_missing_field_or_section_is_named(tmp_path: Path, document: dict[str, Any]) -> None:
    del document["run"]["steps"]
    assert message(tmp_path, document) == "field run.steps: missing"
    del document["run"]
    assert message(tmp_path, document) == "field run: missing"


def test_a_value_in_place_of_a_section_is_named(tmp_path: Path, document: dict[str, Any]) -> None:
    document["model"] = "large"
    assert message(tmp_path, document) == "field model: found 'large', expected a section"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "found [], expected a section"),
        ("text", "found 'text', expected a section"),
        ({}, "field format: found None, expected 'slipway.training-config/1'"),
        ({"format": "another/1"}, "field format: found 'another/1', expected 'slipway.training-config/1'"),
    ],
)
def test_a_document_of_another_format_is_refused(tmp_path: Path, value: Any, problem: str) -> None:
    assert message(tmp_path, value) == problem


def test_broken_json_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n "format": "x",\n "model": {,\n}')
    with pytest.raises(ValueError, match=r"config\.json:3: not JSON: "):
        resolved.load(path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{\n"format": "\xff"}')
    with pytest.raises(ValueError, match=r"config\.json:2: not JSON: not UTF-8"):
        resolved.load(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json: cannot be read: No such file"):
        resolved.load(tmp_path / "config.json")


def test_initial_weights_are_read_back_with_their_folder(tmp_path: Path, document: dict[str, Any]) -> None:
    document["init"] = {"layout": "huggingface", "digest": "a" * 64}
    document["placement"]["init"] = "/weights"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    loaded = resolved.load(path)
    assert loaded.init == sections.Init(layout="huggingface", digest="a" * 64) and loaded.placement.init == "/weights"
    path.write_text(json.dumps(resolved.dump(loaded)))
    assert resolved.load(path) == loaded


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        ({"layout": "pickle", "digest": "a" * 64}, "init.layout: found 'pickle', expected one of 'checkpoint', "),
        ({"layout": "checkpoint", "digest": "a"}, "init.digest: expected 64 hex digits"),
        ({"layout": "checkpoint"}, "init.digest: missing"),
        ("base", "init: found 'base', expected a section"),
        ({"layout": "checkpoint", "digest": "a" * 64}, "placement.init: expected the folder of `init`"),
    ],
)
def test_initial_weights_that_are_not_named_in_full_are_refused(
    tmp_path: Path, document: dict[str, Any], init: Any, problem: str
) -> None:
    document["init"] = init
    assert message(tmp_path, document).startswith(f"field {problem}")
