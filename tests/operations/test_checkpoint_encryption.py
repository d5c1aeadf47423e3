"""Encrypted checkpoints on the platform: a bad key starts no job, and the right one opens them everywhere."""

from pathlib import Path

import pytest

from slipway.assets.promotion.evaluation import evaluate
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.job import job_name
from slipway.trainer.checkpoint.disk import encryption
from tests.sensors.platform import BY, Platform


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("ab" * 32)
    return path


def test_a_bad_key_file_is_reported_and_no_job_is_started(platform: Platform, key: Path):
    key.write_text("not a key")
    store = platform.proposed("encrypted", storage={"key_file": str(key)})
    store.want("run", BY, "the test wants it")
    platform.advance(store, Action.GIVE_UP)
    assert {ended.reason for ended in store.read().failures} == {
        f"storage.key_file: {key}: found 9 bytes, expected 64 hex digits"
    }
    assert platform.compute.launcher().poll(job_name(store.id, 1)).state is JobState.MISSING


@pytest.mark.slow
def test_an_encrypted_checkpoint_is_evaluated_with_the_key_that_its_training_names(platform: Platform, key: Path):
    store = platform.start_training(cause="encrypted", run={"steps": 4}, storage={"key_file": str(key)})
    platform.advance(store)
    commit = store.commits()[-1]
    files = list((platform.home.durable / commit.folder).glob("*.safetensors"))
    assert files and all(encryption.is_encrypted(path.read_bytes()) for path in files)
    [score] = evaluate(store.read(), [commit], platform.measuring)
    assert not score.damaged and score.loss > 0
