"""Replay: repeated steps are bitwise equal to the original, or the first difference is named."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk import verification
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile
from slipway.trainer.record import fence
from tests.trainer.checkpoints import chunks
from tests.trainer.conftest import Ended, Training, wait

TENSOR = "blocks.1.feed_forward.down.weight"


def replay(training: Training, *options: object, ranks: int = 1) -> Ended:
    """Replay steps 11 to 20 of the training, unless the options name others."""
    chosen = [str(option) for option in (options or ("--from", 10, "--steps", 10))]
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
    module = [*agent, "slipway.trainer.replay"] if ranks > 1 else ["slipway.trainer.replay"]
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return wait(training.spawn(*module, str(training.config), *chosen, **environment))


def alter(training: Training, step: int, change: Callable[[Tensor], object]) -> None:
    """Change the first value of one tensor of a checkpoint, and commit the result so that it verifies."""
    commit = next(commit for commit in training.commits() if commit.step == step)
    folder = training.durable / commit.folder
    manifest = verification.read_manifest(folder, commit.manifest)
    [chunk] = chunks(folder, manifest)[f"model/{TENSOR}"]
    data = bytearray((folder / chunk.file).read_bytes())
    change(torch.frombuffer(data, dtype=torch.float32, count=1, offset=chunk.begin))
    (folder / chunk.file).write_bytes(data)
    described = {**manifest.files, chunk.file: CheckpointFile(len(data), digest.of_bytes(bytes(data)))}
    altered = dataclasses.replace(manifest, files=described).encode()
    (folder / MANIFEST).write_bytes(altered)
    (training.store / "commits" / f"{commit.name}.json").unlink()
    fence.commit(training.store, dataclasses.replace(commit, manifest=digest.sha256(altered)))


def flip_the_last_bit(value: Tensor) -> None:
    value.view(torch.int32).bitwise_xor_(1)


def last_line(ended: Ended) -> str:
    return ended.out.splitlines()[-1]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_replayed_steps_are_bitwise_equal_and_leave_the_original_unchanged(finished: Training):
    before = contents(finished.store) | contents(finished.durable)
    ended = replay(finished)
    assert ended.code == 0, ended.err
    assert last_line(ended).startswith("replay: bitwise equal: steps 11 to 20 from checkpoint 000000010.")
    assert last_line(ended).endswith("against 10 losses and 2 checkpoints of 1 ranks")
    assert contents(finished.store) | contents(finished.durable) == before


@pytest.mark.slow
def test_a_flipped_bit_in_a_later_checkpoint_that_verifies_is_found_in_its_tensor(copy_of_finished: Training):
    alter(copy_of_finished, 15, flip_the_last_bit)
    ended = replay(copy_of_finished)
    assert ended.code == 3
    assert last_line(ended).startswith(f"replay: within 0.0001: first model/{TENSOR} after step 15 differs by up to")


@pytest.mark.slow
def test_a_changed_weight_is_the_first_tensor_that_differs(copy_of_finished: Training):
    alter(copy_of_finished, 15, lambda value: value.add_(1))
    ended = replay(copy_of_finished)
    assert ended.code == 1
    assert last_line(ended).startswith(f"replay: different: model/{TENSOR} after step 15 differs")


@pytest.mark.slow
def test_another_seed_gives_another_loss_at_the_first_step(copy_of_finished: Training):
    copy_of_finished.configure(run={"seed": 4})
    ended = replay(copy_of_finished)
    assert ended.code == 1
    assert last_line(ended).startswith("replay: different: the loss of step 11 differs by up to")


@pytest.mark.slow
def test_two_ranks_replay_the_steps_of_two_ranks(finished_by_two: Training):
    ended = replay(finished_by_two, "--from", 5, "--steps", 5, ranks=2)
    assert ended.code == 0, ended.err
    assert "bitwise equal: steps 6 to 10" in ended.out and "5 losses and 1 checkpoints of 2 ranks" in ended.out


@pytest.mark.slow
def test_another_number_of_ranks_is_within_the_tolerance(finished_by_two: Training):
    ended = replay(finished_by_two, "--from", 5, "--steps", 5, "--tolerance", 1e-2)
    assert ended.code == 3, ended.out
    assert last_line(ended).startswith("replay: within 0.01: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from", 7, "--steps", 2), "--from: found no checkpoint of step 7, expected one of [5, 10, 15, 20]"),
        (("--from", 20, "--steps", 2), "--steps: found no record of steps 21 to 22"),
        (("--from", 10, "--steps", 0), "--steps: found 0, expected 1 or more"),
    ],
)
def test_steps_that_are_not_on_record_cannot_be_replayed(finished: Training, options: tuple[object, ...], message: str):
    ended = replay(finished, *options)
    assert ended.code == 2 and message in ended.err


@pytest.mark.slow
def test_a_replay_does_not_start_from_a_damaged_checkpoint(copy_of_finished: Training):
    weights = copy_of_finished.checkpoint_file("model-00000.safetensors", 10)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    ended = replay(copy_of_finished)
    assert ended.code == 2
    assert "checkpoint 000000010.000001.0000 cannot be loaded: " in ended.err and "BLAKE3" in ended.err
    assert not fence.set_aside_reasons(copy_of_finished.store)
