"""Receipts: the durable tier says which nodes hold a snapshot."""

from pathlib import Path

import pytest

from slipway.resources import receipts

pytestmark = pytest.mark.pure

SNAPSHOT, OTHER = "a" * 64, "b" * 64


def test_a_node_that_staged_a_snapshot_holds_it(tmp_path: Path):
    assert receipts.holders(tmp_path, SNAPSHOT) == frozenset()
    for node in ("node-1", "ip-10-0-0-1.internal", "node-1"):
        receipts.note(tmp_path, SNAPSHOT, node, bytes=7)
    assert receipts.holders(tmp_path, SNAPSHOT) == {"node-1", "ip-10-0-0-1.internal"}
    assert receipts.holders(tmp_path, OTHER) == frozenset()


def test_a_node_no_longer_holds_a_snapshot_that_retention_removed(tmp_path: Path):
    for snapshot in (SNAPSHOT, OTHER):
        receipts.note(tmp_path, snapshot, "node-1", bytes=7)
    receipts.forget(tmp_path, "node-1", [SNAPSHOT])
    assert not receipts.holders(tmp_path, SNAPSHOT) and receipts.holders(tmp_path, OTHER) == {"node-1"}


def test_a_node_that_is_lost_holds_nothing(tmp_path: Path):
    for node in ("node-0", "node-1"):
        for snapshot in (SNAPSHOT, OTHER):
            receipts.note(tmp_path, snapshot, node, bytes=7)
    receipts.forget(tmp_path, "node-1")
    assert receipts.holders(tmp_path, SNAPSHOT) == receipts.holders(tmp_path, OTHER) == {"node-0"}


def test_forgetting_what_was_never_staged_changes_nothing(tmp_path: Path):
    receipts.forget(tmp_path, "node-1")
    receipts.forget(tmp_path, "node-1", [SNAPSHOT])
    assert list(tmp_path.iterdir()) == []


def test_receipts_that_cannot_be_listed_are_not_no_receipts(tmp_path: Path):
    (tmp_path / "staged").touch()
    for ask in (lambda: receipts.holders(tmp_path, SNAPSHOT), lambda: receipts.forget(tmp_path, "node-1")):
        with pytest.raises(NotADirectoryError):
            ask()
