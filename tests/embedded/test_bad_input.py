"""What the demo cannot work with: one clear line, before anything is started or written."""

import dataclasses
import fcntl
import json
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest

from slipway.deploy.embedded.serve import port
from slipway.trainer.models.decoder import DecoderShape
from tests.conftest import until
from tests.disks import mounted
from tests.embedded.slipway import DATASET, SWEEP, TRAINING, Slipway

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")


def test_a_corpus_that_is_not_there(slipway: Slipway):
    shutil.rmtree(slipway.corpus)
    assert slipway.refusal("demo") == (
        f"dataset small-texts: source.path: found nothing at {slipway.corpus}, expected a directory"
    )
    assert not slipway.home.root.exists()


def test_a_corpus_without_a_document(slipway: Slipway):
    for path in slipway.corpus.iterdir():
        path.unlink()
    (slipway.corpus / "empty.txt").touch()
    assert slipway.refusal("demo") == (
        f"dataset small-texts: found no document in {slipway.corpus} (include ['*.txt'], exclude []), "
        "1 left out (empty); expected at least one text file"
    )
    assert not slipway.home.root.exists()


def test_a_field_that_no_recipe_has(slipway: Slipway):
    line = slipway.edit(TRAINING, "  layers: 2", "  layers: 2\n  color: red") + 1
    known = ", ".join(field.name for field in dataclasses.fields(DecoderShape))
    assert slipway.refusal("demo") == (
        f"{slipway.recipes / TRAINING}:{line}: model.color: found an unknown field, expected one of {known}"
    )
    assert not slipway.home.root.exists()


def test_a_value_of_the_wrong_type(slipway: Slipway):
    line = slipway.edit(DATASET, "vocab_size: 512", "vocab_size: many")
    assert slipway.refusal("demo") == (
        f'{slipway.recipes / DATASET}:{line}: tokenizer.vocab_size: found "many", expected a whole number'
    )
    assert not slipway.home.root.exists()


def test_a_sweep_over_a_parameter_that_the_training_does_not_have(slipway: Slipway):
    line = slipway.edit(SWEEP, "optimizer.learning_rate", "optimizer.inertia")
    assert slipway.refusal("demo").startswith(
        f"{slipway.recipes / SWEEP}:{line}: space.optimizer.inertia: found an unknown parameter, "
        "expected one of optimizer.kind, optimizer.learning_rate, "
    )
    assert not slipway.home.root.exists()


def test_recipes_that_are_not_there(slipway: Slipway):
    shutil.rmtree(slipway.recipes)
    assert slipway.refusal("demo").startswith(f"{slipway.recipes}: found no recipes, expected a folder with")


@pytest.mark.parametrize("text", ["http", "0", "65536", "", "²"])
def test_what_is_no_port_is_refused(text: str):
    with pytest.raises(ValueError, match=f"^SLIPWAY_PORT: found {text!r}, expected a port from 1 to 65535$"):
        port({"SLIPWAY_PORT": text})


def test_a_port_that_is_none(slipway: Slipway):
    slipway.environ["SLIPWAY_PORT"] = "http"
    assert slipway.refusal("demo") == "SLIPWAY_PORT: found 'http', expected a port from 1 to 65535"
    assert not slipway.home.root.exists()


def test_a_port_that_somebody_else_has(slipway: Slipway):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        slipway.environ["SLIPWAY_PORT"] = str(number)
        assert slipway.refusal("demo") == (
            f"SLIPWAY_PORT: found port {number} unusable (Address already in use), expected a free one"
        )
    assert files_in(slipway.home.root) == ["dagster/dagster.yaml", "instance.lock"]


def test_a_home_that_another_instance_uses(slipway: Slipway):
    slipway.home.root.mkdir()
    with open(slipway.home.root / "instance.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(json.dumps({"pid": 4711, "url": "http://127.0.0.1:3000"}))
        lock.flush()
        assert slipway.refusal("demo") == (
            f"SLIPWAY_HOME {slipway.home.root}: found another process using it (process 4711, http://127.0.0.1:3000), "
            "expected none; stop that one first"
        )
    assert files_in(slipway.home.root) == ["dagster/dagster.yaml", "instance.lock"]


def test_a_command_that_looks_who_uses_a_home_keeps_no_instance_out(slipway: Slipway):
    slipway.home.root.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken, open(slipway.home.root / "instance.lock", "w") as lock:
        slipway.environ["SLIPWAY_PORT"] = str(taken.getsockname()[1])
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting = slipway.start("demo")
        until((slipway.home.dagster / "dagster.yaml").exists, "the moment before the instance takes the lock")
        threading.Timer(0.3, fcntl.flock, (lock, fcntl.LOCK_UN)).start()
        assert "unusable (Address already in use)" in starting.communicate(timeout=60)[1]


def test_a_home_that_is_a_file(slipway: Slipway):
    slipway.home.root.touch()
    assert slipway.refusal("demo") == (
        f"SLIPWAY_HOME {slipway.home.root}: found a file, expected a folder, or nothing yet"
    )


@root_only
def test_a_home_that_cannot_be_written(slipway: Slipway):
    with mounted(slipway.home.root, "ro"):
        assert slipway.refusal("demo") == (
            f"SLIPWAY_HOME {slipway.home.root}: found 'Read-only file system', expected a writable folder"
        )


@root_only
def test_a_home_on_a_full_disk(slipway: Slipway):
    with mounted(slipway.home.root, "size=3m"):
        assert slipway.refusal("demo") == (f"SLIPWAY_HOME {slipway.home.root}: found 3 MiB free, expected 1024 or more")
        assert files_in(slipway.home.root) == []


def test_a_python_without_the_sources_of_its_standard_library(slipway: Slipway, tmp_path: Path):
    line = 'for scheme in sysconfig._INSTALL_SCHEMES.values(): scheme["stdlib"] = '
    empty, site = tmp_path / "zipped", tmp_path / "site"
    empty.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import sysconfig\n{line}{str(empty)!r}\n")
    slipway.edit(DATASET, 'kind: directory\n  path: ../corpus\n  include: ["*.txt"]', "kind: stdlib")
    slipway.environ["PYTHONPATH"] += f":{site}"
    refused = slipway.refusal("demo")
    assert refused.startswith(
        f"dataset small-texts: found no sources of Python's standard library in {empty} (include ['*.py']); "
        "expected about 600 .py files"
    )
    assert not slipway.home.root.exists()


def test_a_training_that_nobody_knows_cannot_be_stopped(slipway: Slipway):
    assert slipway.refusal("stop", "nobody-012345678901") == (
        "running training nobody-012345678901: found none that begins so, and there is none"
    )
    assert not slipway.home.root.exists()


def test_a_verb_that_there_is_not(slipway: Slipway):
    result = slipway.run("launch")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("slipway: No such command 'launch'")


def files_in(folder: Path) -> list[str]:
    """The files below a folder, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
