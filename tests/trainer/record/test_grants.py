"""Grants: how far a training may go for now."""

from pathlib import Path

from slipway.trainer.record import files, grants


def test_a_training_without_a_grant_goes_to_its_last_step(tmp_path: Path):
    assert grants.newest(tmp_path) is None


def test_the_newest_grant_holds_and_the_same_again_is_no_new_one(tmp_path: Path):
    for until, wait in ((10, 5.0), (10, 5.0), (10, 0.0), (30, 0.0), (20, 0.0)):
        grants.grant(tmp_path, until, "test", wait)
    assert len(files.names(tmp_path, files.GRANTS)) == 4
    newest = grants.newest(tmp_path)
    assert newest is not None and (newest.until, newest.wait_seconds) == (20, 0.0)


def test_a_damaged_grant_is_read_from_its_copy(tmp_path: Path):
    grants.grant(tmp_path, 10, "test")
    files.numbered(tmp_path, files.GRANTS, 1).write_bytes(b"{")
    newest = grants.newest(tmp_path)
    assert newest is not None and newest.until == 10
