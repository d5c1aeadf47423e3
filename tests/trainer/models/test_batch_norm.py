"""Batch normalisation over ranks: what one rank computes on all samples, however these are shared out."""

import multiprocessing
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from slipway.trainer.models.batch_norm import BatchNorm

CHANNELS, SAMPLES = 5, 6


def samples() -> tuple[Tensor, Tensor]:
    """Inputs with a mean far from 0, and the gradients of their outputs: [SAMPLES, CHANNELS, 3, 4] both."""
    generator = torch.Generator().manual_seed(0)
    inputs, gradients = (torch.randn(SAMPLES, CHANNELS, 3, 4, generator=generator) for _ in range(2))
    return inputs * torch.arange(1.0, 6)[:, None, None] + 100, gradients


def normalized(norm: nn.Module, inputs: Tensor, gradients: Tensor) -> list[Tensor]:
    """Outputs; gradients of inputs, weight and bias; running mean and variance."""
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, CHANNELS))  # type: ignore[operator]
    inputs = inputs.clone().requires_grad_()
    outputs = norm(inputs)
    outputs.backward(gradients)
    results = (outputs.detach(), inputs.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)
    return list(results)


def rank(number: int, shares: tuple[int, ...], folder: Path) -> None:
    """One rank's part, in a process of its own; writes what it found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=len(shares))
    inputs, gradients = (torch.split(tensor, list(shares))[number] for tensor in samples())
    torch.save(normalized(BatchNorm(CHANNELS).train(), inputs, gradients), folder / f"{number}.pt")
    dist.destroy_process_group()


def shared(shares: tuple[int, ...], folder: Path) -> list[list[Tensor]]:
    """What the ranks of these shares find, by rank."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank, args=(number, shares, folder)) for number in range(len(shares))]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0] * len(shares)
    return [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(len(shares))]


@pytest.mark.parametrize("shares", [(6,), (3, 3), (5, 1), (1, 2, 3), (4, 0, 2)], ids=str)
def test_ranks_compute_what_torch_computes_on_all_samples_at_once(shares: tuple[int, ...], tmp_path: Path) -> None:
    """To 1e-4 in fp32: outputs and gradients of each rank's samples, parameters' gradients in sum, statistics."""
    expected = normalized(nn.BatchNorm2d(CHANNELS), *samples())
    results = shared(shares, tmp_path)
    for index in (0, 1):
        torch.testing.assert_close(
            torch.cat([tensors[index] for tensors in results]), expected[index], rtol=1e-4, atol=1e-4
        )
    for index in (2, 3):
        torch.testing.assert_close(sum(tensors[index] for tensors in results), expected[index], rtol=1e-4, atol=1e-4)
    for tensors in results:
        torch.testing.assert_close(tensors[4:], expected[4:], rtol=1e-4, atol=1e-4)


def test_all_ranks_keep_the_same_statistics_to_the_bit(tmp_path: Path) -> None:
    first, second = shared((4, 2), tmp_path)
    assert torch.equal(first[4], second[4])
    assert torch.equal(first[5], second[5])


def test_a_measurement_uses_the_running_statistics_and_changes_none() -> None:
    norm, (inputs, _) = BatchNorm(CHANNELS), samples()
    norm(inputs)
    buffers = [buffer.clone() for buffer in norm.buffers()]
    alone, together = norm.eval()(inputs[:1]), norm(inputs)[:1]
    assert torch.equal(alone, together)
    assert all(torch.equal(one, other) for one, other in zip(buffers, norm.buffers(), strict=True))
