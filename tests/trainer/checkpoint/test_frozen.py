"""Parameters that are not trained: one file that the checkpoints share, as long as it is whole and unchanged."""

from pathlib import Path

import torch

from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.trainer.checkpoints import TOKEN, SmallEngine, outcomes, progress, saved, saving


def frozen(folder: Path, name: str) -> Path:
    return folder / "durable" / "checkpoints" / "tiny" / name / "frozen-00000.safetensors"


def test_frozen_parameters_are_written_once_and_removing_a_checkpoint_harms_no_other(tmp_path: Path) -> None:
    engine = SmallEngine()
    first, second = saved(tmp_path, 1, 2, engine=engine)
    assert frozen(tmp_path, first.name).stat().st_ino == frozen(tmp_path, second.name).stat().st_ino
    for path in frozen(tmp_path, first.name).parent.iterdir():
        path.unlink()
    assert contents.open_verified(tmp_path / "durable" / second.folder, second.manifest).tensors("model").keys() == set(
        engine.model.state_dict()
    )


def test_an_incarnation_links_files_of_the_checkpoint_that_it_began_with(tmp_path: Path) -> None:
    engine = SmallEngine()
    (first,) = saved(tmp_path, 1, engine=engine)
    with saving(tmp_path, Token(2)) as saver:
        saver.resumed_from(first)
        saver.save(engine, progress(2))
        outcomes(saver)
    second = fence.commits(tmp_path / "store")[-1]
    assert frozen(tmp_path, first.name).stat().st_ino == frozen(tmp_path, second.name).stat().st_ino


def test_a_damaged_file_is_not_linked(tmp_path: Path) -> None:
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        for step in (1, 2):
            saver.save(engine, progress(step))
            outcomes(saver)
            path = frozen(tmp_path, f"{step:09d}.{TOKEN}")
            if step == 1:
                path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    second = fence.commits(tmp_path / "store")[-1]
    contents.open_verified(tmp_path / "durable" / second.folder, second.manifest)


def test_frozen_parameters_that_change_are_written_again(tmp_path: Path) -> None:
    engine = SmallEngine()
    with saving(tmp_path) as saver:
        for step in (1, 2):
            with torch.no_grad():
                engine.model.get_parameter("2.weight").fill_(step)
            saver.save(engine, progress(step))
            outcomes(saver)
    first, second = fence.commits(tmp_path / "store")
    for commit in (first, second):
        tensors = contents.open_verified(tmp_path / "durable" / commit.folder, commit.manifest).tensors("model")
        assert float(tensors["2.weight"].mean()) == commit.step
