"""Endings: what ranks say of their end, and which of several records tells the cause."""

import errno
from pathlib import Path

import pytest

from slipway.trainer.base import codec
from slipway.trainer.record import causes, fence, incidents, rank_exit
from slipway.trainer.record.fence import Superseded, Token
from slipway.trainer.record.incidents import IncidentRecord
from slipway.trainer.record.scores import Diverged
from slipway.trainer.step.parallel.copies import Drifted


def kind(store: Path, incarnation: int = 1) -> str | None:
    end = rank_exit.decisive(store, incarnation)
    return end.kind if end else None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("field batch.micro: expected 1 or more"), causes.CONFIGURATION),
        (MemoryError(), causes.NODE),
        (causes.UnfitNode("placement.staging: found auto with 1.0 kB of room", "node-1"), causes.NODE),
        (OSError(errno.EADDRINUSE, "Address already in use"), causes.NODE),
        (RuntimeError("The server socket has failed to listen: EADDRINUSE"), causes.NODE),
        (RuntimeError("Found no NVIDIA driver on your system"), causes.NODE),
        (RuntimeError("unable to write to file </torch_1>: No space left on device (28)"), causes.NODE),
        (causes.LackingTier("snapshot 0123: there is no such snapshot"), causes.STORAGE),
        (codec.UndecodableRecord("terms.json: not JSON"), causes.STORAGE),
        (OSError(5, "Input/output error"), causes.STORAGE),
        (Superseded("by another"), causes.SUPERSEDED),
        (Diverged("the loss of step 2 is nan"), causes.DIVERGED),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), causes.MACHINE),
        (RuntimeError("CUDA error: unspecified launch failure (Xid 79: GPU has fallen off the bus)"), causes.MACHINE),
        (RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error"), causes.NETWORK),
        (ValueError("Default process group has not been initialized, please make sure to call it"), causes.NETWORK),
        (RuntimeError("Could not resolve the process group registered under the name 3"), causes.NETWORK),
        (Drifted("the weights of ranks 2 (node-2) differ", (2,), ("node-2",)), causes.CORRUPTION),
        (RuntimeError("CUDA error: device-side assert triggered"), causes.PROGRAM),
        (KeyError("x"), causes.PROGRAM),
    ],
)
def test_errors_are_distinguished(error: Exception, expected: str) -> None:
    assert rank_exit.kind_of(error) == expected


def test_the_record_of_a_rank_names_the_node_that_lacks_something_which_may_be_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_INCARNATION", "1")
    monkeypatch.setenv("SLIPWAY_NODE", "node-0")
    with pytest.raises(causes.UnfitNode), rank_exit.noted(tmp_path):
        raise causes.UnfitNode("found auto with 1.0 kB of room on the NVMe of node-1", "node-1")
    end = rank_exit.decisive(tmp_path, 1)
    assert end is not None and (end.kind, end.node) == (causes.NODE, "node-1")


def exchange_failed(store: Path, monkeypatch: pytest.MonkeyPatch, *ranks: int) -> None:
    """Of two ranks, these say that an exchange failed."""
    monkeypatch.setenv("SLIPWAY_INCARNATION", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ranks:
        monkeypatch.setenv("RANK", str(rank))
        with pytest.raises(RuntimeError), rank_exit.noted(store):
            raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")


def test_a_rank_that_lost_one_that_says_nothing_knows_no_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange_failed(tmp_path, monkeypatch, 0)
    assert kind(tmp_path) is None


def test_where_all_ranks_lost_one_another_and_none_died_it_was_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange_failed(tmp_path, monkeypatch, 0, 1)
    assert kind(tmp_path) == causes.NETWORK


def test_what_another_rank_says_of_itself_is_more_telling_than_a_lost_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange_failed(tmp_path, monkeypatch, 0)
    rank_exit.note(tmp_path, Token(1), 1, causes.PROGRAM, "a reason")
    assert kind(tmp_path) == causes.PROGRAM


def test_an_error_leaves_its_first_line_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_INCARNATION", "3")
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("SLIPWAY_NODE", "node-4")
    with pytest.raises(ValueError, match="first"), rank_exit.noted(tmp_path):
        raise ValueError("first line\nsecond line")
    end = rank_exit.decisive(tmp_path, 3)
    assert end is not None
    assert (end.rank, end.kind, end.reason, end.node) == (7, causes.CONFIGURATION, "first line", "node-4")


def test_a_script_that_ends_with_an_exit_code_leaves_the_error_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_INCARNATION", "1")
    with pytest.raises(SystemExit), rank_exit.noted(tmp_path):
        try:
            raise Diverged("the loss of step 2 is nan")
        except Diverged:
            raise SystemExit(1) from None
    assert kind(tmp_path) == causes.DIVERGED


def test_the_most_telling_record_of_several_ranks_counts(tmp_path: Path) -> None:
    for rank, cause in enumerate((causes.PROGRAM, causes.STOP_REQUESTED, causes.MACHINE, causes.STORAGE)):
        rank_exit.note(tmp_path, Token(1), rank, cause, "a reason")
    assert kind(tmp_path) == causes.MACHINE


def test_a_record_of_an_earlier_generation_or_incarnation_does_not_count(tmp_path: Path) -> None:
    rank_exit.note(tmp_path, Token(1), 0, causes.MACHINE, "a reason")
    rank_exit.note(tmp_path, Token(1, 1), 0, causes.STOP_REQUESTED, "a reason")
    assert kind(tmp_path) == causes.STOP_REQUESTED
    assert kind(tmp_path, incarnation=2) is None


def test_a_generation_whose_ranks_left_no_word_is_not_known_by_the_one_before(tmp_path: Path) -> None:
    rank_exit.note(tmp_path, Token(1), 0, causes.MACHINE, "a reason")
    fence.claim(tmp_path, Token(1), nodes=("a",), cause="first start", by="a test")
    fence.claim(tmp_path, Token(1, 1), nodes=("a",), cause="a rank died", by="a test")
    assert kind(tmp_path) is None
    incidents.note(tmp_path, IncidentRecord("000001.0001", causes.KILLED, "killed", "ended the job", "it", 1.0, 5))
    assert kind(tmp_path) == causes.KILLED


def test_a_process_started_by_hand_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_INCARNATION", raising=False)
    with pytest.raises(ValueError, match="bad"), rank_exit.noted(tmp_path):
        raise ValueError("bad")
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_cannot_be_written_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_INCARNATION", "1")
    (tmp_path / "ends").write_text("a file where a folder should be")
    with pytest.raises(ValueError, match="bad"), rank_exit.noted(tmp_path):
        raise ValueError("bad")
