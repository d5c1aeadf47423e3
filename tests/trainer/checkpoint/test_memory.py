"""The state in memory: what counts as whole among the ranks, and what a seal vouches for."""

import os
from collections.abc import Iterator

import pytest

from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.checkpoint.memory.slots import HeldFile, HeldPart
from slipway.trainer.config.operation import Storage
from slipway.trainer.record import causes

PART = HeldPart(1, 2, 30, 0, 2, {"a": HeldFile(0, 5, "0" * 64)}, {"python": [1]}, {"lr": 0.1}, {"step": 30})


@pytest.fixture
def buffer() -> Iterator[int]:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    yield descriptor
    os.close(descriptor)


def test_a_sealed_buffer_says_what_it_holds(buffer: int) -> None:
    assert slots.read(buffer) is None
    slots.write(buffer, PART)
    assert slots.read(buffer) == PART


def test_a_buffer_that_is_being_filled_again_holds_nothing(buffer: int) -> None:
    slots.write(buffer, PART)
    os.ftruncate(buffer, 4096)
    assert slots.read(buffer) is None


@pytest.mark.parametrize("offset", [-1, -40, -56, -57, -100])
def test_a_seal_with_a_flipped_bit_is_none(buffer: int, offset: int) -> None:
    slots.write(buffer, PART)
    at = os.fstat(buffer).st_size + offset
    os.pwrite(buffer, bytes([os.pread(buffer, 1, at)[0] ^ 1]), at)
    assert slots.read(buffer) is None


def test_a_seal_that_names_more_than_there_is_is_none(buffer: int) -> None:
    beyond = HeldPart(1, 2, 30, 0, 2, {"a": HeldFile(0, 5000, "0" * 64)}, {}, {}, {})
    slots.write(buffer, beyond)
    assert slots.read(buffer) is None


def test_an_unsealed_buffer_keeps_its_size(buffer: int) -> None:
    """A process that has mapped it would die of a smaller one."""
    slots.write(buffer, PART)
    size = os.fstat(buffer).st_size
    slots.forget([[buffer]])
    assert slots.read(buffer) is None and os.fstat(buffer).st_size == size


def test_a_rank_has_one_more_buffer_where_states_are_held_between_saves() -> None:
    assert slots.count(Storage()) == 2
    assert slots.count(Storage(memory_steps=1)) == 3


def test_a_rank_finds_its_buffers_in_its_environment() -> None:
    assert slots.from_environment(slots.named([7, 9])) == (7, 9)
    assert slots.from_environment({}) == ()


def test_nothing_goes_on_in_memory_after_an_end_that_casts_doubt_on_it() -> None:
    assert set(slots.DOUBTED) == {causes.CORRUPTION, causes.DIVERGED, causes.SPIKE}
