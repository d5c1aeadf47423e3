"""Who trains: the token a process starts under, given by a launcher or claimed by hand."""

from pathlib import Path

import pytest

from slipway.trainer.base import atomic
from slipway.trainer.record import fence, incarnation
from slipway.trainer.record.fence import Token

pytestmark = pytest.mark.pure


def claim(folder: Path, token: Token) -> bool:
    return fence.claim(folder, token, nodes=("node-0",), cause="a test", by="a test")


def test_a_training_started_by_hand_claims_the_next_incarnation(tmp_path: Path) -> None:
    assert incarnation.claimed(tmp_path) == Token(1)
    claim(tmp_path, Token(1, 3))
    assert incarnation.claimed(tmp_path) == Token(2)
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and (newest_claim.token, newest_claim.cause) == (Token(2), "started by hand")


def test_the_second_of_two_processes_started_by_hand_at_once_is_superseded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = atomic.create_only

    def after_another(path: Path, data: bytes) -> bool:
        monkeypatch.setattr(atomic, "create_only", write)
        assert claim(tmp_path, Token(1))
        return write(path, data)

    monkeypatch.setattr(atomic, "create_only", after_another)
    with pytest.raises(fence.Superseded, match="claimed by another process"):
        incarnation.claimed(tmp_path)


def test_the_first_start_of_a_launched_incarnation_uses_the_claim_that_was_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    claim(tmp_path, Token(4))
    monkeypatch.setenv("SLIPWAY_INCARNATION", "4")
    assert incarnation.claimed(tmp_path) == Token(4)
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and newest_claim.by == "a test"


def test_ranks_restarted_by_torchrun_claim_a_generation_on_the_same_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    claim(tmp_path, Token(4))
    monkeypatch.setenv("SLIPWAY_INCARNATION", "4")
    assert incarnation.claimed(tmp_path) == Token(4, 2)
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and (newest_claim.token, newest_claim.nodes) == (Token(4, 2), ("node-0",))


@pytest.mark.parametrize("restarts", ["0", "1"])
def test_ranks_of_an_older_incarnation_do_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: str
) -> None:
    monkeypatch.setenv("SLIPWAY_INCARNATION", "4")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    for number in (4, 5):
        claim(tmp_path, Token(number))
    with pytest.raises(fence.Superseded, match=r"superseded by 000005\.0000"):
        incarnation.claimed(tmp_path)
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and newest_claim.token == Token(5)


def member(monkeypatch: pytest.MonkeyPatch, port: int, ranks: int) -> None:
    """This process is a rank of the membership that meets at this port."""
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    for name, value in {"SLIPWAY_INCARNATION": 4, "MASTER_ADDR": "node-0", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))


def test_every_change_of_membership_claims_a_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node joins, which torchrun counts as no restart: all ranks begin anew with the same environment."""
    claim(tmp_path, Token(4))
    tokens = []
    for port, ranks in ((1, 2), (2, 3), (3, 2)):
        member(monkeypatch, port, ranks)
        tokens.append(incarnation.claimed(tmp_path))
    assert tokens == [Token(4, 0), Token(4, 1), Token(4, 2)]
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None
    assert (newest_claim.nodes, newest_claim.cause) == (("node-0",), "membership changed: 2 ranks now")


def test_the_membership_before_can_commit_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, Token(4))
    member(monkeypatch, 1, 2)
    before = incarnation.claimed(tmp_path)
    member(monkeypatch, 2, 3)
    incarnation.claimed(tmp_path)
    with pytest.raises(fence.Superseded):
        fence.commit(tmp_path, fence.Commit(5, before, "checkpoints/5", "a" * 64))


def test_a_rank_that_can_ask_nobody_finds_the_token_of_its_own_membership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, Token(4))
    for port in (1, 2):
        member(monkeypatch, port, 2)
        incarnation.claimed(tmp_path)
    assert incarnation.joined(tmp_path) == Token(4, 1)
    member(monkeypatch, 1, 2)
    assert incarnation.joined(tmp_path) == Token(4, 0)


def test_a_rank_whose_rank_0_claims_nothing_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member(monkeypatch, 1, 2)
    monkeypatch.setattr(incarnation, "JOIN_SECONDS", 0.1)
    with pytest.raises(fence.Superseded, match="has claimed no generation"):
        incarnation.joined(tmp_path)
