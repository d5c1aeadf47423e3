"""Saving while a training runs: a failure costs one checkpoint and never stops the training."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipway.trainer.checkpoint.disk import contents, publication
from slipway.trainer.checkpoint.disk.manifest import CheckpointFile, CheckpointManifest
from slipway.trainer.checkpoint.saving import parts
from slipway.trainer.checkpoint.saving.buffer import Buffer
from slipway.trainer.config.layout import Mesh
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.disks import mounted
from tests.trainer.checkpoints import ALONE, TOKEN, SmallEngine, outcomes, progress, saved, saving, stop_in_mid_save


def weights(folder: Path, step: int) -> torch.Tensor:
    commit = next(commit for commit in fence.commits(folder / "store") if commit.step == step)
    return contents.open_verified(folder / "durable" / commit.folder, commit.manifest).tensors("model")["0.weight"]


def steps(folder: Path) -> list[int]:
    return [commit.step for commit in fence.commits(folder / "store")]


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "durable" / "checkpoints" / "tiny").iterdir())


def test_a_commit_is_an_event_with_its_figures(tmp_path: Path) -> None:
    with saving(tmp_path) as saver:
        saver.save(SmallEngine().step(), progress(5))
        (event,) = outcomes(saver)
    (commit,) = fence.commits(tmp_path / "store")
    sizes = [path.stat().st_size for path in (tmp_path / "durable" / commit.folder).iterdir()]
    manifest = (tmp_path / "durable" / commit.folder / "MANIFEST.json").stat().st_size
    assert (event["event"], event["step"], event["commit"]) == ("committed", 5, commit.name)
    assert event["bytes"] == sum(sizes) - manifest
    assert 0 < event["blocked_seconds"] < event["seconds"]
    assert commit.metrics == {"loss": 0.2}


def test_a_checkpoint_holds_the_state_at_the_moment_of_the_save(tmp_path: Path) -> None:
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        saver.prepare(engine)
        os.kill(saver.writer, signal.SIGSTOP)
        then = engine.step().model.state_dict()["0.weight"].clone()
        saver.save(engine, progress(5))
        engine.step()
        os.kill(saver.writer, signal.SIGCONT)
        outcomes(saver)
    assert torch.equal(weights(tmp_path, 5), then)
    assert not torch.equal(engine.model.state_dict()["0.weight"], then)


def test_only_the_checkpoints_are_left_after_the_commits(tmp_path: Path) -> None:
    commits = saved(tmp_path, 1, 2, 3)
    assert folders(tmp_path) == [commit.name for commit in commits]
    assert list((tmp_path / "store" / "parts").iterdir()) == []


def test_a_save_leaves_alone_what_another_rank_has_written_of_a_later_one(tmp_path: Path) -> None:
    later = f"{9:09d}.{TOKEN}"
    part = tmp_path / "durable" / "checkpoints" / "tiny" / f".{later}.partial" / "model-00001.safetensors"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of rank 1")
    parts.report(tmp_path / "store", later, 1, {"files": {}})
    saved(tmp_path, 5)
    assert part.exists()
    assert parts.gather(tmp_path / "store", later, 2, 0.0)[1] == {"files": {}}


def test_a_save_to_the_durable_tier_leaves_a_copy_that_is_on_its_way_there_alone(tmp_path: Path) -> None:
    copy = tmp_path / "durable" / "checkpoints" / "tiny" / f".{5:09d}.{TOKEN}.copy"
    copy.mkdir(parents=True)
    os.mkfifo(copy / "optimizer-00000.safetensors")  # the copy stops here
    with saving(tmp_path) as saver:
        saver.save(SmallEngine().step(), progress(5), tiers=("nvme", "durable"))
        until((copy / "model-00000.safetensors").exists, "the first file of the copy")
        saver.save(SmallEngine().step(), progress(10))
        outcomes(saver)
        os.kill(saver.writer, signal.SIGKILL)  # it would wait for the copy
    assert (copy / "model-00000.safetensors").exists()
    assert steps(tmp_path) == [5, 10]


def test_what_is_not_whole_is_not_published(tmp_path: Path) -> None:
    hidden, folder = tmp_path / ".hidden", tmp_path / "visible"
    hidden.mkdir()
    described = CheckpointManifest("layout/1", {"model": CheckpointFile(3, "0" * 64)})
    with pytest.raises(OSError, match="not whole: model is missing"):
        publication.publish(hidden, folder, described)
    assert not folder.exists()


def test_two_saves_may_be_unfinished_and_a_third_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.trainer.checkpoint.saving.saver.PATIENCE", 0.0)
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        os.kill(saver.writer, signal.SIGSTOP)
        for step in (1, 2, 3):
            saver.save(engine.step(), progress(step))
        (event,) = saver.events()
        assert (event["event"], event["step"]) == ("commit_failed", 3)
        assert event["reason"] == "the two checkpoints before it are still being written"
        os.kill(saver.writer, signal.SIGCONT)
        assert [event["step"] for event in outcomes(saver)] == [1, 2]
        saver.save(engine, progress(4))
        outcomes(saver)
    assert steps(tmp_path) == [1, 2, 4]


def test_a_wait_in_vain_is_counted_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.trainer.checkpoint.saving.saver.PATIENCE", 0.2)
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        os.kill(saver.writer, signal.SIGSTOP)
        for step in (1, 2, 3):
            saver.save(engine.step(), progress(step))
        before = saver.has_room
        monkeypatch.setattr("slipway.trainer.checkpoint.saving.saver.PATIENCE", 600.0)
        saver.save(engine, progress(4))
        waited, at_once = saver.events()
        assert (waited["step"], at_once["step"]) == (3, 4)
        assert waited["blocked_seconds"] > 0.2
        os.kill(saver.writer, signal.SIGCONT)
        outcomes(saver)
        assert (before, saver.has_room) == (False, True)
        saver.save(engine, progress(5))
        outcomes(saver)
    assert steps(tmp_path) == [1, 2, 5]


def test_the_last_save_waits_for_a_free_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.trainer.checkpoint.saving.saver.PATIENCE", 0.0)
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        os.kill(saver.writer, signal.SIGSTOP)
        for step in (1, 2):
            saver.save(engine.step(), progress(step))
        threading.Timer(0.2, os.kill, (saver.writer, signal.SIGCONT)).start()
        saver.save(engine.step(), progress(3), last=True)
        outcomes(saver)
    assert steps(tmp_path) == [1, 2, 3]


def test_a_writer_killed_in_mid_save_loses_that_checkpoint_and_the_next_save_has_a_new_writer(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with saving(tmp_path, TOKEN) as saver:
        half = stop_in_mid_save(saver, tmp_path, 2)
        first = saver.writer
        os.kill(first, signal.SIGKILL)
        (event,) = outcomes(saver)
        assert (event["event"], event["step"]) == ("commit_failed", 2)
        assert event["reason"] == "the writer process has died (signal 9)"
        assert half.exists() and steps(tmp_path) == [1]
        saver.save(SmallEngine().step(), progress(3))
        outcomes(saver)
        assert saver.writer != first
    assert steps(tmp_path) == [1, 3]
    assert not half.exists()


def test_a_commit_whose_writer_died_right_after_it_is_committed_and_not_failed(tmp_path: Path) -> None:
    with saving(tmp_path, TOKEN) as saver:
        # The writer stops at this pipe when it has committed and looks for what to remove from the NVMe.
        pipe = tmp_path / "store" / "commits" / f"{1:09d}.{TOKEN}.json"
        pipe.parent.mkdir(exist_ok=True)
        os.mkfifo(pipe)
        saver.save(SmallEngine().step(), progress(2), tiers=("nvme",))
        until((tmp_path / "store" / "commits" / f"{2:09d}.{TOKEN}.json").exists, "the commit")
        os.kill(saver.writer, signal.SIGKILL)
        until(lambda: ended(saver.writer), "the writer's death")
        pipe.unlink()
        (event,) = outcomes(saver)
    assert (event["event"], event["step"], event["commit"]) == ("committed", 2, f"{2:09d}.{TOKEN}")
    assert event["bytes"] > 0
    assert steps(tmp_path) == [2]


def test_while_the_records_cannot_be_read_a_save_is_neither_committed_nor_failed(tmp_path: Path) -> None:
    with saving(tmp_path, TOKEN) as saver:
        stop_in_mid_save(saver, tmp_path, 2)
        claims = tmp_path / "store" / "claims"
        claims.rename(tmp_path / "claims")
        claims.write_bytes(b"in the way")
        os.kill(saver.writer, signal.SIGKILL)
        assert outcomes(saver) == []
        claims.unlink()
        (tmp_path / "claims").rename(claims)
        (event,) = outcomes(saver)
    assert (event["event"], event["reason"]) == ("commit_failed", "the writer process has died (signal 9)")


def ended(pid: int) -> bool:
    """Whether a process has ended, even if its parent has not waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_a_writer_dies_with_its_trainer_even_in_mid_save(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainer.dies_in_mid_save", str(tmp_path)]
    trainer = subprocess.run(command, capture_output=True, text=True)
    assert trainer.returncode == -signal.SIGKILL, trainer.stderr
    writer = int(trainer.stdout)
    until(lambda: ended(writer), "the writer's death")
    assert steps(tmp_path) == []


def test_a_stop_signal_to_the_whole_group_does_not_end_the_writer(tmp_path: Path) -> None:
    with saving(tmp_path) as saver:
        saver.save(SmallEngine().step(), progress(1))
        outcomes(saver)
        for ending in (signal.SIGTERM, signal.SIGINT):
            os.kill(saver.writer, ending)
        saver.save(SmallEngine().step(), progress(2))
        outcomes(saver)
    assert steps(tmp_path) == [1, 2]


def test_a_superseded_saver_raises_an_error_and_its_checkpoint_is_removed(tmp_path: Path) -> None:
    with saving(tmp_path) as saver:
        fence.claim(tmp_path / "store", Token(2), nodes=("local",), cause="a test", by="a test")
        saver.save(SmallEngine().step(), progress(1))
        with pytest.raises(fence.Superseded, match=r"000001\.0000 was superseded by 000002\.0000"):
            outcomes(saver)
    assert steps(tmp_path) == [] == folders(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB for the checkpoints."""
    with mounted(tmp_path / "durable", "size=256k") as disk:
        yield disk


def test_saves_fail_while_the_disk_is_full_and_succeed_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    saved(tmp_path, 1)
    with saving(tmp_path, Token(2)) as saver:
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space left"), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        saver.save(SmallEngine().step(), progress(2))
        (event,) = outcomes(saver)
        assert (event["event"], event["step"]) == ("commit_failed", 2)
        assert "rank 0: " in event["reason"] and "No space left on device" in event["reason"]
        assert folders(tmp_path) == ["000000001.000001.0000"]
        filler.unlink()
        saver.save(SmallEngine().step(), progress(3))
        outcomes(saver)
    assert steps(tmp_path) == [1, 3]
    assert len(weights(tmp_path, 1)) == len(weights(tmp_path, 3))


def test_without_the_part_of_another_rank_nothing_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.trainer.checkpoint.saving.saver.LATEST_PART", 0.1)
    with saving(tmp_path) as saver:
        saver.prepare(SmallEngine().step())
        # The plan is for one rank; the second rank never reports its part.
        saver._world = replace(ALONE, size=2, mesh=Mesh(replicas=2))
        monkeypatch.setattr(type(saver), "_plan_for", lambda self, _: self._plan)
        saver.save(SmallEngine().step(), progress(1))
        (event,) = outcomes(saver)
    assert event["reason"] == "rank 1: its part was not written within 0 s"
    assert steps(tmp_path) == [] == folders(tmp_path)


def test_nobody_waits_for_a_rank_that_a_full_store_keeps_from_reporting(tmp_path: Path) -> None:
    name = "000000010.000001.0000"
    with mounted(tmp_path / "store", "size=64k") as store:
        parts.report(store, name, 0, {"files": {}})
        with contextlib.suppress(OSError), (store / "filler").open("wb") as filler:
            while True:
                filler.write(b"0" * 4096)
                filler.flush()
        with pytest.raises(OSError, match="No space left"):
            parts.report(store, name, 1, {"error": "a full disk"})
        begun = time.monotonic()
        parts_gathered = parts.gather(store, name, 2, 600.0)
    assert parts_gathered == [{"files": {}}, {"error": "its part could not be written into the training store"}]
    assert time.monotonic() - begun < 300


def test_the_error_of_another_rank_is_gathered_with_the_parts(tmp_path: Path) -> None:
    store, name = tmp_path / "store", f"{1:09d}.{TOKEN}"
    parts.report(store, name, 0, {"files": {}})
    parts.report(store, name, 1, {"error": "a full disk"})
    assert parts.gather(store, name, 2, 0.0) == [{"files": {}}, {"error": "a full disk"}]


def test_tensors_that_appear_later_are_saved_too(tmp_path: Path) -> None:
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        saver.save(engine, progress(1))
        saver.save(engine.step(), progress(2))
        outcomes(saver)
    tensor_names = [
        contents.open_verified(tmp_path / "durable" / commit.folder, commit.manifest).tensor_names("optimizer/")
        for commit in fence.commits(tmp_path / "store")
    ]
    assert tensor_names[0] == [] and len(tensor_names[1]) == 3 * 4


def test_the_writer_imports_no_torch() -> None:
    program = "import sys, slipway.trainer.checkpoint.saving.writer; print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", f"import json; {program}"], capture_output=True, check=True, text=True
    )
    assert not {"torch", "numpy", "safetensors"} & set(json.loads(ended.stdout))


def test_memory_is_allocated_before_the_first_save(tmp_path: Path) -> None:
    engine = SmallEngine().step()
    with saving(tmp_path) as saver:
        saver.prepare(engine)
        buffer = saver._channel.buffers[0]
        buffer.wait()
        assert os.fstat(buffer.fd).st_blocks * 512 >= os.fstat(buffer.fd).st_size > 0
        assert isinstance(buffer, Buffer)
