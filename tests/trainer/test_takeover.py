"""Who trains: the token a process starts under, given by a launcher or claimed by hand."""

from pathlib import Path

import pytest

from trainer import atomic, fence, incarnation
from trainer.fence import Token


def claim(folder: Path, token: Token) -> bool:
    return fence.claim(folder, token, nodes=("node-0",), cause="a test", by="a test")


def test_a_training_started_by_hand_claims_the_next_incarnation(tmp_path: Path) -> None:
    assert incarnation.claimed(tmp_path) == Token(1)
    claim(tmp_path, Token(1, 3))
    assert incarnation.claimed(tmp_path) == Token(2)
    held = fence.newest_claim(tmp_path)
    assert held is not None and (held.token, held.cause) == (Token(2), "started by hand")


def test_of_two_started_by_hand_at_once_the_second_is_superseded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = atomic.create_only

    def after_another(path: Path, data: bytes) -> bool:
        monkeypatch.setattr(atomic, "create_only", write)
        assert claim(tmp_path, Token(1))
        return write(path, data)

    monkeypatch.setattr(atomic, "create_only", after_another)
    with pytest.raises(fence.Superseded, match="claimed by somebody else"):
        incarnation.claimed(tmp_path)


def test_the_first_start_of_a_launched_incarnation_uses_the_claim_that_was_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    claim(tmp_path, Token(4))
    monkeypatch.setenv("SLIPWAY_INCARNATION", "4")
    assert incarnation.claimed(tmp_path) == Token(4)
    held = fence.newest_claim(tmp_path)
    assert held is not None and held.by == "a test"


def test_ranks_restarted_by_torchrun_claim_a_generation_on_the_same_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    claim(tmp_path, Token(4))
    monkeypatch.setenv("SLIPWAY_INCARNATION", "4")
    assert incarnation.claimed(tmp_path) == Token(4, 2)
    held = fence.newest_claim(tmp_path)
    assert held is not None and (held.token, held.nodes) == (Token(4, 2), ("node-0",))


@pytest.mark.parametrize("restarts", ["0", "1"])
def test_ranks_of_an_incarnation_that_is_over_do_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: str
) -> None:
    monkeypatch.setenv("SLIPWAY_INCARNATION", "4")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    for number in (4, 5):
        claim(tmp_path, Token(number))
    with pytest.raises(fence.Superseded, match=r"superseded by 000005\.0000"):
        incarnation.claimed(tmp_path)
    held = fence.newest_claim(tmp_path)
    assert held is not None and held.token == Token(5)
