"""Scripts under control: their code is kept as it was, and nothing runs that is not what the identity says."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.job import code_folder, keep_code
from tests.resources.trainings.lab import Lab

ADDS = Path(__file__).parents[2] / "trainer" / "scripts" / "adds.py"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder of code with a file in a folder of its own."""
    folder = tmp_path / "code"
    (folder / "parts").mkdir(parents=True)
    (folder / "train.py").write_text("print('here')\n")
    (folder / "parts" / "model.py").write_text("layers = 2\n")
    return folder


def numbers(code: str) -> dict[str, Any]:
    return {"script": {"command": ["python", "adds.py"], "code": code}, "parameters": {"steps": 20, "every": 5}}


def test_code_is_kept_by_its_content_alone(code: Path, tmp_path: Path):
    first = keep_code(code, tmp_path / "durable")
    assert keep_code(code.rename(tmp_path / "elsewhere"), tmp_path / "durable") == first
    code_copy = code_folder(first, tmp_path / "durable")
    assert {str(path.relative_to(code_copy)) for path in code_copy.rglob("*.py")} == {"train.py", "parts/model.py"}


def test_an_edit_is_other_code_and_leaves_what_was_kept(code: Path, tmp_path: Path):
    first = keep_code(code, tmp_path / "durable")
    (code / "parts" / "model.py").write_text("layers = 3\n")
    assert keep_code(code, tmp_path / "durable") != first
    assert (code_folder(first, tmp_path / "durable") / "parts" / "model.py").read_text() == "layers = 2\n"


def test_a_permission_to_execute_counts_and_what_python_compiles_does_not(code: Path, tmp_path: Path):
    first = keep_code(code, tmp_path)
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "train.pyc").touch()
    assert keep_code(code, tmp_path) == first
    (code / "train.py").chmod(0o755)
    assert keep_code(code, tmp_path) != first


def test_a_folder_that_holds_more_than_code_is_refused(code: Path, tmp_path: Path):
    with (code / "weights.bin").open("wb") as file:
        file.truncate(65_000_000)
    with pytest.raises(ValueError, match="found 3 files of 65 MB, expected code: 1 to 10000 files of 64 MB at most"):
        keep_code(code, tmp_path / "durable")
    assert not (tmp_path / "durable").exists()


def test_kept_code_that_was_changed_is_not_run(code: Path, tmp_path: Path):
    code_copy = code_folder(keep_code(code, tmp_path), tmp_path)
    (code_copy / "train.py").write_text("print('there')\n")
    with pytest.raises(ValueError, match=f"{code_copy}: found code of the digest "):
        code_folder(code_copy.name, tmp_path)


def test_a_symbolic_link_is_refused_and_nothing_of_what_it_points_to_is_kept(code: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("a password")
    for link, target in (("settings.py", tmp_path / "secret"), ("parts/more", tmp_path), ("dangling", tmp_path / "x")):
        (code / link).symlink_to(target)
        with pytest.raises(ValueError, match=f"{link}: found a symbolic link, expected a file or a folder"):
            keep_code(code, tmp_path / "durable")
        (code / link).unlink()
    (tmp_path / "link").symlink_to(code)
    (tmp_path / "link.py").symlink_to(tmp_path / "secret")
    for link in ("link", "link.py"):
        with pytest.raises(ValueError, match="found a symbolic link"):
            keep_code(tmp_path / link, tmp_path / "durable")
    assert not (tmp_path / "durable").exists()


def test_a_symbolic_link_among_the_kept_code_is_not_run(code: Path, tmp_path: Path):
    code_copy = code_folder(keep_code(code, tmp_path), tmp_path)
    (code_copy / "train.py").rename(tmp_path / "train.py")
    (code_copy / "train.py").symlink_to(tmp_path / "train.py")
    with pytest.raises(ValueError, match="found a symbolic link"):
        code_folder(code_copy.name, tmp_path)


@pytest.mark.parametrize("damage", ["torn", "missing", "more", "a link", "a file", "gone", "not executable"])
def test_kept_code_that_is_torn_is_made_again(code: Path, tmp_path: Path, damage: str):
    (code / "train.py").chmod(0o755)
    name = keep_code(code, tmp_path)
    code_copy = code_folder(name, tmp_path)
    match damage:
        case "torn":
            os.truncate(code_copy / "train.py", 3)
        case "missing":
            (code_copy / "parts" / "model.py").unlink()
        case "more":
            (code_copy / "more.py").touch()
        case "a link":
            code_copy.rename(tmp_path / "elsewhere").joinpath("x").touch()
            code_copy.symlink_to(tmp_path / "elsewhere")
        case "a file":
            shutil.rmtree(code_copy)
            code_copy.touch()
        case "gone":
            shutil.rmtree(code_copy)
        case "not executable":
            (code_copy / "train.py").chmod(0o644)
    with pytest.raises(ValueError, match=name):
        code_folder(name, tmp_path)
    assert keep_code(code, tmp_path) == name
    assert (code_folder(name, tmp_path) / "train.py").read_text() == "print('here')\n"


def test_code_that_cannot_be_read_is_an_error_and_not_left_out(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    listdir = os.listdir

    def broken(path: Path) -> list[str]:
        if Path(path).name == "parts":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", broken)
    with pytest.raises(OSError, match=r"Input/output error.*parts"):
        keep_code(code, tmp_path)


def test_a_script_is_launched_and_taken_to_its_end(lab: Lab):
    training = lab.start_training(numbers(keep_code(ADDS, lab.durable)))
    lab.advance(training)
    ended = training.exit()
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", 20)
    assert [commit.step for commit in training.commits()] == [5, 10, 15, 20]


def test_without_its_code_no_rank_starts_and_the_exit_has_the_reason(lab: Lab):
    training = lab.start_training(numbers("0" * 64))
    lab.advance(training)
    assert not training.read().should_run
    assert all("found nothing, expected the code of the training" in ended.reason for ended in training.read().failures)
    assert lab.launcher.poll(lab.job(training)).state is JobState.MISSING
