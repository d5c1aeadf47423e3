"""Orders of drills: who is to obey, and what is none."""

from pathlib import Path

import pytest

from slipway.trainer.record import drills, files

pytestmark = pytest.mark.pure
NOW, LATER = "000001.0000", "000001.0001"


def kinds(store: Path, rank: int, token: str) -> list[str]:
    return sorted(order.kind for order in drills.orders(store, rank, token).values())


def test_an_order_is_for_one_rank_of_one_generation(tmp_path: Path):
    drills.order(tmp_path, drills.NAN, 1, NOW, "a test")
    assert kinds(tmp_path, 1, NOW) == [drills.NAN]
    assert kinds(tmp_path, 0, NOW) == [] and kinds(tmp_path, 1, LATER) == []


def test_an_order_for_ever_is_for_every_later_start_too(tmp_path: Path):
    drills.order(tmp_path, drills.NAN_FOR_EVER, 0, "", "a test")
    assert kinds(tmp_path, 0, NOW) == kinds(tmp_path, 0, LATER) == [drills.NAN_FOR_EVER]


def test_an_order_that_cannot_be_read_is_none(tmp_path: Path):
    drills.order(tmp_path, drills.FLIP, 0, NOW, "a test")
    files.named(tmp_path, files.DRILLS, "broken").write_text("{")
    assert kinds(tmp_path, 0, NOW) == [drills.FLIP]


def test_an_unknown_drill_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="drill: found 'explode', expected one of kill, crash, stop, slow, nan"):
        drills.order(tmp_path, "explode", 0, NOW, "a test")
    assert drills.orders(tmp_path, 0, NOW) == {}
