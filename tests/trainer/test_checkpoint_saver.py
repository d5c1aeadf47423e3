"""Saving beside the training: what goes wrong with a checkpoint costs that checkpoint, and never the training."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import until
from tests.disks import mounted
from tests.trainer.keeping import ALONE, TOKEN, Keeps, held_in_mid_save, outcomes, progress, saved, saving
from trainer import fence
from trainer.checkpoint import contents, parts, saver, snapshot
from trainer.fence import Token
from trainer.layout import Mesh


def weights(folder: Path, step: int) -> torch.Tensor:
    commit = next(commit for commit in fence.commits(folder / "store") if commit.step == step)
    return contents.read(folder / "durable" / commit.folder, commit.manifest).tensors("model")["0.weight"]


def steps(folder: Path) -> list[int]:
    return [commit.step for commit in fence.commits(folder / "store")]


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "durable" / "checkpoints" / "tiny").iterdir())


def test_a_commit_is_an_event_with_its_figures(tmp_path: Path) -> None:
    with saving(tmp_path) as kept:
        kept.save(Keeps().step(), progress(5))
        (told,) = outcomes(kept)
    (commit,) = fence.commits(tmp_path / "store")
    sizes = [path.stat().st_size for path in (tmp_path / "durable" / commit.folder).iterdir()]
    manifest = (tmp_path / "durable" / commit.folder / "MANIFEST.json").stat().st_size
    assert (told["event"], told["step"], told["commit"]) == ("committed", 5, commit.name)
    assert told["bytes"] == sum(sizes) - manifest
    assert 0 < told["blocked_seconds"] < told["seconds"]
    assert commit.metrics == {"loss": 0.2}


def test_a_checkpoint_is_of_the_moment_that_it_was_asked_for(tmp_path: Path) -> None:
    engine = Keeps()
    with saving(tmp_path) as kept:
        kept.prepare(engine)
        os.kill(kept.writer, signal.SIGSTOP)
        then = engine.step().model.state_dict()["0.weight"].clone()
        kept.save(engine, progress(5))
        engine.step()
        os.kill(kept.writer, signal.SIGCONT)
        outcomes(kept)
    assert torch.equal(weights(tmp_path, 5), then)
    assert not torch.equal(engine.model.state_dict()["0.weight"], then)


def test_nothing_else_is_left_when_all_is_committed(tmp_path: Path) -> None:
    commits = saved(tmp_path, 1, 2, 3)
    assert folders(tmp_path) == [commit.name for commit in commits]
    assert list((tmp_path / "store" / "parts").iterdir()) == []


def test_two_may_be_on_their_way_and_a_third_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "PATIENCE", 0.0)
    engine = Keeps()
    with saving(tmp_path) as kept:
        os.kill(kept.writer, signal.SIGSTOP)
        for step in (1, 2, 3):
            kept.save(engine.step(), progress(step))
        (told,) = kept.events()
        assert (told["event"], told["step"]) == ("commit_failed", 3)
        assert told["reason"] == "the two checkpoints before it are still being written"
        os.kill(kept.writer, signal.SIGCONT)
        assert [event["step"] for event in outcomes(kept)] == [1, 2]
        kept.save(engine, progress(4))
        outcomes(kept)
    assert steps(tmp_path) == [1, 2, 4]


def test_the_last_one_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "PATIENCE", 0.0)
    engine = Keeps()
    with saving(tmp_path) as kept:
        os.kill(kept.writer, signal.SIGSTOP)
        for step in (1, 2):
            kept.save(engine.step(), progress(step))
        threading.Timer(0.2, os.kill, (kept.writer, signal.SIGCONT)).start()
        kept.save(engine.step(), progress(3), last=True)
        outcomes(kept)
    assert steps(tmp_path) == [1, 2, 3]


def test_a_writer_killed_in_mid_save_costs_that_checkpoint_and_the_next_has_a_new_writer(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with saving(tmp_path, TOKEN) as kept:
        half = held_in_mid_save(kept, tmp_path, 2)
        first = kept.writer
        os.kill(first, signal.SIGKILL)
        (told,) = outcomes(kept)
        assert (told["event"], told["step"]) == ("commit_failed", 2)
        assert told["reason"] == "the writer process has died (signal 9)"
        assert half.exists() and steps(tmp_path) == [1]
        kept.save(Keeps().step(), progress(3))
        outcomes(kept)
        assert kept.writer != first
    assert steps(tmp_path) == [1, 3]
    assert not half.exists()


def ended(pid: int) -> bool:
    """Whether a process has ended, waited for by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_writer_dies_with_its_trainer_even_in_mid_save(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainer.dies_in_mid_save", str(tmp_path)]
    trainer = subprocess.run(command, capture_output=True, text=True)
    assert trainer.returncode == -signal.SIGKILL, trainer.stderr
    writer = int(trainer.stdout)
    until(lambda: ended(writer), "the writer's death")
    assert steps(tmp_path) == []


def test_a_stop_signal_to_the_whole_group_does_not_end_the_writer(tmp_path: Path) -> None:
    with saving(tmp_path) as kept:
        kept.save(Keeps().step(), progress(1))
        outcomes(kept)
        for ending in (signal.SIGTERM, signal.SIGINT):
            os.kill(kept.writer, ending)
        kept.save(Keeps().step(), progress(2))
        outcomes(kept)
    assert steps(tmp_path) == [1, 2]


def test_a_superseded_saver_says_so_and_its_checkpoint_is_gone(tmp_path: Path) -> None:
    with saving(tmp_path) as kept:
        fence.claim(tmp_path / "store", Token(2), nodes=("local",), cause="a test", by="a test")
        kept.save(Keeps().step(), progress(1))
        with pytest.raises(fence.Superseded, match=r"000001\.0000 was superseded by 000002\.0000"):
            outcomes(kept)
    assert steps(tmp_path) == [] == folders(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The checkpoints' file system has 256 KiB."""
    with mounted(tmp_path / "durable", "size=256k") as disk:
        yield disk


def test_a_disk_that_fills_up_costs_checkpoints_until_there_is_room_again(tmp_path: Path, small_disk: Path) -> None:
    saved(tmp_path, 1)
    with saving(tmp_path, Token(2)) as kept:
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space left"), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        kept.save(Keeps().step(), progress(2))
        (told,) = outcomes(kept)
        assert (told["event"], told["step"]) == ("commit_failed", 2)
        assert "rank 0: " in told["reason"] and "No space left on device" in told["reason"]
        assert folders(tmp_path) == ["000000001.000001.0000"]
        filler.unlink()
        kept.save(Keeps().step(), progress(3))
        outcomes(kept)
    assert steps(tmp_path) == [1, 3]
    assert len(weights(tmp_path, 1)) == len(weights(tmp_path, 3))


def test_without_the_part_of_another_rank_nothing_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "LATEST_PART", 0.1)
    with saving(tmp_path) as kept:
        kept.prepare(Keeps().step())
        # Planned for one rank; the second never says anything.
        kept._world = replace(ALONE, size=2, mesh=Mesh(replicas=2))
        monkeypatch.setattr(type(kept), "_planned", lambda self, _: self._plan)
        kept.save(Keeps().step(), progress(1))
        (told,) = outcomes(kept)
    assert told["reason"] == "rank 1: has not finished within 0 s"
    assert steps(tmp_path) == [] == folders(tmp_path)


def test_what_another_rank_has_failed_at_is_the_reason(tmp_path: Path) -> None:
    store, name = tmp_path / "store", f"{1:09d}.{TOKEN}"
    parts.report(store, name, 0, {"files": {}})
    parts.report(store, name, 1, {"error": "a full disk"})
    assert parts.gather(store, name, 2, 0.0) == [{"files": {}}, {"error": "a full disk"}]


def frozen(folder: Path, name: str) -> Path:
    return folder / "durable" / "checkpoints" / "tiny" / name / "frozen-00000.safetensors"


def test_parameters_that_do_not_train_are_written_once_and_deleting_a_checkpoint_harms_no_other(tmp_path: Path) -> None:
    engine = Keeps()
    first, second = saved(tmp_path, 1, 2, engine=engine)
    assert frozen(tmp_path, first.name).stat().st_ino == frozen(tmp_path, second.name).stat().st_ino
    for path in frozen(tmp_path, first.name).parent.iterdir():
        path.unlink()
    assert contents.read(tmp_path / "durable" / second.folder, second.manifest).tensors("model").keys() == set(
        engine.model.state_dict()
    )


def test_an_incarnation_refers_to_the_checkpoint_that_it_began_with(tmp_path: Path) -> None:
    engine = Keeps()
    (first,) = saved(tmp_path, 1, engine=engine)
    with saving(tmp_path, Token(2)) as kept:
        kept.continues(first)
        kept.save(engine, progress(2))
        outcomes(kept)
    second = fence.commits(tmp_path / "store")[-1]
    assert frozen(tmp_path, first.name).stat().st_ino == frozen(tmp_path, second.name).stat().st_ino


def test_a_file_that_has_rotted_is_not_referred_to(tmp_path: Path) -> None:
    engine = Keeps()
    with saving(tmp_path) as kept:
        for step in (1, 2):
            kept.save(engine, progress(step))
            outcomes(kept)
            path = frozen(tmp_path, f"{step:09d}.{TOKEN}")
            if step == 1:
                path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    second = fence.commits(tmp_path / "store")[-1]
    contents.read(tmp_path / "durable" / second.folder, second.manifest)


def test_frozen_parameters_that_change_all_the_same_are_written(tmp_path: Path) -> None:
    engine = Keeps()
    with saving(tmp_path) as kept:
        for step in (1, 2):
            with torch.no_grad():
                engine.model.get_parameter("2.weight").fill_(step)
            kept.save(engine, progress(step))
            outcomes(kept)
    first, second = fence.commits(tmp_path / "store")
    for commit in (first, second):
        found = contents.read(tmp_path / "durable" / commit.folder, commit.manifest).tensors("model")
        assert float(found["2.weight"].mean()) == commit.step


def test_tensors_that_appear_later_are_planned_anew(tmp_path: Path) -> None:
    engine = Keeps()
    with saving(tmp_path) as kept:
        kept.save(engine, progress(1))
        kept.save(engine.step(), progress(2))
        outcomes(kept)
    found = [
        contents.read(tmp_path / "durable" / commit.folder, commit.manifest).names("optimiser/")
        for commit in fence.commits(tmp_path / "store")
    ]
    assert found[0] == [] and len(found[1]) == 3 * 4


def test_the_writer_imports_no_torch() -> None:
    program = "import sys, trainer.checkpoint.writer; print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", f"import json; {program}"], capture_output=True, check=True, text=True
    )
    assert not {"torch", "numpy", "safetensors"} & set(json.loads(ended.stdout))


def test_memory_is_made_before_the_first_save(tmp_path: Path) -> None:
    engine = Keeps().step()
    with saving(tmp_path) as kept:
        kept.prepare(engine)
        buffer = kept._channel.buffers[0]
        buffer.wait()
        assert os.fstat(buffer.fd).st_blocks * 512 >= os.fstat(buffer.fd).st_size > 0
        assert isinstance(buffer, snapshot.Buffer)
