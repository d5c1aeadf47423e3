"""Scripts under control: their code is kept as it was, and nothing runs that is not what the identity says (T11)."""

from pathlib import Path
from typing import Any

import pytest

from resources import scripts
from resources.launcher.protocol import State
from tests.control.lab import Lab

ADDS = Path(__file__).parents[1] / "trainer" / "scripts" / "adds.py"


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
    first = scripts.keep(code, tmp_path / "durable")
    assert scripts.keep(code.rename(tmp_path / "elsewhere"), tmp_path / "durable") == first
    kept = scripts.folder(first, tmp_path / "durable")
    assert {str(path.relative_to(kept)) for path in kept.rglob("*.py")} == {"train.py", "parts/model.py"}


def test_an_edit_is_other_code_and_leaves_what_was_kept(code: Path, tmp_path: Path):
    first = scripts.keep(code, tmp_path / "durable")
    (code / "parts" / "model.py").write_text("layers = 3\n")
    assert scripts.keep(code, tmp_path / "durable") != first
    assert (scripts.folder(first, tmp_path / "durable") / "parts" / "model.py").read_text() == "layers = 2\n"


def test_a_permission_to_execute_counts_and_what_python_compiles_does_not(code: Path, tmp_path: Path):
    first = scripts.keep(code, tmp_path)
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "train.pyc").touch()
    assert scripts.keep(code, tmp_path) == first
    (code / "train.py").chmod(0o755)
    assert scripts.keep(code, tmp_path) != first


def test_a_folder_that_holds_more_than_code_is_refused(code: Path, tmp_path: Path):
    with (code / "weights.bin").open("wb") as file:
        file.truncate(65_000_000)
    with pytest.raises(ValueError, match="found 3 files of 65 MB, expected code: 1 to 10000 files of 64 MB at most"):
        scripts.keep(code, tmp_path / "durable")
    assert not (tmp_path / "durable").exists()


def test_kept_code_that_was_changed_is_not_run(code: Path, tmp_path: Path):
    kept = scripts.folder(scripts.keep(code, tmp_path), tmp_path)
    (kept / "train.py").write_text("print('there')\n")
    with pytest.raises(ValueError, match=f"{kept}: found code of the digest "):
        scripts.folder(kept.name, tmp_path)


def test_a_script_is_launched_and_taken_to_its_end(lab: Lab):
    training = lab.wanted(numbers(scripts.keep(ADDS, lab.durable)))
    lab.advance(training)
    ended = training.exit()
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", 20)
    assert [commit.step for commit in training.commits()] == [5, 10, 15, 20]


def test_without_its_code_no_rank_starts_and_the_reason_is_said(lab: Lab):
    training = lab.wanted(numbers("0" * 64))
    lab.advance(training)
    assert not training.wanted
    assert all("found nothing, expected the code of the training" in ended.reason for ended in training.failures())
    assert lab.launcher.poll(lab.job(training)).state is State.MISSING
