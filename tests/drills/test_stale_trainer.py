"""The fence, with trainers started by hand: who sleeps through another's claim commits nothing that counts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base.paths import CODE
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.config import resolved
from slipway.trainer.record import fence
from tests.drills import small_recipes
from tests.drills.facts import restored_from
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


def test_a_trainer_that_slept_while_another_took_over_ends_without_a_commit(
    instance: Instance, own_mark: dict[str, str], tmp_path: Path
):
    training = instance.propose(small_recipes.ALONE, "by hand", steps=75)
    configuration = _write_configuration(instance, training, tmp_path)
    first = _train(configuration)
    wait_until(training.commits, "the first one has committed")
    first.send_signal(SIGSTOP)
    before = [commit.name for commit in training.commits()]

    second = _train(configuration)
    wait_until(lambda: restored_from(training, 2), "the second one goes on from there")
    first.send_signal(SIGCONT)
    assert first.wait(120) == ExitCode.SUPERSEDED
    assert second.wait(120) == 0
    of_first = [commit.name for commit in training.commits() if commit.token.incarnation == 1]
    assert of_first == before
    assert [commit.step for commit in training.commits()] == [25, 50, 75]
    superseded = fence.read_exit(training.folder, 1)
    assert superseded is not None and superseded.reason == "superseded: started by hand"
    ended = training.exit()
    assert ended is not None and (ended.incarnation, ended.outcome) == (2, "succeeded")


def _write_configuration(instance: Instance, training: TrainingStore, folder: Path) -> Path:
    """What a launcher would give to the ranks, with `folder` for their NVMe."""
    specification = training.specification()
    document = {
        "format": resolved.FORMAT,
        "training": training.id,
        "snapshot": specification.snapshot,
        **specification.identity_config,
        **training.run_policy().operation,
        "placement": {"store": str(training.folder), "durable": str(instance.home.durable), "nvme": str(folder)},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def _train(configuration: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "slipway.trainer", str(configuration)]
    return subprocess.Popen(command, cwd=CODE, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
