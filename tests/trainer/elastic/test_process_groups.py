"""The process groups of a rank that stays: real groups of gloo, over a real store, in a world of one rank."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from slipway.trainer.base import codec
from slipway.trainer.config.operation import Hardware
from slipway.trainer.elastic import generations
from slipway.trainer.elastic.generation_listener import GenerationEnded
from slipway.trainer.elastic.generations import Arrival, End, Members, key
from slipway.trainer.elastic.process_groups import ProcessGroups, TimeLimits
from slipway.trainer.node.world import World
from slipway.trainer.record import causes, rank_exit
from tests.conftest import until
from tests.trainer import gang

SECONDS = 60.0


class AbortedGroups(ProcessGroups):
    """Groups whose exchanges end as on a GPU: by an abort from another thread, which takes the groups away."""

    def _end_exchanges(self) -> None:
        known: Any = dist.distributed_c10d
        known._abort_process_group()


def connect(store: Store | None, rank: int, size: int) -> None:
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS))


def network(error: BaseException) -> bool:
    return rank_exit.kind_of(error) == causes.NETWORK


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """The job's store, in generation 0 of a job of one node."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=SECONDS))
    rendezvous_variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": store.port,
        "RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
    }
    names = {"SLIPWAY_NODE": "a", generations.VARIABLE: 0, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
    for name, value in {**rendezvous_variables, **names}.items():
        monkeypatch.setenv(name, str(value))
    return store


@pytest.fixture
def groups(job: TCPStore) -> Iterator[ProcessGroups]:
    joined = AbortedGroups(connect, 0, 1, SECONDS, stays=True)
    yield joined
    joined.leave()


def end_generation(job: TCPStore) -> None:
    """Say that generation 0 is over, and who takes part in the next one; the groups are gone then."""
    end = End("b", causes.DISRUPTED, "node b is lost", final=False, code=1, at=0.0, ranks_stay=True)
    job.set(key(0, "end"), codec.encode(end).decode())
    job.set(key(1, "members"), codec.encode(Members(1, 1, (Arrival("a", 0, 1, ""),), at=0.0)).decode())
    until(lambda: not dist.is_initialized(), "the end of the exchanges", SECONDS)


def test_a_rank_whose_groups_are_gone_before_it_begins_an_exchange_stays_for_the_next_generation(
    job: TCPStore, groups: ProcessGroups
) -> None:
    end_generation(job)
    with pytest.raises(GenerationEnded, match="node b is lost"), groups.exchanging(network):
        dist.all_reduce(torch.ones(1))
    groups.join_next_generation()
    total = torch.ones(1)
    with groups.exchanging(network):
        dist.all_reduce(total)
    assert total.tolist() == [1.0] and os.environ[generations.VARIABLE] == "1"


@pytest.mark.parametrize("error", [KeyError("no such group"), OSError(9, "Bad file descriptor"), MemoryError()])
def test_whatever_is_raised_after_the_end_was_heard_follows_from_it(
    job: TCPStore, groups: ProcessGroups, error: Exception
) -> None:
    end_generation(job)
    with pytest.raises(GenerationEnded, match="node b is lost"), groups.exchanging(network):
        raise error


def test_groups_that_are_gone_are_no_fault_of_the_configuration(job: TCPStore, groups: ProcessGroups) -> None:
    end_generation(job)
    with pytest.raises(ValueError, match="has not been initialized") as caught:
        dist.all_reduce(torch.ones(1))
    assert rank_exit.kind_of(caught.value) == causes.NETWORK


STEP_SECONDS = 1.0


def late(world: World, failed: Path) -> str:
    """Rank 1 is late by more than a step's limit in a start, and never comes in a step: what rank 0 saw then."""
    group = dist.new_group(backend="gloo")
    limits = TimeLimits(Hardware(timeout_seconds=100.0, step_timeout_seconds=STEP_SECONDS), world)
    limits.watch(lambda: [group])
    for in_step in (False, True):  # the start, and the first step, which may compile
        limits.enter(in_step)
        if world.rank == 1:
            time.sleep(2 * STEP_SECONDS)
        dist.all_reduce(torch.zeros(1), group=group)
    limits.enter(True)
    if world.rank == 1:
        while not failed.exists():
            time.sleep(0.05)
        return "waited"
    try:
        dist.all_reduce(torch.zeros(1), group=group)
    except RuntimeError as error:
        return str(error)
    finally:
        failed.touch()
    return "no error"


@pytest.mark.slow
def test_a_rank_that_does_not_come_to_a_step_is_given_up_sooner_than_one_that_is_late_at_the_start(tmp_path: Path):
    message, _ = gang.run(2, late, tmp_path / "failed")
    assert "imed out" in message


def test_a_world_of_one_waits_for_nobody():
    TimeLimits(Hardware(), World(0, 1, 0, torch.device("cpu"))).enter(True)
