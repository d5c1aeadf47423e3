"""Kills: an act in a child of a process that has hashed with threads ends all the same."""

import sys
from pathlib import Path

from slipway.trainer.base import verify
from tests.kills import killed_at


def test_a_child_hashes_although_its_parent_has(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(64 << 20))
    blake3_expected = verify.measure(tmp_path / "large").blake3
    assert not killed_at(sys.maxsize, lambda: _require(verify.measure(tmp_path / "large").blake3 == blake3_expected))


def _require(condition: bool) -> None:
    assert condition
