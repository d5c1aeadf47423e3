"""The orders of a pipeline: as many micro-batches are kept as PyTorch's own order of passes says."""

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipway.trainer.config.layout import in_flight
from slipway.trainer.config.operation import Layout
from slipway.trainer.step.stages import stages_of


@pytest.fixture
def two_ranks() -> Any:
    """This process is the first of two ranks, and the other one answers nothing."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(("stages_per_rank", "parts"), [(2, 2), (2, 8), (3, 4), (4, 6)])
def test_a_rank_keeps_as_many_micro_batches_as_the_order_of_pytorch_says(
    two_ranks: None, stages_per_rank: int, parts: int
) -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    layout = Layout(pipeline=2, schedule="interleaved", stages_per_rank=stages_per_rank)
    stages: list[Any] = [
        PipelineStage(nn.Identity(), number, 2 * stages_per_rank, torch.device("cpu"), torch.empty(1), torch.empty(1))
        for number in stages_of(0, 2, stages_per_rank)
    ]
    order = ScheduleInterleaved1F1B(stages, parts, loss_fn=torch.sum).pipeline_order
    for rank, actions in order.items():
        done = [str(action) for action in actions if action is not None]
        in_flight_counts = itertools.accumulate(1 if "F" in action else -1 for action in done)
        assert max(in_flight_counts) == in_flight(layout, rank, parts)
