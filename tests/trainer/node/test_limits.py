"""Time-outs by phase: a step's is shorter than that of the start, over real ranks."""

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from slipway.trainer.config.operation import Hardware
from slipway.trainer.node.limits import TimeLimits
from slipway.trainer.node.world import World
from tests.trainer import gang

SECONDS = 1.0


def late(world: World, failed: Path) -> str:
    """Rank 1 is late by more than a step's limit in a start, and never comes in a step: what rank 0 saw then."""
    group = dist.new_group(backend="gloo")
    limits = TimeLimits(Hardware(timeout_seconds=100.0, step_timeout_seconds=SECONDS), world)
    limits.watch(lambda: [group])
    for in_step in (False, True):  # the start, and the first step, which may compile
        limits.enter(in_step)
        if world.rank == 1:
            time.sleep(2 * SECONDS)
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
    seen, _ = gang.run(2, late, tmp_path / "failed")
    assert "imed out" in seen


def test_a_world_of_one_waits_for_nobody():
    TimeLimits(Hardware(), World(0, 1, 0, torch.device("cpu"))).enter(True)
