"""Receipts: the durable tier says which nodes hold a snapshot."""

from pathlib import Path

from resources import staged

SNAPSHOT, OTHER = "a" * 64, "b" * 64


def test_who_staged_a_snapshot_holds_it(tmp_path: Path):
    assert staged.holders(tmp_path, SNAPSHOT) == frozenset()
    for node in ("node-1", "ip-10-0-0-1.internal", "node-1"):
        staged.note(tmp_path, SNAPSHOT, node, bytes=7)
    assert staged.holders(tmp_path, SNAPSHOT) == {"node-1", "ip-10-0-0-1.internal"}
    assert staged.holders(tmp_path, OTHER) == frozenset()


def test_what_retention_removed_is_held_no_longer(tmp_path: Path):
    for snapshot in (SNAPSHOT, OTHER):
        staged.note(tmp_path, snapshot, "node-1", bytes=7)
    staged.forget(tmp_path, "node-1", [SNAPSHOT])
    assert not staged.holders(tmp_path, SNAPSHOT) and staged.holders(tmp_path, OTHER) == {"node-1"}


def test_a_node_that_is_lost_holds_nothing(tmp_path: Path):
    for node in ("node-0", "node-1"):
        for snapshot in (SNAPSHOT, OTHER):
            staged.note(tmp_path, snapshot, node, bytes=7)
    staged.forget(tmp_path, "node-1")
    assert staged.holders(tmp_path, SNAPSHOT) == staged.holders(tmp_path, OTHER) == {"node-0"}


def test_forgetting_what_was_never_staged_changes_nothing(tmp_path: Path):
    staged.forget(tmp_path, "node-1")
    staged.forget(tmp_path, "node-1", [SNAPSHOT])
    assert list(tmp_path.iterdir()) == []
