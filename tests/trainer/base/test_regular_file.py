"""What is no regular file is never opened for reading: it is an error at once, and nobody waits."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from slipway.trainer.base import codec, listing, regular_file
from slipway.trainer.data import snapshots

pytestmark = [pytest.mark.pure, pytest.mark.timeout(20)]
SHA256 = "ab" * 32


@pytest.fixture(params=["pipe", "socket", "device", "link to a pipe"])
def stray(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "snapshots" / f"{SHA256}.json"
    path.parent.mkdir()
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(path.parent):
            bound.bind("s")  # its path from here: the whole one is too long for a socket
        (path.parent / "s").rename(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    return path


def test_what_is_no_file_is_refused_and_nobody_waits_for_it(stray: Path):
    with pytest.raises(OSError):
        regular_file.read(stray)
    with pytest.raises(OSError):
        codec.read(stray, dict)
    with pytest.raises((OSError, ValueError)):
        snapshots.read(stray.parents[1], SHA256)


def test_a_file_is_read_whole_and_a_folder_is_refused_as_ever(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert regular_file.read(tmp_path / "file") == b"x" * 100_000
    with pytest.raises(IsADirectoryError):
        regular_file.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        regular_file.read(tmp_path / "absent")


def test_a_stray_name_is_logged_once_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    for _ in range(3):
        assert listing.fitting(tmp_path, ["a", "@", "b"], str.isalpha) == ["a", "b"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: found the stray name '@', which is passed over: remove it"
    ]
