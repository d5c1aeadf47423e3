"""An instance that is taken up and down, and a training that is started, paused and resumed by the command."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import processes
from tests.conftest import until
from tests.embedded.slipway import Slipway, free_port

pytestmark = pytest.mark.slow
DATASET, TRAINING = "small-texts", "small-decoder"


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slipway]:
    own = Slipway(tmp_path_factory.mktemp("command"))
    own.environ["SLIPWAY_PORT"] = str(free_port())
    yield own
    assert own.end_all() == [], "processes left behind"


def output_of(slipway: Slipway, *arguments: str) -> str:
    done = slipway.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(slipway: Slipway) -> str:
    """The snapshot that `data build` made."""
    snapshot: str = json.loads(output_of(slipway, "data", "build", DATASET, "--json"))["snapshot"]
    return snapshot


def test_building_a_dataset_again_makes_nothing_new(slipway: Slipway, built: str):
    assert output_of(slipway, "data", "build", "small") == f"{DATASET} points at snapshot {built}\n"
    [listed] = json.loads(output_of(slipway, "data", "list", "--json"))
    assert (listed["dataset"], listed["sha256"], listed["ago"]) == (DATASET, built, 0)


def test_a_training_is_started_followed_and_not_started_twice(slipway: Slipway, built: str, tmp_path: Path):
    followed = output_of(slipway, "run", TRAINING, "run.steps=20", "checkpoint.every=10", "--watch")
    [training] = [training_row["id"] for training_row in json.loads(output_of(slipway, "ls", "--json"))]
    assert followed.splitlines()[-1] == f"{training} succeeded at step 20"
    again = output_of(slipway, "run", TRAINING, "run.steps=20", "checkpoint.every=10")
    assert again.startswith(f"{training} has been trained already")
    exported = json.loads(
        output_of(slipway, "checkpoints", "export", f"{training}@10", "--to", str(tmp_path / "out"), "--json")
    )
    assert "model.safetensors" in exported["files"]
    assert "bitwise equal" in output_of(slipway, "replay", f"{training}@10", "--steps", "10")


def test_a_training_of_the_command_is_shown_by_the_instance_and_outlives_it(slipway: Slipway, built: str):
    url = f"http://127.0.0.1:{slipway.environ['SLIPWAY_PORT']}"
    assert json.loads(output_of(slipway, "up", "--json"))["url"] == url
    assert f"{url}), expected no instance" in slipway.run("up").stderr
    training = json.loads(output_of(slipway, "run", TRAINING, "run.steps=1000000", "--json"))["training"]
    until(lambda: [run.tags.get("slipway/training") for run in _runs(slipway)].count(training), "the run that shows it")
    assert output_of(slipway, "down").endswith(f"{training} goes on; to stop it: slipway stop {training}\n")
    assert not [pid for pid in slipway.pids() if processes.command_line(pid).endswith("-m slipway.cli dev")]
    assert output_of(slipway, "down").startswith("no instance runs in ")
    assert _state(slipway, training) == "running"

    assert f"{training} is stopped at step" in output_of(slipway, "pause", training)
    assert _state(slipway, training) == "stopped"
    assert f"{training} goes on from step" in output_of(slipway, "resume", "small-decoder")
    until(lambda: _state(slipway, training) == "running", "it runs again")
    output_of(slipway, "stop", training)
    assert json.loads(output_of(slipway, "show", training, "--json"))["incarnation"] == 2


def test_the_home_is_backed_up(slipway: Slipway, built: str):
    backup = json.loads(output_of(slipway, "backup", "--json"))
    assert (slipway.home.durable / backup["folder"] / "MANIFEST.json").exists()


def _runs(slipway: Slipway):
    from slipway.deploy.embedded.instance import open_storage

    with open_storage(slipway.home) as storage:
        return storage.get_runs(limit=20)


def _state(slipway: Slipway, training: str) -> str:
    listed = {
        training_row["id"]: training_row["state"] for training_row in json.loads(output_of(slipway, "ls", "--json"))
    }
    return str(listed[training])
