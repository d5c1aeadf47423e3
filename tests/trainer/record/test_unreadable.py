"""Unreadable is not empty: a training whose records cannot be read never reads as one without commits."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from slipway.trainer.record import fence, ledger
from slipway.trainer.record.fence import Unreadable
from tests.trainer.record.test_fence import a_commit, claim, names

pytestmark = pytest.mark.pure


def test_claims_that_are_gone_are_not_no_commits(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    shutil.rmtree(tmp_path / "claims")
    for attempt in (fence.commits, fence.newest_claim, fence.pruned, lambda folder: claim(folder, 2)):
        with pytest.raises(Unreadable, match=r"claims: found no claim, but records in commits/.*is mounted"):
            attempt(tmp_path)


def test_a_folder_of_commits_that_is_gone_is_not_no_commits(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    shutil.rmtree(tmp_path / "commits")
    for attempt in (fence.commits, lambda folder: claim(folder, 2)):
        with pytest.raises(Unreadable, match="commits: the folder of the commits is gone"):
            attempt(tmp_path)


@pytest.mark.parametrize("folder", ["claims", "commits", "set-aside", "pruned"])
def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path, folder: str) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    shutil.rmtree(tmp_path / folder, ignore_errors=True)
    (tmp_path / folder).write_bytes(b"")
    for attempt in (fence.commits, lambda at: claim(at, 2)):
        with pytest.raises(Unreadable, match=f"{folder}: cannot be listed .Not a directory."):
            attempt(tmp_path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_tier_that_does_not_answer_has_not_lost_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    scandir = os.scandir

    def broken(path: Path) -> object:
        if Path(path).name == "claims":
            raise OSError(code, os.strerror(code))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(Unreadable, match=f"claims: cannot be listed .{os.strerror(code)}.") as error:
        fence.commits(tmp_path)
    assert error.value.errno == code


def test_a_claim_of_a_token_that_lost_its_claim_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    claim(tmp_path, 2)
    fence.commit(tmp_path, a_commit(5, 2))
    for path in (tmp_path / "claims").glob("000002.*"):
        path.unlink()
    with pytest.raises(Unreadable, match=r"found no claim of token 000002\.0000, which has committed"):
        claim(tmp_path, 3)


def test_other_files_among_the_commits_are_passed_over(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    for name in ("notes.json", "notes.txt", "5.1.json"):
        (tmp_path / "commits" / name).write_text("{}")
    (tmp_path / "claims" / "000007.json~").write_text("{}")
    assert names(tmp_path) == [a_commit(5, 1).name]
    assert claim(tmp_path, 2)


def test_a_ledger_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    assert ledger.read(tmp_path) == []
    (tmp_path / "ledger").touch()
    with pytest.raises(Unreadable, match="ledger: cannot be listed"):
        ledger.read(tmp_path)
